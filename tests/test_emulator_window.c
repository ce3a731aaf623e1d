/* test_emulator_window.c: sliding windows, whose sides are arguments of a run.
 * in -> out: a plan, runs of many lengths and windows -> every row against float64; K and V, or Q,
 * of which only what a tile has to load was ever written -> runs without a fault. */
#include <stdio.h>
#include <string.h>

#include "generator/visibility.h"
#include "runtime/session.h"
#include "tests/emulator_lab.h"
#include "tests/suites.h"

#define MMA(m, n, w, more)                                                                         \
  "mma_forward block_m=" #m " block_n=" #n " warps=" #w " ctas_per_sm=1 " more
#define WGMMA(m, n, more)  "wgmma_forward block_m=" #m " block_n=" #n " " more
#define HOPPER(m, n, more) "wgmma_backward block_m=" #m " block_n=" #n " " more
#define BACKWARD(m, n, w, q, more)                                                                 \
  "mma_backward block_m=" #m " block_n=" #n " warps=" #w                                           \
  " column_warps=1 query_parts=1 ctas_per_sm=1 dq_mode=" #q " " more

/* ---- one kernel, many windows ---- */

static const struct {
  const char *request, *config; /* the lengths are those of the runs */
} kernels[] = {
    {"bf16 d16 hq2 hkv1 nq1 window", MMA(64, 32, 4, "stages=1")},
    {"fp16 d24 dv40 b2 nq1 window=top-left causal", MMA(32, 64, 2, "stages=2")},
    {"bf16 d16 hq2 nq1 window=top-left dropout", MMA(128, 16, 4, "stages=3 draw_early=1")},
    {"fp16 d32 nq1 window causal", MMA(64, 48, 4, "stages=2 q_in_regs=1 overlap_qk=1")},
    {"bf16 d16 hq2 nq1 window causal=top-left", MMA(64, 64, 4, "stages=2")},
    {"bf16 d16 hq4 hkv2 nq1 window mask=64x64@0.6", MMA(32, 32, 2, "stages=2")},
    {"fp16 d16 hq2 nq1 window causal mask=32x96@0.5 dropout",
     MMA(32, 48, 2, "stages=2 q_in_regs=1 overlap_qk=1")},
    {"bf16 d16 hq2 hkv1 nq1 window", WGMMA(64, 64, "stages=2 q_stages=1")},
    {"fp16 d64 dv40 hq2 nq1 window=top-left causal",
     WGMMA(128, 64, "stages=2 q_stages=2 overlap_tiles=1 pingpong=1 lazy_rescale=1")},
    {"bf16 d16 hq3 nq1 window causal=top-left",
     WGMMA(192, 80, "stages=3 q_stages=1 overlap_tiles=1 pingpong=2 integer_max=1 direct_store=1")},
    {"bf16 d32 hq2 nq1 window=top-left dropout",
     WGMMA(128, 64, "stages=2 q_stages=2 overlap_tiles=1 pingpong=1 lpt=1")},
    {"fp16 d16 hq4 nq1 window", WGMMA(256, 64, "stages=2 q_stages=1 ascending_keys=1 lpt=1")},
    {"bf16 d16 hq8 hkv2 nq1 window causal",
     WGMMA(128, 64, "stages=2 q_stages=2 overlap_tiles=1 pingpong=1 pack_gqa=1")},
    {"fp16 d16 hq6 hkv1 b2 nq1 window=top-left",
     WGMMA(64, 128, "stages=2 q_stages=1 overlap_tiles=1 direct_store=1 pack_gqa=1 lpt=1")},
    {"bf16 d16 hq2 nq1 window mask=128x64@0.6",
     WGMMA(128, 64, "stages=2 q_stages=2 overlap_tiles=1 pingpong=1")},
    {"fp16 d16 hq2 nq1 window=top-left causal mask=64x128@0.5 dropout",
     WGMMA(64, 64, "stages=2 q_stages=1 lpt=1")},
    {"fp16 d16 hq2 nq1 window", WGMMA(128, 64, "stages=2 q_stages=1 p_in_smem=1 exp2_poly=1")},
    {"backward bf16 d16 hq2 hkv1 nq1 window", BACKWARD(64, 64, 8, 0, "stages=2")},
    {"backward fp16 d24 dv40 nq1 window=top-left causal dropout",
     BACKWARD(32, 64, 8, 0, "stages=1 kv_in_regs=1 deferred_dq=1")},
    {"backward fp16 d16 hq2 nq1 window deterministic", BACKWARD(64, 64, 8, 1, "stages=2")},
    {"backward bf16 d16 hq4 hkv2 nq1 window=top-left deterministic",
     BACKWARD(16, 32, 4, 1, "stages=2 deferred_dq=1")},
    {"backward fp16 d16 hq2 nq1 window causal deterministic",
     BACKWARD(32, 128, 8, 1, "stages=2 deferred_dq=1")},
    {"backward bf16 d16 hq2 nq1 window causal=top-left deterministic dropout",
     BACKWARD(128, 32, 4, 1, "stages=1")},
    {"backward bf16 d16 hq2 hkv1 nq1 window deterministic", BACKWARD(32, 64, 8, 2, "stages=2")},
    {"backward fp16 d16 hq2 nq1 window=top-left causal mask=64x64@0.6",
     BACKWARD(32, 64, 8, 0, "stages=2 deferred_dq=1")},
    {"backward bf16 d16 hq2 hkv1 b2 nq1 window mask=32x64@0.5 dropout deterministic",
     BACKWARD(32, 32, 4, 2, "stages=1")},
    {"backward bf16 d64 hq2 hkv1 nq1 window",
     HOPPER(64, 128, "q_stages=2 do_stages=2 ds_stages=2 pacing=2")},
    {"backward fp16 d64 hq2 nq1 window=top-left causal",
     HOPPER(64, 192, "q_stages=3 do_stages=3 ds_stages=3 loads_beside_dq=1 early_scores=1")},
    {"backward bf16 d32 hq2 nq1 window deterministic",
     HOPPER(64, 128, "q_stages=2 do_stages=2 ds_stages=2 pacing=1")},
    {"backward bf16 d64 dv40 nq1 window causal mask=128x128@0.6",
     HOPPER(64, 128, "q_stages=3 do_stages=3 ds_stages=3 kv_in_regs=1 early_scores=1 pacing=1")},
};

