/* wgmma.c: products of a warpgroup, done as late as the wait that orders them allows.
 * in -> out: records of 128 lanes -> a product under way; waits -> sums in accumulators.
 * While a product is under way its accumulators hold FE_UNDER_WAY, so that who reads them early has
 * no numbers, and its A registers must stay as they are. Shared memory counts as being read until a
 * lane has passed the wait. Fragments as in the PTX manual, "Register Fragments for
 * wgmma.mma_async.m64nNk16": each warp has 16 rows, in them as mma.m16n8k16 has them. */
#include "runtime/emulator/wgmma.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/emulator/block.h"
#include "runtime/emulator/clocks.h"
#include "runtime/emulator/device/machine.h"
#include "runtime/emulator/fault.h"
#include "runtime/emulator/grid.h"
#include "runtime/emulator/limits.h"
#include "runtime/emulator/memory_check.h"
#include "runtime/emulator/numbers.h"
#include "runtime/emulator/shared_memory.h"
#include "runtime/emulator/short_sum.h"
#include "runtime/emulator/wgmma_operand.h"

static struct ft_thread *lane_of(int warpgroup, int lane) {
  return &ft_block_now->threads[warpgroup * FT_WARPGROUP + lane];
}

static const struct fe_wgmma *record_of(int warpgroup, int lane) {
  return lane_of(warpgroup, lane)->record;
}

/* Row and column of accumulator i. */
static int row_of(int lane, int i) {
  return lane / FE_WARP * 16 + lane % FE_WARP / 4 + 8 * (i / 2 % 2);
}

static int column_of(int lane, int i) {
  return i / 4 * 8 + lane % 4 * 2 + i % 2;
}

/* ---- accumulators ---- */

static void take_sums(struct ft_sums *sums, int warpgroup, const struct ft_product *product) {
  const struct fe_kernel *const kernel = ft_block_now->launch->kernel;
  const uint32_t under_way = FE_UNDER_WAY;
  for (int lane = 0; lane < FT_WARPGROUP; lane++) {
    float *const home = sums->homes[lane];
    for (int i = 0; i < sums->registers; i++) {
      if (product->accumulate && ft_unwritten_float(kernel, &home[i]))
        ft_fault_lane(lane_of(warpgroup, lane), product->line,
                      "uses accumulator c[%d] of a product, a register that was never written", i);
      sums->sums[row_of(lane, i) * 2 * sums->registers + column_of(lane, i)] = home[i];
      memcpy(&home[i], &under_way, sizeof under_way);
    }
  }
}

static void check_untouched(const struct ft_sums *sums, int warpgroup, int line) {
  for (int lane = 0; lane < FT_WARPGROUP; lane++)
    for (int i = 0; i < sums->registers; i++) {
      uint32_t bits;
      memcpy(&bits, &sums->homes[lane][i], sizeof bits);
      if (bits != FE_UNDER_WAY)
        ft_fault_lane(lane_of(warpgroup, lane), line,
                      "finds accumulator c[%d] of the wgmma of line %d written while it was under "
                      "way: no wgmma.wait_group was between",
                      i, sums->line);
    }
}

static void give_sums(struct ft_sums *sums, int warpgroup, int line) {
  check_untouched(sums, warpgroup, line);
  for (int lane = 0; lane < FT_WARPGROUP; lane++)
    for (int i = 0; i < sums->registers; i++)
      sums->homes[lane][i] = sums->sums[row_of(lane, i) * 2 * sums->registers + column_of(lane, i)];
}

/* A slot for the registers that the records name: sums of done products are slots to be had. */
static struct ft_sums *new_sums(struct ft_products *products, int warpgroup) {
  int n = 0;
  while (n < products->sum_count && products->sums[n].under_way > 0) n++;
  if (n == products->sum_count) {
    products->sums = ft_make_room(products->sums, &products->sum_room, n, sizeof *products->sums);
    products->sums[products->sum_count++] = (struct ft_sums){0};
  }
  struct ft_sums *const sums = &products->sums[n];
  sums->registers = record_of(warpgroup, 0)->registers;
  const int floats = FT_WGMMA_ROWS * 2 * sums->registers;
  if (sums->sum_room < floats) {
    sums->sums = ft_need(realloc(sums->sums, (size_t)floats * sizeof *sums->sums));
    sums->sum_room = floats;
  }
  for (int lane = 0; lane < FT_WARPGROUP; lane++) sums->homes[lane] = record_of(warpgroup, lane)->c;
  return sums;
}

