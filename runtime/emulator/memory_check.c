/* memory_check.c: may a kernel touch these bytes of global memory?
 * in -> out: described tensors + registered allocations + an access -> yes, or what is wrong.
 *
 * Called for every access of a kernel. What a tensor's extents and strides come to is worked out
 * once and used while the same tensors are handed in; allocations are looked up once and used until
 * one is made or released. */
#include "runtime/emulator/memory_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/emulator/memory.h"

enum { BATCH, ROW, HEAD, COLUMN }; /* dimensions of a tensor */
static const char *const dim_names[FT_TENSOR_DIMS] = {"batch", "row", "head", "column"};
enum { KNOWN_ALLOCATIONS = 8 };

struct access {
  uint64_t address, bytes;
  enum fe_access kind;
};

/* A tensor in bytes. A run is as many elements as lie side by side in the innermost dimension. */
struct layout {
  struct ft_emulated_tensor tensor; /* copied with its padding: compared by memcmp */
  uint64_t begin, end;              /* of the first and last element; the same: it has none */
  int outer_count;                  /* dimensions around the run, widest stride first */
  int outer[FT_TENSOR_DIMS];
  uint64_t strides[FT_TENSOR_DIMS]; /* of the outer ones, in bytes */
  uint64_t run_bytes;
  int run_dim;  /* -1: the run is one element */
  bool overlap; /* elements of the dims overlap: an element has no one index */
};

/* Of the one launch that runs. */
static struct layout layouts[FT_TENSORS_MOST];
static int layout_count;
static struct ft_allocation known[KNOWN_ALLOCATIONS];
static int known_next;
static uint64_t known_generation;

/* ---- tensors ----------------------------------------------------------------------------------*/

static void sort_outer(struct layout *layout) {
  for (int n = 1; n < layout->outer_count; n++) {
    for (int m = n; m > 0 && layout->strides[m] > layout->strides[m - 1]; m--) {
      const int dim = layout->outer[m];
      const uint64_t stride = layout->strides[m];
      layout->outer[m] = layout->outer[m - 1];
      layout->strides[m] = layout->strides[m - 1];
      layout->outer[m - 1] = dim;
      layout->strides[m - 1] = stride;
    }
  }
}

/* Dims of one element or stride 0 add no element, the narrowest one of stride 1 makes the run. */
static void lay_out(const struct ft_emulated_tensor *tensor, struct layout *layout) {
  memset(layout, 0, sizeof *layout);
  memcpy(&layout->tensor, tensor, sizeof *tensor);
  layout->begin = layout->end = tensor->address;
  layout->run_dim = -1;
  const uint64_t element = (uint64_t)tensor->element_bytes;
  layout->run_bytes = element;
  for (int dim = 0; dim < FT_TENSOR_DIMS; dim++) {
    if (tensor->extents[dim] <= 0) return;
  }
  for (int dim = FT_TENSOR_DIMS - 1; dim >= 0; dim--) {
    const uint64_t extent = (uint64_t)tensor->extents[dim];
    if (extent == 1 || tensor->strides[dim] == 0) continue;
    if (tensor->strides[dim] == 1 && layout->run_dim < 0) {
      layout->run_dim = dim;
      layout->run_bytes = extent * element;
      continue;
    }
    layout->outer[layout->outer_count] = dim;
    layout->strides[layout->outer_count++] = (uint64_t)tensor->strides[dim] * element;
  }
  sort_outer(layout);
  uint64_t span = layout->run_bytes;
  for (int n = layout->outer_count - 1; n >= 0; n--) {
    if (layout->strides[n] < span) layout->overlap = true;
    span += ((uint64_t)tensor->extents[layout->outer[n]] - 1) * layout->strides[n];
  }
  layout->end = layout->begin + span;
}

static bool still(const struct layout *layout, const struct ft_emulated_tensor *tensors,
                  int count) {
  const long at = layout - layouts;
  return at < count && memcmp(&layout->tensor, &tensors[at], sizeof *tensors) == 0;
}

