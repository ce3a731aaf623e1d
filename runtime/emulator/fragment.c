/* fragment.c: operands of a product under watch.
 * in -> out: registers and where their values come from -> whether the operands are tiles. */
#include "runtime/emulator/fragment.h"

#include <stdio.h>

#include "runtime/emulator/memory_check.h"

/* Registers of one array lie side by side in the stack, so the low bits of the word spread well. */
static struct ft_fragment *slot_of(const struct ft_fragments *fragments, const uint32_t *home) {
  return &fragments->slots[((uintptr_t)home / sizeof *home) % FT_FRAGMENT_SLOTS];
}

void ft_fragment_note(struct ft_fragments *fragments, const uint32_t *home,
                      const uint64_t origins[2]) {
  *slot_of(fragments, home) =
      (struct ft_fragment){.home = home, .value = *home, .origins = {origins[0], origins[1]}};
}

const struct ft_fragment *ft_fragment_find(const struct ft_fragments *fragments,
                                           const uint32_t *home) {
  const struct ft_fragment *const slot = slot_of(fragments, home);
  return slot->home == home && slot->value == *home ? slot : NULL;
}

/* ---- tiles ---- */

/* An operand as it lies in global memory, from the first element known of it: element (o, k), o
 * across the depth, k along it, is at begin + o * outer + k * depth. */
struct tile {
  struct ft_place first; /* the known element, */
  int first_o, first_k;  /* which is this one */
  uint64_t begin;
  int64_t outer, depth;
};

static bool find_tile(struct tile *tile, const struct ft_fragment *fragment, int o, int k,
                      const struct ft_emulated_tensor *tensors, int count) {
  if (!fragment || !fragment->origins[0] || !fragment->origins[1]) return false;
  if (!ft_memory_place(tensors, count, fragment->origins[0], &tile->first)) return false;
  const struct ft_emulated_tensor *const tensor = tile->first.tensor;
  const int64_t column = tensor->element_bytes, row = tensor->strides[1] * column;
  const bool along_columns = (int64_t)(fragment->origins[1] - fragment->origins[0]) == column;
  tile->depth = along_columns ? column : row;
  tile->outer = along_columns ? row : column;
  tile->first_o = o;
  tile->first_k = k;
  tile->begin = fragment->origins[0] - (uint64_t)(o * tile->outer + k * tile->depth);
  return true;
}

static const char *not_there(const struct tile *tile, char operand, int o, int k, uint64_t found,
                             const struct ft_emulated_tensor *tensors, int count,
                             char what[FT_FRAGMENT_WORDS]) {
  const uint64_t expected = tile->begin + (uint64_t)(o * tile->outer + k * tile->depth);
  struct ft_place place;
  char is[128] = "no element", be[128] = "no element";
  if (ft_memory_place(tensors, count, found, &place)) ft_place_text(&place, is);
  if (ft_memory_place(tensors, count, expected, &place)) ft_place_text(&place, be);
  snprintf(what, FT_FRAGMENT_WORDS,
           "multiplies by a %c that is no tile: at %s %d, depth %d stands %s, not %s", operand,
           operand == 'A' ? "row" : "column", o, k, is, be);
  return what;
}

/* Whether element (o, k) is where the tile has it whose rows are in pages. */
static bool belongs_in_pages(const struct tile *tile, uint64_t origin, int o, int k,
                             const struct ft_emulated_tensor *tensors, int count) {
  const bool along_columns = tile->depth == tile->first.tensor->element_bytes;
  const int across = o - tile->first_o, along = k - tile->first_k;
  struct ft_place found;
  return tile->first.tensor->paged && ft_memory_place(tensors, count, origin, &found) &&
         ft_place_in_pages(&tile->first, &found, along_columns ? across : along,
                           along_columns ? along : across);
}

/* The same of a tile with packed heads, whose consecutive rows belong to one head after the other.
 */
