/* warp_ops.c: what a whole warp does at once, done when its last lane has arrived.
 * in -> out: 32 records -> 32 results. Fragments are laid out as in the PTX manual, "Matrix
 * Fragments for mma.m16n8k16", "mma.m16n8k8" and "ldmatrix". */
#include "runtime/emulator/warp_ops.h"

#include <math.h>
#include <string.h>

#include "runtime/emulator/clocks.h"
#include "runtime/emulator/cluster.h"
#include "runtime/emulator/fault.h"
#include "runtime/emulator/fragment.h"
#include "runtime/emulator/grid.h"
#include "runtime/emulator/named_barriers.h"
#include "runtime/emulator/numbers.h"
#include "runtime/emulator/shared_memory.h"
#include "runtime/emulator/short_sum.h"

/* ORDER WARP OPS */
const char *const ft_warp_op_names[FE_WARP_OPS] = {
    "__syncwarp",     "__shfl_xor_sync", "a vote",          "redux.sync.or",   "ldmatrix",
    "ldmatrix.trans", "mma.sync (bf16)", "mma.sync (fp16)", "mma.sync (tf32)", "mma.sync (e4m3)",
    "stmatrix",       "stmatrix.trans",  "bar.sync",        "bar.arrive",      "barrier.cluster"};

static void sync_warp(struct ft_warp *warp) {
  ft_clocks_order(ft_block_now->shared.clocks, warp->lanes[0]->agent, FE_WARP);
}

/* ---- shuffle, vote, reduction ---- */

static struct fe_shuffle *shuffle_of(const struct ft_warp *warp, int lane) {
  return warp->lanes[lane]->record;
}

static void shuffle_xor(struct ft_warp *warp) {
  uint32_t values[FE_WARP];
  for (int lane = 0; lane < FE_WARP; lane++) values[lane] = shuffle_of(warp, lane)->value;
  for (int lane = 0; lane < FE_WARP; lane++) {
    struct fe_shuffle *const shuffle = shuffle_of(warp, lane);
    shuffle->value = values[(uint32_t)lane ^ shuffle->mask];
  }
}

static void reduce_or(struct ft_warp *warp) {
  uint32_t all = 0;
  for (int lane = 0; lane < FE_WARP; lane++) all |= shuffle_of(warp, lane)->value;
  for (int lane = 0; lane < FE_WARP; lane++) shuffle_of(warp, lane)->value = all;
}

/* ---- ldmatrix ---- */

struct row {
  uint16_t elements[8];
  uint64_t origin; /* of the first; they lie side by side; 0 unknown */
};

/* Row `lane % 8` of matrix `lane / 8`, by the address of that lane. */
static struct row load_row(const struct ft_thread *thread, int line) {
  struct ft_shared_memory *const shared = &ft_block_now->shared;
  const struct fe_ldmatrix *const record = thread->record;
  struct row row;
  char what[256];
  if (ft_shared_read(shared, thread->number, record->address, sizeof row.elements, line, what))
    ft_fault_lane(thread, line, "%s", what);
  memcpy(row.elements, ft_shared_at(shared, record->address), sizeof row.elements);
  row.origin = ft_shared_origin(shared, record->address);
  return row;
}

static uint64_t origin_in(const struct row *row, int column) {
  return row->origin ? row->origin + (uint64_t)column * sizeof row->elements[0] : 0;
}

static void ldmatrix(struct ft_warp *warp, bool transposed, int line) {
  struct row rows[FE_WARP];
  for (int lane = 0; lane < FE_WARP; lane++) rows[lane] = load_row(warp->lanes[lane], line);
  for (int lane = 0; lane < FE_WARP; lane++) {
    const struct fe_ldmatrix *const record = warp->lanes[lane]->record;
    const int outer = lane / 4, inner = lane % 4 * 2;
    for (int matrix = 0; matrix < 4; matrix++) {
      uint32_t pair = 0;
      uint64_t origins[2];
      for (int half = 0; half < 2; half++) {
        const struct row *const row = &rows[8 * matrix + (transposed ? inner + half : outer)];
        const int column = transposed ? outer : inner + half;
        pair |= (uint32_t)row->elements[column] << 16 * half;
        origins[half] = origin_in(row, column);
      }
      record->registers[matrix] = pair;
      ft_fragment_note(&warp->lanes[lane]->fragments, &record->registers[matrix], origins);
    }
  }
}

/* Two elements, the pair-th, of row lane % 8 of matrix lane / 8 as it is stored. */
static uint32_t stored_pair(const struct ft_warp *warp, bool transposed, int lane, int pair) {
  const int row = lane % 8;
  const struct fe_stmatrix *const source = warp->lanes[row * 4 + pair]->record;
  if (!transposed) return source->registers[lane / 8];
  uint32_t both = 0;
  for (int half = 0; half < 2; half++) {
    const struct fe_stmatrix *const of = warp->lanes[(2 * pair + half) * 4 + row / 2]->record;
    both |= (of->registers[lane / 8] >> 16 * (row % 2) & 0xFFFFu) << 16 * half;
  }
  return both;
}