static void lay_out_all(const struct ft_emulated_tensor *tensors, int count) {
  layout_count = count < FT_TENSORS_MOST ? count : FT_TENSORS_MOST;
  for (int n = 0; n < layout_count; n++) {
    if (!still(&layouts[n], tensors, count)) lay_out(&tensors[n], &layouts[n]);
  }
}

/* The last run that begins at or below the address: its index, and how far the address is into it
 * or, in the gap behind, past its begin. The address lies in the span. */
static uint64_t decode(const struct layout *layout, uint64_t address, int64_t *index) {
  uint64_t offset = address - layout->begin;
  for (int n = 0; n < layout->outer_count; n++) {
    const uint64_t last = (uint64_t)layout->tensor.extents[layout->outer[n]] - 1;
    uint64_t at = offset / layout->strides[n];
    if (at > last) at = last;
    offset -= at * layout->strides[n];
    if (index) index[layout->outer[n]] = (int64_t)at;
  }
  return offset;
}

static bool touches(const struct layout *layout, const struct access *access) {
  return access->address < layout->end && access->address + access->bytes > layout->begin;
}

static bool in_span(const struct layout *layout, const struct access *access) {
  const uint64_t offset = access->address - layout->begin, span = layout->end - layout->begin;
  return offset < span && access->bytes <= span - offset;
}

static bool in_elements(const struct layout *layout, const struct access *access) {
  if (!in_span(layout, access)) return false;
  if (layout->overlap) return true;
  return decode(layout, access->address, NULL) + access->bytes <= layout->run_bytes;
}

static bool may(const struct layout *layout, const struct access *access) {
  return access->kind == FE_READ || layout->tensor.writable;
}

/* ---- allocations ------------------------------------------------------------------------------*/

static const struct ft_allocation *allocation_of(uint64_t address) {
  const uint64_t generation = ft_memory_generation();
  if (generation != known_generation) {
    memset(known, 0, sizeof known);
    known_generation = generation;
  }
  for (int n = 0; n < KNOWN_ALLOCATIONS; n++) {
    if (address - known[n].address < known[n].bytes) return &known[n];
  }
  struct ft_allocation found;
  if (!ft_memory_find(address, &found)) return NULL;
  struct ft_allocation *kept = &known[known_next];
  known_next = (known_next + 1) % KNOWN_ALLOCATIONS;
  *kept = found;
  return kept;
}

static bool holds_tensor(const struct ft_allocation *allocation) {
  for (int n = 0; n < layout_count; n++) {
    if (layouts[n].begin - allocation->address < allocation->bytes) return true;
  }
  return false;
}

/* ---- what is wrong, in words ------------------------------------------------------------------*/

struct words {
  char *text;
  size_t size, length;
};

static void say(struct words *words, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct words *words, const char *format, ...) {
  if (words->size == 0) return;
  va_list arguments;
  va_start(arguments, format);
  const int added =
      vsnprintf(words->text + words->length, words->size - words->length, format, arguments);
  va_end(arguments);
  if (added > 0) words->length += (size_t)added;
  if (words->length >= words->size) words->length = words->size - 1;
}

static void say_verb(struct words *words, const struct access *access) {
  static const char *const verbs[] = {"reads", "writes", "updates"};
  say(words, "%s %llu byte%s", verbs[access->kind], (unsigned long long)access->bytes,
      access->bytes == 1 ? "" : "s");
}

/* "[batch 0, row 3, head 1, column 8]"; an index below 0 is left out. */
static void say_index(struct words *words, const struct layout *layout, const int64_t *index) {
  say(words, "[");
  for (int dim = 0, said = 0; dim < FT_TENSOR_DIMS; dim++) {
    if (index[dim] < 0 || (dim == COLUMN && layout->tensor.extents[dim] == 1)) continue;
    say(words, "%s%s %lld", said++ ? ", " : "", dim_names[dim], (long long)index[dim]);
  }
  say(words, "]");
}