static const struct {
  int nq, nk, left, right;
} windows[] = {
    {130, 130, 0, 0},                         /* the diagonal */
    {97, 97, 1000, 1000},                     /* wider than the problem */
    {131, 115, -1, -1},                       /* no bound at all */
    {150, 110, 20, -1},   {110, 150, -1, 20}, /* and on one side alone */
    {200, 70, 5, 3},                          /* many rows see no key */
    {60, 250, 9, 0},                          /* many keys are seen by no query */
    {40, 200, 10, 5}, /* aligned otherwise than causal is: nothing is seen */
    {1, 200, 30, 0},      {190, 1, 3, 3},     {129, 193, 63, 64}, {257, 257, 31, 7},
};
enum { WINDOWS = sizeof windows / sizeof *windows };

START_TEST(every_row_is_right) {
  const size_t number = EMULATOR_CHOOSE(_i, kernels);
  const uint64_t seed = emulator_seed();
  fatune_session *const session = emulator_open("h200", NULL);
  fatune_plan *const plan = emulator_plan(session, kernels[number].request, kernels[number].config);
  struct ft_problem_options options =
      emulator_options(kernels[number].request, (enum ft_layout)(number % 3), seed);
  options.want_dlse = number % 2 == 0 && options.request.pass == FT_BACKWARD;
  for (int n = 0; n < WINDOWS; n++) {
    struct ft_request *const request = &options.request;
    struct emulator_run run;
    char name[256];
    request->seqlen_q = windows[n].nq;
    request->seqlen_k = windows[n].nk;
    request->window_left = windows[n].left;
    request->window_right = windows[n].right;
    snprintf(name, sizeof name, "FATUNE_TEST_SEED=%llu %s nq%d nk%d @%d,%d",
             (unsigned long long)seed, kernels[number].request, windows[n].nq, windows[n].nk,
             windows[n].left, windows[n].right);
    emulator_run_plan(&run, session, &options, plan);
    emulator_expect_right(name, &run);
    emulator_run_free(&run);
  }
  fatune_plan_free(plan);
  fatune_session_close(session);
}
END_TEST

/* ---- what is loaded ---- */