static void stmatrix(struct ft_warp *warp, bool transposed, int line) {
  struct ft_shared_memory *const shared = &ft_block_now->shared;
  for (int lane = 0; lane < FE_WARP; lane++) {
    const struct ft_thread *const thread = warp->lanes[lane];
    const uint32_t address = ((const struct fe_stmatrix *)thread->record)->address;
    uint32_t row[4];
    char what[256];
    for (int pair = 0; pair < 4; pair++) row[pair] = stored_pair(warp, transposed, lane, pair);
    if (ft_shared_write(shared, thread->number, address, sizeof row, line, what))
      ft_fault_lane(thread, line, "%s", what);
    memcpy(ft_shared_at(shared, address), row, sizeof row);
  }
}

/* ---- mma ---- */

static void check_written(const struct ft_thread *thread, int line) {
  const struct fe_kernel *const kernel = thread->block->launch->kernel;
  const struct fe_mma *const record = thread->record;
  const char *name = NULL;
  int at = 0;
  for (int i = 0; i < 4 && !name; at = i++)
    if (ft_unwritten_float(kernel, &record->c[i])) name = "accumulator c";
  for (int i = 0; i < 4 && !name; at = i++)
    if (ft_unwritten_pair(kernel, &record->a[i], &record->a[i ^ 1])) name = "operand a";
  for (int i = 0; i < 2 && !name; at = i++)
    if (ft_unwritten_pair(kernel, record->b[i], record->b[i ^ 1])) name = "operand b";
  if (name)
    ft_fault_lane(thread, line, "uses %s[%d] of a product, a register that was never written", name,
                  at);
}

static void check_operands(struct ft_warp *warp, int line) {
  struct ft_operands operands[FE_WARP];
  for (int lane = 0; lane < FE_WARP; lane++) {
    struct ft_thread *const thread = warp->lanes[lane];
    const struct fe_mma *const record = thread->record;
    check_written(thread, line);
    for (int i = 0; i < 4; i++)
      operands[lane].a[i] = ft_fragment_find(&thread->fragments, &record->a[i]);
    for (int i = 0; i < 2; i++)
      operands[lane].b[i] = ft_fragment_find(&thread->fragments, record->b[i]);
  }
  char what[FT_FRAGMENT_WORDS];
  const struct ft_emulated_launch *const launch = ft_block_now->launch;
  if (ft_fragment_fault(operands, launch->tensors, launch->tensor_count, what))
    ft_fault(line, "%s", what);
}

struct tiles {
  float a[16][16], b[16][8], c[16][8];
};

static void gather(struct tiles *tiles, const struct ft_warp *warp, float (*convert)(uint32_t)) {
  for (int lane = 0; lane < FE_WARP; lane++) {
    const struct fe_mma *const record = warp->lanes[lane]->record;
    const int g = lane / 4, t = lane % 4 * 2;
    for (int i = 0; i < 4; i++) {
      const int row = g + 8 * (i % 2), k = t + 8 * (i / 2);
      tiles->a[row][k] = convert(record->a[i] & 0xFFFF);
      tiles->a[row][k + 1] = convert(record->a[i] >> 16);
      tiles->c[g + 8 * (i / 2)][t + i % 2] = record->c[i];
    }
    for (int i = 0; i < 2; i++) {
      tiles->b[t + 8 * i][g] = convert(*record->b[i] & 0xFFFF);
      tiles->b[t + 8 * i + 1][g] = convert(*record->b[i] >> 16);
    }
  }
}

/* Products of two 16-bit numbers are exact in fp32; sums are rounded one after the other. */
static void multiply(struct tiles *tiles) {
  for (int row = 0; row < 16; row++) {
    for (int k = 0; k < 16; k++) {
      const float a = tiles->a[row][k];
      for (int n = 0; n < 8; n++) tiles->c[row][n] += a * tiles->b[k][n];
    }
  }
}

static void mma(struct ft_warp *warp, float (*convert)(uint32_t), int line) {
  struct tiles tiles;
  check_operands(warp, line);
  gather(&tiles, warp, convert);
  multiply(&tiles);
  for (int lane = 0; lane < FE_WARP; lane++) {
    const struct fe_mma *const record = warp->lanes[lane]->record;
    for (int i = 0; i < 4; i++)
      record->c[i] = tiles.c[lane / 4 + 8 * (i / 2)][lane % 4 * 2 + i % 2];
  }
}

/* ---- mma of TF32 ---- */

/* A number of TF32: the last 13 bits of fp32 are not looked at. */
static double from_tf32(uint32_t bits) {
  return (double)ft_float_of(bits & 0xFFFFE000u);
}

/* The sum of c and eight exact products, as the A100's and later tensor cores are known to make it
 * (Fasi et al., PeerJ CS 2021): addends are cut off, towards 0, one bit below the last place that
 * the largest of them has in fp32, and so is the sum. */
