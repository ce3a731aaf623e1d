/* test_merge.c: fatune_merge: results of separate forwards put together.
 * in -> out: random parts on emulated GPUs -> O and LSE beside float64; bad arguments -> what is
 * wrong with them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/session.h"
#include "tests/emulator_lab.h"
#include "tests/suites.h"
#include "tuner/verify/halves.h"

enum { BATCH = 2, HEADS = 3, NQ = 7, DIM_MOST = 256, PARTS = FATUNE_MERGE_PARTS };
enum { ROWS = BATCH * HEADS * NQ, ELEMENTS = ROWS * DIM_MOST };

/* Arrays of the dtype: of 16 bits, or of fp32. */
static struct {
  _Alignas(16) float o[PARTS][ELEMENTS], merged[ELEMENTS];
  float lse[PARTS][ROWS], merged_lse[ROWS];
  float sinks[HEADS];
  fatune_part parts[PARTS];
} memory;

/* [batch, heads, rows, dim]; every row of a part is written, also where it has no weight. */
static fatune_tensor tensor_at(void *data, int dim) {
  return (fatune_tensor){data, (int64_t)HEADS * NQ * dim, dim, (int64_t)NQ * dim};
}

static fatune_merge_arguments random_parts(enum ft_dtype dtype, int dim, int count) {
  fatune_merge_arguments arguments = FATUNE_MERGE_ARGUMENTS_INIT;
  arguments.dtype = (fatune_dtype)dtype;
  arguments.head_dim_v = dim;
  arguments.batch = BATCH;
  arguments.heads_q = HEADS;
  arguments.seqlen_q = NQ;
  for (int n = 0; n < count; n++) {
    memory.parts[n] = (fatune_part){tensor_at(memory.o[n], dim), memory.lse[n]};
    for (int row = 0; row < ROWS; row++) {
      const bool none = below(4) == 0 || row == 5; /* of row 5 no part saw a key */
      memory.lse[n][row] = none ? -INFINITY : (float)below(2000) / 100 - 10;
      for (int c = 0; c < dim; c++)
        ft_set_number(dtype, memory.o[n], row * dim + c, none ? NAN : (below(2001) - 1000) / 500.0);
    }
  }
  for (int head = 0; head < HEADS; head++)
    memory.sinks[head] = head == 1 ? -INFINITY : (float)below(2000) / 100 - 10;
  arguments.parts = memory.parts;
  arguments.part_count = count;
  arguments.o = tensor_at(memory.merged, dim);
  arguments.lse = memory.merged_lse;
  memset(memory.merged, 0xff, sizeof memory.merged);
  memset(memory.merged_lse, 0xff, sizeof memory.merged_lse);
  return arguments;
}

static double sink_of(const float *sinks, int row) {
  return sinks ? exp((double)sinks[row / NQ % HEADS]) : 0;
}

/* sinks: NULL or of the heads. */
static void expect_merged(enum ft_dtype dtype, int dim, int count, const float o[PARTS][ELEMENTS],
                          const float lse[PARTS][ROWS], const float *sinks) {
  const bool is_fp32 = dtype == FT_FP32;
  const double ulp = dtype == FT_BF16 ? 0x1p-8 : is_fp32 ? 1e-6 : 0x1p-11;
  for (int row = 0; row < ROWS; row++) {
    double sum = sink_of(sinks, row);
    for (int n = 0; n < count; n++) sum += exp((double)lse[n][row]);
    const float merged = memory.merged_lse[row];
    if (sum > 0)
      ck_assert_double_eq_tol(merged, log(sum), 2e-6 * (1 + fabs(log(sum))));
    else
      ck_assert_msg(isinf(merged) && merged < 0, "LSE of row %d is %g", row, merged);
    for (int c = 0; c < dim; c++) {
      double mean = 0;
      for (int n = 0; n < count; n++)
        if (lse[n][row] > -INFINITY)
          mean += exp((double)lse[n][row]) / sum * ft_number(dtype, o[n], row * dim + c);
      const double is = ft_number(dtype, memory.merged, row * dim + c);
      ck_assert_msg(fabs(is - mean) <= ulp * fabs(mean) + (is_fp32 ? 2e-6 : 1e-4),
                    "row %d column %d: %g, not %g", row, c, is, mean);
    }
  }
}