/* Where an access that begins in the tensor's span begins. In the gap behind a run: what it is
 * behind of, and how far. */
static void say_place(struct words *words, const struct layout *layout, uint64_t address,
                      bool padding) {
  const struct ft_emulated_tensor *tensor = &layout->tensor;
  say(words, "%s", tensor->name);
  if (layout->overlap) {
    say(words, ", byte %llu of %llu", (unsigned long long)(address - layout->begin),
        (unsigned long long)(layout->end - layout->begin));
    return;
  }
  int64_t index[FT_TENSOR_DIMS] = {0};
  const uint64_t offset = decode(layout, address, index);
  const int64_t at = (int64_t)(offset / (uint64_t)tensor->element_bytes);
  const int dim = layout->run_dim;
  if (!padding) {
    if (dim >= 0) index[dim] = at;
    say_index(words, layout, index);
    return;
  }
  if (dim >= 0) index[dim] = -1;
  say(words, ", after ");
  say_index(words, layout, index);
  if (dim >= 0) {
    say(words, ", %s %lld of %lld", dim_names[dim], (long long)at, (long long)tensor->extents[dim]);
  }
}

static void say_rows(struct words *words, const struct layout *layout) {
  const int64_t rows = layout->tensor.extents[ROW];
  say(words, "%s", layout->tensor.name);
  if (rows > 1) say(words, " (rows 0 to %lld)", (long long)(rows - 1));
}

static void say_outside(struct words *words, const struct access *access, uint64_t begin,
                        uint64_t end) {
  say_verb(words, access);
  if (access->address < begin) {
    say(words, " %llu byte%s before the begin of ", (unsigned long long)(begin - access->address),
        begin - access->address == 1 ? "" : "s");
  } else if (access->address < end) {
    say(words, ", %llu of them past the end of ",
        (unsigned long long)(access->address + access->bytes - end));
  } else if (access->address == end) {
    say(words, " right past the end of ");
  } else {
    say(words, " %llu bytes past the end of ", (unsigned long long)(access->address - end));
  }
}

static void say_outside_tensor(struct words *words, const struct layout *layout,
                               const struct access *access) {
  say_outside(words, access, layout->begin, layout->end);
  say_rows(words, layout);
}

/* ---- the check --------------------------------------------------------------------------------*/

/* The access touches the tensor, but not its elements alone. */
static bool refuse_gap(struct words *words, const struct layout *layout,
                       const struct access *access) {
  if (!in_span(layout, access)) {
    say_outside_tensor(words, layout, access);
    return false;
  }
  const uint64_t offset = decode(layout, access->address, NULL);
  const bool padding = offset >= layout->run_bytes;
  say_verb(words, access);
  say(words, padding ? " of padding of " : " at ");
  say_place(words, layout, access->address, padding);
  if (padding) return false;
  say(words, ", %llu of them past ",
      (unsigned long long)(offset + access->bytes - layout->run_bytes));
  if (layout->run_dim < 0) {
    say(words, "that element");
  } else {
    say(words, "%s %lld, the last", dim_names[layout->run_dim],
        (long long)layout->tensor.extents[layout->run_dim] - 1);
  }
  return false;
}

static bool refuse_input(struct words *words, const struct layout *layout,
                         const struct access *access) {
  say_verb(words, access);
  say(words, " %s ", access->kind == FE_WRITE ? "to" : "of");
  say_place(words, layout, access->address, false);
  say(words, ", an input");
  return false;
}

/* Whether the access lies behind an element of this tensor sooner than of that one. */
static bool closer(const struct layout *layout, const struct layout *other,
                   const struct access *access) {
  if (!in_span(layout, access)) return false;
  return !in_span(other, access) ||
         decode(layout, access->address, NULL) < decode(other, access->address, NULL);
}

static uint64_t distance(const struct access *access, uint64_t begin, uint64_t end) {
  if (access->address < begin) return begin - access->address;
  return access->address < end ? 0 : access->address - end;
}