static float sum_of(const double addends[9]) {
  enum { BITS = 24 };
  double sum = 0, largest = 0;
  for (int n = 0; n < 9; n++) {
    if (!isfinite(addends[n])) largest = NAN;
    if (fabs(addends[n]) > largest) largest = fabs(addends[n]);
  }
  if (isnan(largest) || largest == 0) {
    for (int n = 0; n < 9; n++) sum += addends[n];
    return (float)sum;
  }
  const double unit = ldexp(1, ilogb(largest) - BITS);
  for (int n = 0; n < 9; n++) sum += trunc(addends[n] / unit) * unit; /* exact: at most 29 bits */
  const float nearest = (float)sum;
  return fabs((double)nearest) > fabs(sum) ? nextafterf(nearest, 0) : nearest;
}

static void mma_tf32(struct ft_warp *warp, int line) {
  double a[16][8], b[8][8];
  for (int lane = 0; lane < FE_WARP; lane++) {
    const struct fe_mma *const record = warp->lanes[lane]->record;
    const int g = lane / 4, t = lane % 4;
    check_written(warp->lanes[lane], line);
    for (int i = 0; i < 4; i++) a[g + 8 * (i % 2)][t + 4 * (i / 2)] = from_tf32(record->a[i]);
    for (int i = 0; i < 2; i++) b[t + 4 * i][g] = from_tf32(*record->b[i]);
  }
  for (int lane = 0; lane < FE_WARP; lane++) {
    const struct fe_mma *const record = warp->lanes[lane]->record;
    for (int i = 0; i < 4; i++) {
      const int row = lane / 4 + 8 * (i / 2), n = lane % 4 * 2 + i % 2;
      double addends[9] = {(double)record->c[i]};
      for (int k = 0; k < 8; k++) addends[1 + k] = a[row][k] * b[k][n];
      record->c[i] = sum_of(addends);
    }
  }
}

/* ---- mma of e4m3 ---- */

/* Where accumulator i of a lane is. */
static float *sum_of_lane(float sums[16][FT_SHORT_SUMS], int lane, int i) {
  return &sums[lane / 4 + 8 * (i / 2)][lane % 4 * 2 + i % 2];
}

/* A register holds four depths. As pairs of bytes the operands are laid out as 16-bit elements are,
 * and are checked so. */
static void mma_e4m3(struct ft_warp *warp, int line) {
  enum { BYTES = 4, COLUMNS = FT_SHORT_SUMS };
  float a[16][FT_SHORT_DEPTH], b[FT_SHORT_DEPTH][COLUMNS], sums[16][COLUMNS];
  check_operands(warp, line);
  for (int lane = 0; lane < FE_WARP; lane++) {
    const struct fe_mma *const record = warp->lanes[lane]->record;
    const int g = lane / 4, t = lane % 4 * BYTES;
    for (int n = 0; n < BYTES; n++) {
      for (int i = 0; i < 4; i++)
        a[g + 8 * (i % 2)][t + 16 * (i / 2) + n] = ft_from_e4m3(record->a[i] >> 8 * n & 0xFF);
      for (int i = 0; i < 2; i++)
        b[t + 16 * i + n][g] = ft_from_e4m3(*record->b[i] >> 8 * n & 0xFF);
    }
  }
  for (int n = 0; n < FE_WARP * 4; n++) {
    const struct fe_mma *const record = warp->lanes[n / 4]->record;
    *sum_of_lane(sums, n / 4, n % 4) = record->c[n % 4];
  }
  for (int row = 0; row < 16; row++) ft_short_sums(sums[row], a[row], b[0], COLUMNS);
  for (int n = 0; n < FE_WARP * 4; n++) {
    const struct fe_mma *const record = warp->lanes[n / 4]->record;
    record->c[n % 4] = *sum_of_lane(sums, n / 4, n % 4);
  }
}

void ft_warp_op_run(enum fe_warp_op op, struct ft_warp *warp, int line) {
  switch (op) { /* ORDER WARP OPS */
  case FE_SYNCWARP: sync_warp(warp); break;
  case FE_SHUFFLE_XOR: shuffle_xor(warp); break;
  case FE_VOTE_ANY:
  case FE_REDUCE_OR: reduce_or(warp); break;
  case FE_LDMATRIX_X4: ldmatrix(warp, false, line); break;
  case FE_LDMATRIX_X4_TRANS: ldmatrix(warp, true, line); break;
  case FE_MMA_BF16: mma(warp, ft_from_bf16, line); break;
  case FE_MMA_FP16: mma(warp, ft_from_fp16, line); break;
  case FE_MMA_TF32: mma_tf32(warp, line); break;
  case FE_MMA_E4M3: mma_e4m3(warp, line); break;
  case FE_STMATRIX_X4: stmatrix(warp, false, line); break;
  case FE_STMATRIX_X4_TRANS: stmatrix(warp, true, line); break;
  case FE_BARRIER_SYNC: ft_named_barrier(warp, true, line); break;
  case FE_BARRIER_ARRIVE: ft_named_barrier(warp, false, line); break;
  case FE_CLUSTER_SYNC: ft_cluster_barrier(warp, line); break;
  case FE_WARP_OPS: break;
  }
}