static bool belongs_in_pack(const struct tile *tile, uint64_t origin, int o, int k) {
  const struct ft_emulated_tensor *const tensor = tile->first.tensor;
  const bool along_columns = tile->depth == tensor->element_bytes;
  const int across = o - tile->first_o, along = k - tile->first_k;
  struct ft_place place = tile->first;
  if (tensor->packed_heads <= 1) return false;
  ft_place_move_down(&place, along_columns ? across : along);
  place.index[3] += along_columns ? along : across;
  int64_t elements = 0;
  for (int dim = 0; dim < FT_TENSOR_DIMS; dim++)
    elements += place.index[dim] * tensor->strides[dim];
  return origin == tensor->address + (uint64_t)(elements * tensor->element_bytes);
}

/* Whether both halves of a register, depths k and k + 1, are where the tile has them. */
static bool belongs(const struct tile *tile, const struct ft_fragment *fragment, int o, int k,
                    const struct ft_emulated_tensor *tensors, int count, int *wrong_half) {
  for (int half = 0; half < 2; half++) {
    const uint64_t expected = tile->begin + (uint64_t)(o * tile->outer + (k + half) * tile->depth);
    *wrong_half = half;
    const uint64_t origin = fragment->origins[half];
    if (origin && origin != expected &&
        !belongs_in_pages(tile, origin, o, k + half, tensors, count) &&
        !belongs_in_pack(tile, origin, o, k + half))
      return false;
  }
  return true;
}

/* Of register i of a lane: its row of A or column of B, and its depth. */
static int outer_of(char operand, int lane, int i) {
  return operand == 'A' ? lane / 4 + 8 * (i % 2) : lane / 4;
}

static int depth_of(char operand, int lane, int i) {
  return lane % 4 * 2 + 8 * (operand == 'A' ? i / 2 : i);
}

static const struct ft_fragment *register_of(const struct ft_operands *lane, char operand, int i) {
  return operand == 'A' ? lane->a[i] : lane->b[i];
}

static const char *check_operand(struct tile *tile, bool *known, char operand,
                                 const struct ft_operands lanes[FE_WARP],
                                 const struct ft_emulated_tensor *tensors, int count,
                                 char what[FT_FRAGMENT_WORDS]) {
  const int registers = operand == 'A' ? 4 : 2;
  *known = false;
  for (int n = 0; n < FE_WARP * registers; n++) {
    const int lane = n / registers, i = n % registers;
    const struct ft_fragment *const fragment = register_of(&lanes[lane], operand, i);
    const int o = outer_of(operand, lane, i), k = depth_of(operand, lane, i);
    int half;
    if (!*known) {
      *known = find_tile(tile, fragment, o, k, tensors, count);
    } else if (fragment && !belongs(tile, fragment, o, k, tensors, count, &half)) {
      return not_there(tile, operand, o, k + half, fragment->origins[half], tensors, count, what);
    }
  }
  return NULL;
}

const char *ft_fragment_fault(const struct ft_operands lanes[FE_WARP],
                              const struct ft_emulated_tensor *tensors, int count,
                              char what[FT_FRAGMENT_WORDS]) {
  struct tile a, b;
  bool a_known, b_known;
  if (check_operand(&a, &a_known, 'A', lanes, tensors, count, what)) return what;
  if (check_operand(&b, &b_known, 'B', lanes, tensors, count, what)) return what;
  const bool both_along_columns =
      a_known && b_known && a.depth == a.first.tensor->element_bytes && a.depth == b.depth;
  if (!both_along_columns) return NULL;

  struct ft_place a_begin, b_begin;
  if (!ft_memory_place(tensors, count, a.begin, &a_begin)) return NULL;
  if (!ft_memory_place(tensors, count, b.begin, &b_begin)) return NULL;
  if (a_begin.index[3] == b_begin.index[3]) return NULL;
  char text_a[128], text_b[128];
  snprintf(what, FT_FRAGMENT_WORDS,
           "multiplies columns that do not belong together: from %s and from %s",
           ft_place_text(&a_begin, text_a), ft_place_text(&b_begin, text_b));
  return what;
}
