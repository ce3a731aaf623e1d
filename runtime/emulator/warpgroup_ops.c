/* warpgroup_ops.c: what a whole warpgroup does at once, done when its last lane has arrived: wgmma,
 * setmaxnreg.
 * in -> out: 128 records -> products under way or waited for; registers handed over. */
#include "runtime/emulator/warpgroup_ops.h"

#include "runtime/emulator/clocks.h"
#include "runtime/emulator/fault.h"
#include "runtime/emulator/products.h"
#include "runtime/emulator/wgmma.h"

/* ORDER WARPGROUP OPS */
const char *const ft_warpgroup_op_names[FE_WARPGROUP_OPS] = {
    "wgmma.fence",      "wgmma.mma_async", "wgmma.commit_group",
    "wgmma.wait_group", "setmaxnreg.dec",  "setmaxnreg.inc"};

static struct ft_thread *lanes_of(int warpgroup) {
  return &ft_block_now->threads[warpgroup * FT_WARPGROUP];
}

/* The number that all lanes have in their records. */
static int common_number(int warpgroup, int line) {
  const struct ft_thread *const lanes = lanes_of(warpgroup);
  const int number = *(const int *)lanes[0].record;
  for (int lane = 0; lane < FT_WARPGROUP; lane++)
    if (*(const int *)lanes[lane].record != number)
      ft_fault_lane(&lanes[lane], line, "has %d where lane 0 of its warpgroup has %d",
                    *(const int *)lanes[lane].record, number);
  return number;
}

/* ---- setmaxnreg ---- */

enum { REGISTERS = 65536, REGISTERS_MOST = 256, REGISTERS_LEAST = 24, REGISTER_UNIT = 8 };

/* What a thread is launched with: all of a block's registers in equal parts, by the eight. Where
 * that is the most a thread may have, the compiler may have chosen less. */
static int registers_at_launch(int threads) {
  const int part = REGISTERS / threads / REGISTER_UNIT * REGISTER_UNIT;
  return part < REGISTERS_MOST ? part : REGISTERS_MOST;
}

static int registers_of(const struct ft_warpgroup *group, int warpgroup, bool more, int line) {
  const int number = common_number(warpgroup, line), now = group->registers;
  if (number < REGISTERS_LEAST || number > REGISTERS_MOST || number % REGISTER_UNIT != 0)
    ft_fault(line, "asks for %d registers a thread; allowed: multiples of %d from %d to %d", number,
             REGISTER_UNIT, REGISTERS_LEAST, REGISTERS_MOST);
  if (more ? number < now && now < REGISTERS_MOST : number > now)
    ft_fault(line, "asks for %s, %d registers a thread, but has %d", more ? "more" : "fewer",
             number, now);
  return number;
}

/* false: the block has not as many left. */
static bool grant(struct ft_block *block, struct ft_warpgroup *group, int number) {
  if (number - group->registers > block->registers_left) return false;
  block->registers_left -= number - group->registers;
  group->registers = number;
  group->claim = 0;
  return true;
}

static void grant_those_who_wait(struct ft_block *block) {
  for (int g = 0; g < block->warpgroup_count; g++) {
    struct ft_warpgroup *const group = &block->warpgroups[g];
    if (!group->claim || !grant(block, group, group->claim)) continue;
    for (int lane = 0; lane < FT_WARPGROUP; lane++) ft_release(&lanes_of(g)[lane]);
  }
}

static void release_registers(struct ft_block *block, int warpgroup, int line) {
  struct ft_warpgroup *const group = &block->warpgroups[warpgroup];
  const int number = registers_of(group, warpgroup, false, line);
  block->registers_left += group->registers - number;
  group->registers = number;
  grant_those_who_wait(block);
}

static void claim_registers(struct ft_block *block, int warpgroup, int line) {
  struct ft_warpgroup *const group = &block->warpgroups[warpgroup];
  const int number = registers_of(group, warpgroup, true, line);
  if (grant(block, group, number)) return;
  group->claim = number;
  for (int lane = 0; lane < FT_WARPGROUP; lane++)
    ft_wait_at(&lanes_of(warpgroup)[lane], FT_AT_WARPGROUP_OP, FE_REGISTERS_CLAIM, line, NULL);
}

/* ---- all of them ---- */

void ft_warpgroup_op_run(enum fe_warpgroup_op op, int warpgroup, int line) {
  struct ft_block *const block = ft_block_now;
  struct ft_products *const products = &block->warpgroups[warpgroup].products;
  switch (op) { /* ORDER WARPGROUP OPS */
  case FE_WGMMA_FENCE: products->fenced = true; break;
  case FE_WGMMA: ft_wgmma_issue(warpgroup, line); break;
  case FE_WGMMA_COMMIT: products->committed++; break;
  case FE_WGMMA_WAIT: ft_wgmma_wait(warpgroup, common_number(warpgroup, line), line); break;
  case FE_REGISTERS_RELEASE: release_registers(block, warpgroup, line); break;
  case FE_REGISTERS_CLAIM: claim_registers(block, warpgroup, line); break;
  case FE_WARPGROUP_OPS: break;
  }
}

void ft_warpgroups_reset(struct ft_block *block) {
  block->registers_left = 0;
  for (int g = 0; g < block->warpgroup_count; g++) {
    struct ft_warpgroup *const group = &block->warpgroups[g];
    group->arrived = group->claim = 0;
    group->registers = registers_at_launch(block->thread_count);
    ft_products_reset(&group->products);
  }
}

void ft_check_products_done(struct ft_block *block) {
  for (int g = 0; g < block->warpgroup_count; g++) {
    const struct ft_products *const products = &block->warpgroups[g].products;
    if (products->count == 0) continue;
    lanes_of(g)->line = products->queue[0].line;
    ft_fault_outside(lanes_of(g), "begins a wgmma that is still under way as the block ends: no "
                                  "wgmma.wait_group waits for it");
    return;
  }
}