/* Of one tile, whose other side is as long as chance will have it. */
static const struct {
  const char *request, *config;
  int block_m, block_n;
} tiles[] = {
    {"bf16 d16 nq1 window", MMA(64, 32, 4, "stages=1"), 64, 32},
    {"fp16 d64 nq1 window=top-left causal", MMA(32, 48, 2, "stages=3"), 32, 48},
    {"bf16 d16 nq1 window mask=64x64", MMA(64, 32, 4, "stages=2 q_in_regs=1 overlap_qk=1"), 64, 32},
    {"fp16 d16 nq1 window causal", WGMMA(128, 64, "stages=2 q_stages=1"), 128, 64},
    {"bf16 d16 nq1 window=top-left",
     WGMMA(64, 80, "stages=3 q_stages=1 ascending_keys=1 lpt=1 direct_store=1"), 64, 80},
    {"bf16 d16 nq1 window mask=128x128", WGMMA(128, 64, "stages=2 q_stages=1"), 128, 64},
    {"backward bf16 d16 nq1 window", BACKWARD(64, 64, 8, 0, "stages=2 deferred_dq=1"), 64, 64},
    {"backward fp16 d16 nq1 window=top-left causal deterministic",
     BACKWARD(16, 32, 4, 1, "stages=2"), 16, 32},
    {"backward bf16 d64 nq1 window", HOPPER(64, 128, "q_stages=2 do_stages=2 ds_stages=2 pacing=2"),
     64, 128},
    {"backward bf16 d16 nq1 window mask=64x64", BACKWARD(32, 64, 8, 0, "stages=1"), 32, 64},
};
enum { TILES = sizeof tiles / sizeof *tiles, LENGTH_MOST = 700 };

struct lab {
  fatune_session *session;
  fatune_plan *plan;
  struct ft_request request;
  struct ft_steps steps; /* of the tile */
  fatune_arguments arguments;
  fatune_mask *mask;
  cu_address memory[16];
  int count;
};

static cu_address allocate(struct lab *lab, size_t bytes) {
  ck_assert_int_lt(lab->count, 16);
  cu_address *const address = &lab->memory[lab->count++];
  ck_assert_int_eq(lab->session->driver.memory_alloc(address, bytes), 0);
  return *address;
}

/* A tensor of one head, of which rows begin to end - 1 are written: with numbers from 1 to 2. */
static fatune_tensor make_tensor(struct lab *lab, int64_t rows, struct ft_interval written) {
  const int dim = lab->request.head_dim;
  const uint16_t one = lab->request.dtype == FT_BF16 ? 0x3F80 : 0x3C00;
  const cu_address address = allocate(lab, (size_t)(rows * dim) * sizeof one);
  for (int64_t i = written.begin * dim; i < written.end * dim; i++) {
    const uint16_t value = (uint16_t)(one + below(128));
    ck_assert_int_eq(
        lab->session->driver.copy_to_device(address + 2 * (uint64_t)i, &value, sizeof value, NULL),
        0);
  }
  return (fatune_tensor){(void *)(uintptr_t)address, 0, dim, 0}; /* NOLINT: a device address */
}

static fatune_tensor make_output(struct lab *lab, int64_t rows) {
  return make_tensor(lab, rows, (struct ft_interval){0, 0});
}

/* A tile of queries or keys, at most `own` of them, beside as many keys or queries as chance has.
 */
static void choose_run(struct ft_request *request, int own) {
  const bool forward = request->pass == FT_FORWARD;
  request->seqlen_q = 1 + below(forward ? own : LENGTH_MOST);
  request->seqlen_k = 1 + below(forward ? LENGTH_MOST : own);
  request->window_left = below(4) == 0 ? -1 : below(200);
  request->window_right = below(4) == 0 ? -1 : below(200);
}

static fatune_mask *keep_every_block(const struct lab *lab) {
  static uint8_t kept[LENGTH_MOST];
  const struct ft_request *const r = &lab->request;
  fatune_mask *mask;
  memset(kept, 1, sizeof kept);
  fatune_mask_options options = FATUNE_MASK_OPTIONS_INIT;
  options.blocks = kept;
  options.mask_rows = r->mask_rows;
  options.mask_cols = r->mask_cols;
  options.batch = options.heads = 1;
  options.seqlen_q = r->seqlen_q;
  options.seqlen_k = r->seqlen_k;
  ck_assert_msg(fatune_mask_make(&mask, lab->session, &options, NULL) == FT_OK, "%s", ft_detail());
  return mask;
}