static const struct {
  const char *gpu;
  enum ft_dtype dtype;
  int dim, count;
} runs[] = {
    {"h200", FT_BF16, 128, 2},     {"t4", FT_FP16, 64, 5},       {"a100", FT_BF16, 16, 1},
    {"h200", FT_FP16, 256, 3},     {"a100", FT_FP16, 72, PARTS}, {"a100", FT_FP32, 72, 3},
    {"h200", FT_FP32, 256, PARTS},
};

static float given_o[PARTS][ELEMENTS];
static float given_lse[PARTS][ROWS];

START_TEST(parts_become_the_whole) {
  const enum ft_dtype dtype = runs[_i].dtype;
  const int dim = runs[_i].dim, count = runs[_i].count;
  random_seed = emulator_seed();
  fatune_session *const session = emulator_open(runs[_i].gpu, NULL);
  fatune_merge_arguments arguments = random_parts(dtype, dim, count);
  memcpy(given_o, memory.o, sizeof given_o);
  memcpy(given_lse, memory.lse, sizeof given_lse);
  ck_assert_msg(fatune_merge(session, &arguments, NULL) == FATUNE_OK, "%s", fatune_detail());
  expect_merged(dtype, dim, count, given_o, given_lse, NULL);
  /* Into the first part, in place. */
  arguments.o = memory.parts[0].o;
  arguments.lse = memory.lse[0];
  ck_assert_msg(fatune_merge(session, &arguments, NULL) == FATUNE_OK, "%s", fatune_detail());
  ck_assert_mem_eq(memory.o[0], memory.merged,
                   (size_t)(ROWS * dim) * (size_t)ft_dtype_bytes(dtype));
  ck_assert_mem_eq(memory.lse[0], memory.merged_lse, sizeof memory.merged_lse);
  /* With sinks. The sink of head 1 is -inf, that is none. No part has a key for row 5, so its LSE
   * is its sink. */
  arguments = random_parts(dtype, dim, count);
  memcpy(given_o, memory.o, sizeof given_o);
  memcpy(given_lse, memory.lse, sizeof given_lse);
  arguments.sinks = memory.sinks;
  ck_assert_msg(fatune_merge(session, &arguments, NULL) == FATUNE_OK, "%s", fatune_detail());
  expect_merged(dtype, dim, count, given_o, given_lse, memory.sinks);
  ck_assert_float_eq(memory.merged_lse[5], memory.sinks[0]);
  /* Without LSE. */
  arguments = random_parts(dtype, dim, count);
  arguments.lse = NULL;
  ck_assert_msg(fatune_merge(session, &arguments, NULL) == FATUNE_OK, "%s", fatune_detail());
  fatune_session_close(session);
}
END_TEST

START_TEST(bad_arguments_are_named) {
  fatune_session *const session = emulator_open("h200", NULL);
  const fatune_merge_arguments good = random_parts(FT_BF16, 64, 3);
#define BAD(change, word)                                                                          \
  do {                                                                                             \
    fatune_merge_arguments bad = good;                                                             \
    change;                                                                                        \
    ck_assert_int_eq(fatune_merge(session, &bad, NULL), FATUNE_E_ARGUMENT);                        \
    ck_assert_msg(strstr(fatune_detail(), word) != NULL, "%s", fatune_detail());                   \
  } while (0)
  BAD(bad.size = 8, "arguments.size is 8");
  BAD(bad.part_count = 0, "arguments.part_count is 0; allowed: 1 to 32");
  BAD(bad.part_count = 33, "arguments.part_count is 33");
  BAD(bad.parts = NULL, "arguments.parts is NULL");
  BAD(bad.head_dim_v = 60, "60");
  BAD(bad.dtype = FATUNE_TF32, "arguments.dtype is tf32; allowed: fp16, bf16, fp32");
  BAD(bad.seqlen_q = 0, "seqlen_q");
  BAD(bad.o.data = NULL, "arguments.o.data is NULL");
  BAD(bad.o.stride_head = 0, "arguments.o.stride_head is 0");
  BAD(bad.lse = (float *)(void *)((char *)good.lse + 2), "allowed: a multiple of 4");
  BAD(bad.sinks = (float *)(void *)((char *)memory.sinks + 2), "arguments.sinks is");
  BAD((bad.o = memory.parts[1].o, bad.o.stride_batch += 8), "of part 1 with other strides");
  memory.parts[2].lse = NULL;
  BAD(bad.lse = NULL, "arguments.parts[2].lse");
  memory.parts[2].lse = memory.lse[2];
  memory.parts[1].o.data = NULL;
  BAD(bad.lse = NULL, "part 1");
#undef BAD
  ck_assert_int_eq(fatune_merge(NULL, &good, NULL), FATUNE_E_ARGUMENT);
  ck_assert_int_eq(fatune_merge(session, NULL, NULL), FATUNE_E_ARGUMENT);
  fatune_session_close(session);
}
END_TEST