static bool overlap(const struct ft_sums *sums, int warpgroup, int lane) {
  const struct fe_wgmma *const record = record_of(warpgroup, lane);
  return record->c < sums->homes[lane] + sums->registers &&
         sums->homes[lane] < record->c + record->registers;
}

/* Those of a product under way that adds to the same registers; NULL: there is none. */
static struct ft_sums *find_sums(struct ft_products *products, int warpgroup, int line) {
  struct ft_sums *found = NULL;
  for (int n = 0; n < products->sum_count; n++) {
    struct ft_sums *const sums = &products->sums[n];
    for (int lane = 0; lane < FT_WARPGROUP && sums->under_way > 0; lane++) {
      const struct fe_wgmma *const record = record_of(warpgroup, lane);
      if (sums->homes[lane] == record->c && sums->registers == record->registers)
        found = sums;
      else if (sums == found || overlap(sums, warpgroup, lane))
        ft_fault_lane(lane_of(warpgroup, lane), line,
                      "adds to a part of the accumulators of the wgmma of line %d, which is under "
                      "way",
                      sums->line);
    }
  }
  return found;
}

static void attach_sums(struct ft_products *products, struct ft_product *product, int warpgroup) {
  struct ft_sums *sums = find_sums(products, warpgroup, product->line);
  if (sums) {
    check_untouched(sums, warpgroup, product->line);
  } else {
    sums = new_sums(products, warpgroup);
    take_sums(sums, warpgroup, product);
  }
  sums->under_way++;
  sums->line = product->line;
  product->sums = (int)(sums - products->sums);
}

/* ---- issue ---- */

static void check_same(int warpgroup, int line) {
  const struct fe_wgmma *const first = record_of(warpgroup, 0);
  for (int lane = 0; lane < FT_WARPGROUP; lane++) {
    const struct fe_wgmma *const other = record_of(warpgroup, lane);
    if (other->b_descriptor != first->b_descriptor || other->a_descriptor != first->a_descriptor ||
        other->accumulate != first->accumulate || other->registers != first->registers)
      ft_fault_lane(lane_of(warpgroup, lane), line,
                    "has another descriptor or flag than lane 0 of its warpgroup");
  }
  const int columns = 2 * first->registers;
  if (columns < 8 || columns > FT_WGMMA_COLUMNS_MOST || columns % 8 != 0)
    ft_fault(line, "has n = %d; allowed: multiples of 8 up to %d", columns, FT_WGMMA_COLUMNS_MOST);
}

static void keep_a_registers(struct ft_product *product, int warpgroup) {
  const struct fe_kernel *const kernel = ft_block_now->launch->kernel;
  for (int lane = 0; lane < FT_WARPGROUP; lane++) {
    const uint32_t *const a = record_of(warpgroup, lane)->a;
    for (int i = 0; i < 4; i++)
      if (ft_unwritten_pair(kernel, &a[i], &a[i ^ 1]))
        ft_fault_lane(lane_of(warpgroup, lane), product->line,
                      "uses operand a[%d] of a product, a register that was never written", i);
    product->a_homes[lane] = a;
    memcpy(product->a_registers[lane], a, sizeof product->a_registers[lane]);
  }
}

/* What all lanes are behind of; worked out anew when one has learned something. */
static const uint32_t *common_clock(struct ft_products *products, int warpgroup) {
  const struct ft_clocks *const clocks = ft_block_now->shared.clocks;
  if (!products->common) products->common = ft_need(ft_clock_make(clocks));
  const int first = lane_of(warpgroup, 0)->agent;
  const uint32_t changes = clocks->changes[first / FT_WARPGROUP];
  if (!products->common_known || products->common_changes != changes)
    ft_clocks_common(clocks, first, FT_WARPGROUP, products->common);
  products->common_known = true;
  products->common_changes = changes;
  return products->common;
}