/* `within`: NULL, or the allocation whose tensors are meant. */
static const struct layout *nearest_tensor(const struct access *access,
                                           const struct ft_allocation *within) {
  const struct layout *nearest = NULL;
  for (int n = 0; n < layout_count; n++) {
    const struct layout *layout = &layouts[n];
    if (layout->begin == layout->end) continue;
    if (within && layout->begin - within->address >= within->bytes) continue;
    if (!nearest || distance(access, layout->begin, layout->end) <
                        distance(access, nearest->begin, nearest->end)) {
      nearest = layout;
    }
  }
  return nearest;
}

static bool refuse_wild(struct words *words, const struct access *access) {
  const uint64_t far = UINT64_C(1) << 30; /* further off, no name says anything */
  const struct layout *tensor = nearest_tensor(access, NULL);
  const uint64_t to_tensor = tensor ? distance(access, tensor->begin, tensor->end) : UINT64_MAX;
  struct ft_allocation allocation = {0};
  uint64_t to_allocation = UINT64_MAX;
  if (ft_memory_nearest(access->address, &allocation)) {
    to_allocation = distance(access, allocation.address, allocation.address + allocation.bytes);
  }
  if (to_tensor <= to_allocation && to_tensor < far) {
    say_outside_tensor(words, tensor, access);
  } else if (to_allocation < far) {
    say_outside(words, access, allocation.address, allocation.address + allocation.bytes);
    say(words, "an allocation of %zu bytes", allocation.bytes);
  } else {
    say_verb(words, access);
    say(words, " at 0x%llx, where nothing is allocated", (unsigned long long)access->address);
  }
  return false;
}

static bool aligned(struct words *words, const struct access *access) {
  const bool power = (access->bytes & (access->bytes - 1)) == 0;
  if (!power || access->address % access->bytes == 0) return true;
  if (!words) return false;
  say_verb(words, access);
  say(words, " at 0x%llx, which is not a multiple of %llu", (unsigned long long)access->address,
      (unsigned long long)access->bytes);
  return false;
}

/* Bytes of one allocation: reads what was written, marks what it writes. */
static bool use(const struct ft_allocation *allocation, const struct access *access) {
  unsigned char *written = allocation->written + (access->address - allocation->address);
  if (access->kind == FE_WRITE) {
    memset(written, 1, access->bytes);
    return true;
  }
  return memchr(written, 0, access->bytes) == NULL;
}

/* The bytes are elements of this tensor, which may lie in memory that no allocation knows: the
 * process's own. words NULL: only whether all is well. */
static bool use_elements(struct words *words, const struct layout *layout,
                         const struct access *access) {
  const struct ft_allocation *allocation = allocation_of(access->address);
  const struct ft_allocation *home = allocation ? allocation : allocation_of(layout->begin);
  if (home && access->address + access->bytes > home->address + home->bytes) {
    if (!words) return false;
    say_outside(words, access, home->address, home->address + home->bytes);
    say(words, "the allocation of %s, of %zu bytes", layout->tensor.name, home->bytes);
    return false;
  }
  if (!aligned(words, access)) return false;
  if (!allocation || use(allocation, access)) return true;
  if (!words) return false;
  say_verb(words, access);
  say(words, " of ");
  say_place(words, layout, access->address, false);
  say(words, " that were never written");
  return false;
}

static bool use_plain(struct words *words, const struct ft_allocation *allocation,
                      const struct access *access) {
  const uint64_t end = allocation->address + allocation->bytes;
  if (access->address + access->bytes > end) {
    say_outside(words, access, allocation->address, end);
    say(words, "an allocation of %zu bytes", allocation->bytes);
    return false;
  }
  if (!aligned(words, access)) return false;
  if (use(allocation, access)) return true;
  say_verb(words, access);
  say(words, " at offset %llu of an allocation of %zu bytes that were never written",
      (unsigned long long)(access->address - allocation->address), allocation->bytes);
  return false;
}