/* Two forwards that see different keys, put together, are the forward that sees all. Where that has
 * sinks, they are added by the merge, or the first part has them. */
START_TEST(forwards_add_up) {
  const bool has_sinks = _i > 0, merge_adds = _i == 1;
  enum { D = 64, FIRST = 100, ALL = 300, SIZE = ALL * D };
  static _Alignas(16) uint16_t q[NQ * D], k[SIZE], v[SIZE], o[3][NQ * D];
  static float lse[3][NQ], sink = 4.5F; /* about as much as all keys */
  random_seed = emulator_seed();
  for (int i = 0; i < NQ * D; i++) q[i] = ft_to_dtype(FT_FP16, (below(401) - 200) / 100.0);
  for (int i = 0; i < SIZE; i++) k[i] = ft_to_dtype(FT_FP16, (below(401) - 200) / 100.0);
  for (int i = 0; i < SIZE; i++) v[i] = ft_to_dtype(FT_FP16, (below(401) - 200) / 100.0);
  fatune_session *const session = emulator_open("a100", NULL);
  fatune_plan *const plan = emulator_plan(session, "fp16 d64 nq7 nk300", NULL);
  fatune_plan *const sinking = emulator_plan(session, "fp16 d64 nq7 nk300 sinks", NULL);
  static const int from[] = {0, FIRST, 0}, keys[] = {FIRST, ALL - FIRST, ALL};
  fatune_part parts[3];
  for (int n = 0; n < 3; n++) {
    fatune_arguments run = FATUNE_ARGUMENTS_INIT;
    run.q = (fatune_tensor){q, NQ * D, D, D};
    run.k = (fatune_tensor){k + from[n] * D, SIZE, D, D};
    run.v = (fatune_tensor){v + from[n] * D, SIZE, D, D};
    run.o = parts[n].o = (fatune_tensor){&o[n][0], NQ * D, D, D};
    parts[n].lse = run.lse = lse[n];
    run.seqlen_k = keys[n];
    const bool sinks = has_sinks && (n == 2 || (n == 0 && !merge_adds));
    run.sinks = sinks ? &sink : NULL;
    ck_assert_msg(fatune_plan_run(sinks ? sinking : plan, &run, NULL) == FATUNE_OK, "%s",
                  fatune_detail());
  }
  fatune_merge_arguments arguments = FATUNE_MERGE_ARGUMENTS_INIT;
  arguments.dtype = FATUNE_FP16;
  arguments.head_dim_v = D;
  arguments.seqlen_q = NQ;
  arguments.parts = parts;
  arguments.part_count = 2;
  arguments.o = parts[0].o;
  arguments.lse = lse[0];
  arguments.sinks = merge_adds ? &sink : NULL;
  ck_assert_msg(fatune_merge(session, &arguments, NULL) == FATUNE_OK, "%s", fatune_detail());
  for (int i = 0; i < NQ; i++) ck_assert_double_eq_tol(lse[0][i], lse[2][i], 1e-5);
  for (int i = 0; i < NQ * D; i++)
    ck_assert_double_eq_tol(ft_from_dtype(FT_FP16, o[0][i]), ft_from_dtype(FT_FP16, o[2][i]), 2e-3);
  fatune_plan_free(sinking);
  fatune_plan_free(plan);
  fatune_session_close(session);
}
END_TEST