static void set_gradients(struct lab *lab) {
  const int64_t nq = lab->request.seqlen_q, nk = lab->request.seqlen_k;
  fatune_arguments *const a = &lab->arguments;
  float *const lse = (float *)(uintptr_t)allocate(lab, (size_t)nq * sizeof *lse); /* NOLINT */
  const float zero = 0;
  size_t bytes;
  for (int64_t i = 0; i < nq; i++)
    lab->session->driver.copy_to_device((cu_address)(uintptr_t)&lse[i], &zero, sizeof zero, NULL);
  a->lse = lse;
  a->dout = make_tensor(lab, nq, (struct ft_interval){0, nq});
  a->dq = make_output(lab, nq);
  a->dk = make_output(lab, nk);
  a->dv = make_output(lab, nk);
  ck_assert_int_eq(fatune_plan_workspace_for(lab->plan, a, &bytes), FT_OK);
  a->workspace = (void *)(uintptr_t)allocate(lab, bytes); /* NOLINT */
}

/* Only what the steps hold is written of K and V, in a backward of Q. */
static void set_arguments(struct lab *lab, int block) {
  static const fatune_arguments initial = FATUNE_ARGUMENTS_INIT;
  const struct ft_request *const r = &lab->request;
  const bool forward = r->pass == FT_FORWARD;
  const int64_t nq = r->seqlen_q, nk = r->seqlen_k, length = forward ? nk : nq;
  const int64_t end = lab->steps.end * block;
  const struct ft_interval walked = {lab->steps.begin * block, end < length ? end : length};
  const struct ft_interval of_q = {0, nq}, of_k = {0, nk};
  fatune_arguments *const a = &lab->arguments;
  *a = initial;
  a->seqlen_q = nq;
  a->seqlen_k = nk;
  a->window_left = r->window_left;
  a->window_right = r->window_right;
  a->q = make_tensor(lab, nq, forward ? of_q : walked);
  a->k = make_tensor(lab, nk, forward ? walked : of_k);
  a->v = make_tensor(lab, nk, forward ? walked : of_k);
  a->o = forward ? make_output(lab, nq) : make_tensor(lab, nq, of_q);
  lab->mask = r->mask_rows > 0 ? keep_every_block(lab) : NULL;
  a->mask = lab->mask;
  if (!forward) set_gradients(lab);
}

static void run_tile(struct lab *lab, const char *name, int block_m, int block_n) {
  const bool forward = lab->request.pass == FT_FORWARD;
  choose_run(&lab->request, forward ? block_m : block_n);
  const struct ft_request *const r = &lab->request;
  const struct ft_visibility visibility = ft_visibility_of(r);
  lab->steps = forward
                   ? ft_steps_of_queries(&visibility, (struct ft_interval){0, r->seqlen_q}, block_n)
                   : ft_steps_of_keys(&visibility, (struct ft_interval){0, r->seqlen_k}, block_m);
  lab->count = 0;
  set_arguments(lab, forward ? block_n : block_m);
  const int status = fatune_plan_run(lab->plan, &lab->arguments, NULL);
  ck_assert_msg(status == FT_OK, "FATUNE_TEST_SEED=%llu %s nq%d nk%d @%d,%d: %s",
                (unsigned long long)random_seed, name, (int)r->seqlen_q, (int)r->seqlen_k,
                (int)r->window_left, (int)r->window_right, ft_detail());
  fatune_mask_free(lab->mask);
  while (lab->count > 0)
    ck_assert_int_eq(lab->session->driver.memory_free(lab->memory[--lab->count]), 0);
}

/* A read of what was never written is a fault. */
START_TEST(what_no_row_sees_is_not_loaded) {
  enum { LENGTHS = 24 };
  struct lab lab = {.session = emulator_open("h200", NULL)};
  lab.plan = emulator_plan(lab.session, tiles[_i].request, tiles[_i].config);
  lab.request = emulator_options(tiles[_i].request, FT_LAYOUT_BHSD, 0).request;
  ck_assert_int_eq(ft_session_enter(lab.session), FT_OK);
  for (int n = 0; n < LENGTHS; n++)
    run_tile(&lab, tiles[_i].request, tiles[_i].block_m, tiles[_i].block_n);
  ft_session_leave(lab.session);
  fatune_plan_free(lab.plan);
  fatune_session_close(lab.session);
}
END_TEST

Suite *make_emulator_window_suite(void) {
  Suite *const suite = suite_create("emulator_window");
  TCase *const tests = tcase_create("window");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, every_row_is_right, 0, EMULATOR_RUNS(kernels));
  tcase_add_loop_test(tests, what_no_row_sees_is_not_loaded, 0, TILES);
  suite_add_tcase(suite, tests);
  return suite;
}