static void check_operands(struct ft_products *products, const struct ft_product *product,
                           int warpgroup) {
  struct ft_shared_memory *const shared = &ft_block_now->shared;
  const struct ft_emulated_launch *const launch = ft_block_now->launch;
  const struct ft_accessor by = {.clock = common_clock(products, warpgroup),
                                 .stamp = ft_stamp(product->group, products->agent),
                                 .slot = ft_slot_of_products(shared, warpgroup),
                                 .line = product->line,
                                 .async = true};
  char what[FT_OPERAND_WORDS], text_a[128], text_b[128];
  struct ft_place a = {0}, b;
  if (!product->a_in_registers &&
      (ft_operand_read(&product->a, shared, &by, what) ||
       ft_operand_tile(&product->a, shared, launch->tensors, launch->tensor_count, &a, what)))
    ft_fault(product->line, "%s", what);
  if (ft_operand_read(&product->b, shared, &by, what) ||
      ft_operand_tile(&product->b, shared, launch->tensors, launch->tensor_count, &b, what))
    ft_fault(product->line, "%s", what);
  if (a.tensor && b.tensor && !product->a.across && !product->b.across && a.index[3] != b.index[3])
    ft_fault(product->line, "multiplies columns that do not belong together: from %s and from %s",
             ft_place_text(&a, text_a), ft_place_text(&b, text_b));
}

void ft_wgmma_issue(int warpgroup, int line) {
  struct ft_block *const block = ft_block_now;
  struct ft_products *const products = &block->warpgroups[warpgroup].products;
  check_same(warpgroup, line);
  if (!products->fenced)
    ft_fault(line, "is the first since registers may have been touched: wgmma.fence is missing");
  if (products->agent < 0)
    products->agent = ft_clocks_agent(block->shared.clocks, block->rank, FT_PRODUCTS, warpgroup);
  if (products->agent < 0) ft_fault(line, "has more mbarriers and stores than are emulated");
  products->queue =
      ft_make_room(products->queue, &products->room, products->count, sizeof *products->queue);
  const struct fe_wgmma *const record = record_of(warpgroup, 0);
  struct ft_product *const product = &products->queue[products->count];
  product->line = line;
  product->group = products->committed + 1;
  product->a_in_registers = record->a != NULL;
  product->accumulate = record->accumulate;
  product->dtype = record->dtype;
  char what[FT_OPERAND_WORDS];
  if ((!record->a && ft_operand_decode(&product->a, 'A', record->a_descriptor, record->a_across,
                                       FT_WGMMA_ROWS, what)) ||
      ft_operand_decode(&product->b, 'B', record->b_descriptor, record->b_across,
                        2 * record->registers, what))
    ft_fault(line, "%s", what);
  if (record->a) keep_a_registers(product, warpgroup);
  check_operands(products, product, warpgroup);
  attach_sums(products, product, warpgroup);
  products->count++;
}

/* ---- products ---- */

struct tiles {
  int depth;
  float a[FT_WGMMA_ROWS][FT_WGMMA_DEPTH_MOST], b[FT_WGMMA_DEPTH_MOST][FT_WGMMA_COLUMNS_MOST];
};

/* Register i of a lane has four numbers of a row, or two. */
static void gather_a_registers(struct tiles *tiles, const struct ft_product *product) {
  float (*const convert)(uint32_t) = product->dtype == FE_OF_E4M3   ? ft_from_e4m3
                                     : product->dtype == FE_OF_BF16 ? ft_from_bf16
                                                                    : ft_from_fp16;
  const int numbers = product->dtype == FE_OF_E4M3 ? 4 : 2, bits = 32 / numbers;
  for (int lane = 0; lane < FT_WARPGROUP; lane++)
    for (int i = 0; i < 4; i++) {
      const int row = lane / FE_WARP * 16 + lane % FE_WARP / 4 + 8 * (i % 2);
      const int k = lane % 4 * numbers + 4 * numbers * (i / 2);
      for (int n = 0; n < numbers; n++)
        tiles->a[row][k + n] =
            convert(product->a_registers[lane][i] >> n * bits & ((1u << bits) - 1));
    }
}

static void check_a_registers(const struct ft_product *product, int warpgroup, int line) {
  for (int lane = 0; lane < FT_WARPGROUP; lane++)
    for (int i = 0; i < 4; i++)
      if (product->a_homes[lane][i] != product->a_registers[lane][i])
        ft_fault_lane(lane_of(warpgroup, lane), line,
                      "finds operand a[%d] of the wgmma of line %d changed while it was under way: "
                      "no wgmma.wait_group was between",
                      i, product->line);
}