/* An argument of the first version, which ended with part_count, has no sinks. */
START_TEST(older_arguments_have_no_sinks) {
  fatune_session *const session = emulator_open("a100", NULL);
  fatune_merge_arguments arguments = random_parts(FT_FP16, 64, 2);
  memcpy(given_o, memory.o, sizeof given_o);
  memcpy(given_lse, memory.lse, sizeof given_lse);
  arguments.size = offsetof(fatune_merge_arguments, sinks);
  arguments.sinks = memory.sinks;
  ck_assert_msg(fatune_merge(session, &arguments, NULL) == FATUNE_OK, "%s", fatune_detail());
  expect_merged(FT_FP16, 64, 2, given_o, given_lse, NULL);
  fatune_session_close(session);
}
END_TEST

/* ---- bugs ---- */

static const char *const bugs[][2] = {
    {"(params.parts[n].lse[row] - most) * LOG2_E", "params.parts[n].lse[row] - most"},
    {"most + lg2(weights) * LN_2", "lg2(weights) * LN_2"},
    {"|| weight == 0.f", ""},
    {"batch_head % params.heads", "batch_head / params.heads"},
    {"most = finite_max(most);", ""},
    {"weights += weight;", "weights = weight;"},
    {"load_global_16(r[piece], from + piece * CHUNK)", "load_global_16(r[piece], from)"},
    {"store_global_16(to + piece * CHUNK, r[piece])", "store_global_16(to, r[piece])"},
    {"add_sink(lse, params, head)", "add_sink(lse, params, 0)"},
    {"share / weights", "1.f / weights"},
};

START_TEST(bugs_are_seen) {
  enum { DIM = 64, COLUMN = 5 }; /* the second piece of a lane */
  const struct planted planted = emulator_plant("merge.cu.in", bugs[_i][0], bugs[_i][1]);
  random_seed = emulator_seed();
  fatune_session *const session = emulator_open("h200", planted.folder);
  fatune_merge_arguments arguments = random_parts(FT_FP32, DIM, 3);
  arguments.sinks = memory.sinks;
  const int status = fatune_merge(session, &arguments, NULL);
  bool seen = status == FATUNE_E_DEVICE;
  for (int row = 0; row < ROWS && !seen; row++) {
    double sum = sink_of(memory.sinks, row), mean[2] = {0};
    for (int n = 0; n < 3; n++) sum += exp((double)memory.lse[n][row]);
    for (int n = 0; n < 3; n++)
      for (int c = 0; c < 2 && memory.lse[n][row] > -INFINITY; c++)
        mean[c] += exp((double)memory.lse[n][row]) / sum * memory.o[n][row * DIM + c * COLUMN];
    const double lse = memory.merged_lse[row];
    seen = !(sum > 0 ? fabs(lse - log(sum)) <= 1e-4 : lse == -INFINITY);
    for (int c = 0; c < 2; c++)
      seen |= !(fabs(memory.merged[row * DIM + c * COLUMN] - mean[c]) <= 1e-4);
  }
  ck_assert_msg(seen, "'%s' is not seen", bugs[_i][1]);
  fatune_session_close(session);
  emulator_unplant(&planted);
}
END_TEST

Suite *make_merge_suite(void) {
  Suite *const suite = suite_create("merge");
  TCase *const tests = tcase_create("all");
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(tests, parts_become_the_whole, 0, sizeof runs / sizeof *runs);
  tcase_add_test(tests, bad_arguments_are_named);
  tcase_add_loop_test(tests, forwards_add_up, 0, 3);
  tcase_add_test(tests, older_arguments_have_no_sinks);
  tcase_add_loop_test(tests, bugs_are_seen, 0, sizeof bugs / sizeof *bugs);
  suite_add_tcase(suite, tests);
  return suite;
}