/* Tensors may share a span (Q, K, V of one packed array): the access has to suit one of them. */
static bool check(struct words *words, const struct access *access) {
  const struct layout *input = NULL, *touched = NULL;
  for (int n = 0; n < layout_count; n++) {
    const struct layout *layout = &layouts[n];
    if (!touches(layout, access)) continue;
    if (in_elements(layout, access)) {
      if (may(layout, access)) return use_elements(words, layout, access);
      input = layout;
    } else if (!touched || closer(layout, touched, access)) {
      touched = layout;
    }
  }
  if (input) return refuse_input(words, input, access);
  if (touched) return refuse_gap(words, touched, access);
  const struct ft_allocation *allocation = allocation_of(access->address);
  if (!allocation) return refuse_wild(words, access);
  if (!holds_tensor(allocation)) return use_plain(words, allocation, access);
  say_outside_tensor(words, nearest_tensor(access, allocation), access);
  return false;
}

/* The common case, in which a tensor laid out before takes the access. */
static bool fast(const struct ft_emulated_tensor *tensors, int count, const struct access *access) {
  for (int n = 0; n < layout_count; n++) {
    const struct layout *layout = &layouts[n];
    if (in_elements(layout, access) && may(layout, access) && still(layout, tensors, count)) {
      return use_elements(NULL, layout, access);
    }
  }
  return false;
}

bool ft_memory_check(const struct ft_emulated_tensor *tensors, int count, uint64_t address,
                     int bytes, enum fe_access access, char *what, size_t size) {
  if (bytes <= 0) return true;
  const struct access asked = {address, (uint64_t)bytes, access};
  if (fast(tensors, count, &asked)) return true;
  struct words words = {.text = what, .size = size};
  lay_out_all(tensors, count);
  return check(&words, &asked);
}

bool ft_memory_place(const struct ft_emulated_tensor *tensors, int count, uint64_t address,
                     struct ft_place *place) {
  const struct access access = {.address = address, .bytes = 1};
  lay_out_all(tensors, count);
  for (int n = 0; n < layout_count; n++) {
    const struct layout *layout = &layouts[n];
    if (layout->overlap || !in_elements(layout, &access)) continue;
    *place = (struct ft_place){.tensor = &tensors[n]};
    const uint64_t offset = decode(layout, address, place->index);
    if (layout->run_dim >= 0)
      place->index[layout->run_dim] = (int64_t)(offset / (uint64_t)tensors[n].element_bytes);
    return true;
  }
  return false;
}

void ft_place_move_down(struct ft_place *place, int64_t rows) {
  const int64_t packed = place->tensor->packed_heads;
  if (packed > 1) {
    const int64_t of_query = place->tensor->packed_rows;
    const int64_t member = place->index[2] % packed, row = member + rows;
    const int64_t turns = row < 0 ? -((of_query - 1 - row) / of_query) : row / of_query;
    place->index[1] += turns;
    place->index[2] += row - turns * of_query - member;
  } else {
    place->index[1] += rows;
  }
}

bool ft_place_in_pages(const struct ft_place *first, const struct ft_place *found, int64_t rows,
                       int64_t columns) {
  const int64_t page = first->tensor->extents[ROW], row = first->index[ROW] + rows;
  const int64_t in_page = (row % page + page) % page;
  return first->tensor->paged && found->tensor == first->tensor &&
         (row != in_page || found->index[BATCH] == first->index[BATCH]) &&
         found->index[ROW] == in_page && found->index[HEAD] == first->index[HEAD] &&
         found->index[COLUMN] == first->index[COLUMN] + columns;
}

const char *ft_place_text(const struct ft_place *place, char text[128]) {
  snprintf(text, 128, "%s[batch %lld, row %lld, head %lld, column %lld]", place->tensor->name,
           (long long)place->index[0], (long long)place->index[1], (long long)place->index[2],
           (long long)place->index[3]);
  return text;
}