/* Products of two 16-bit numbers are exact in fp32; sums are rounded one after the other. */
static void multiply(const struct tiles *restrict tiles, float *restrict sums, int columns) {
  enum { AT_ONCE = 8 };
  for (int row = 0; row < FT_WGMMA_ROWS; row++)
    for (int first = 0; first < columns; first += AT_ONCE) {
      float *const at = sums + row * columns + first;
      float sum[AT_ONCE];
      memcpy(sum, at, sizeof sum);
      for (int k = 0; k < tiles->depth; k++)
        for (int i = 0; i < AT_ONCE; i++) sum[i] += tiles->a[row][k] * tiles->b[k][first + i];
      memcpy(at, sum, sizeof sum);
    }
}

static void multiply_e4m3(const struct tiles *restrict tiles, float *restrict sums, int columns) {
  _Static_assert((int)FT_SHORT_DEPTH == (int)FT_WGMMA_DEPTH_MOST, "a product's depth");
  for (int row = 0; row < FT_WGMMA_ROWS; row++)
    for (int first = 0; first < columns; first += FT_SHORT_SUMS)
      ft_short_sums(sums + row * columns + first, tiles->a[row], &tiles->b[0][first],
                    FT_WGMMA_COLUMNS_MOST);
}

static void finish(struct ft_products *products, const struct ft_product *product, int warpgroup,
                   int line) {
  const struct ft_shared_memory *const shared = &ft_block_now->shared;
  struct ft_sums *const sums = &products->sums[product->sums];
  const int columns = 2 * sums->registers;
  struct tiles tiles = {.depth = product->dtype == FE_OF_E4M3 ? FT_WGMMA_DEPTH_MOST
                                                              : FT_WGMMA_DEPTH_MOST / 2};
  if (product->a_in_registers) {
    check_a_registers(product, warpgroup, line);
    gather_a_registers(&tiles, product);
  } else {
    const int a_row = product->a.across ? 1 : FT_WGMMA_DEPTH_MOST;
    const int a_column = product->a.across ? FT_WGMMA_DEPTH_MOST : 1;
    ft_operand_gather(&product->a, shared, product->dtype, &tiles.a[0][0], a_row, a_column);
  }
  const int row_step = product->b.across ? FT_WGMMA_COLUMNS_MOST : 1;
  const int column_step = product->b.across ? 1 : FT_WGMMA_COLUMNS_MOST;
  ft_operand_gather(&product->b, shared, product->dtype, &tiles.b[0][0], row_step, column_step);
  if (!product->accumulate)
    memset(sums->sums, 0, (size_t)(FT_WGMMA_ROWS * columns) * sizeof *sums->sums);
  if (product->dtype == FE_OF_E4M3)
    multiply_e4m3(&tiles, sums->sums, columns);
  else
    multiply(&tiles, sums->sums, columns);
  if (--sums->under_way == 0) give_sums(sums, warpgroup, line);
}

void ft_wgmma_wait(int warpgroup, int youngest, int line) {
  struct ft_block *const block = ft_block_now;
  struct ft_products *const products = &block->warpgroups[warpgroup].products;
  products->fenced = false;
  if (products->committed <= (uint32_t)youngest) return;
  const uint32_t groups = products->committed - (uint32_t)youngest;
  int done = 0;
  while (done < products->count && products->queue[done].group <= groups)
    finish(products, &products->queue[done++], warpgroup, line);
  if (done == 0) return;
  products->count -= done;
  memmove(products->queue, products->queue + done,
          (size_t)products->count * sizeof *products->queue);
  for (int lane = 0; lane < FT_WARPGROUP; lane++)
    ft_clocks_learn(block->shared.clocks, lane_of(warpgroup, lane)->agent, products->agent, groups);
}

/* ---- blocks ---- */

void ft_products_reset(struct ft_products *products) {
  for (int n = 0; n < products->sum_count; n++) products->sums[n].under_way = 0;
  products->count = 0;
  products->committed = 0;
  products->agent = -1;
  products->fenced = products->common_known = false;
}

void ft_products_free(struct ft_products *products) {
  for (int n = 0; n < products->sum_count; n++) free(products->sums[n].sums);
  free(products->sums);
  free(products->queue);
  free(products->common);
}
