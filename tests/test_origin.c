/* test_origin.c: runs that are parts of a larger problem.
 * in -> out: parts of heads, queries and keys with their origins, on emulated GPUs -> what the
 * whole gives there, of dropout and of what is seen, too; bad origins -> errors by name. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "generator/families/mma_forward.h"
#include "tests/emulator_lab.h"
#include "tests/launch_lab.h"
#include "tests/suites.h"
#include "tuner/verify/halves.h"

/* ---- on emulated GPUs ---- */

enum { BATCH = 2, HEADS = 4, HEADS_KV = 2, LENGTH = 200, DIM_MOST = 128 };
enum { ELEMENTS = BATCH * HEADS * LENGTH * DIM_MOST, ROWS = BATCH * HEADS * LENGTH };

/* The part has batch entry 1, query heads 2 and 3 with kv head 1, queries from FIRST_QUERY on, and
 * keys in two calls, before and after SECOND_KEY. */
enum { FIRST_QUERY = 64, SECOND_KEY = 128, QUERIES = LENGTH - FIRST_QUERY, PART_HEADS = 2 };

typedef uint16_t elements[ELEMENTS];
static struct {
  _Alignas(256) elements q, k, v, o, dout, dq, dk, dv;
  elements part_o[2], part_dq[2], part_dk, part_dv;
  float lse[ROWS], part_lse[2][PART_HEADS * QUERIES], own_lse[PART_HEADS * QUERIES];
  _Alignas(256) unsigned char workspace[64 << 20];
} memory;

static void fill(uint16_t *values) {
  for (int i = 0; i < ELEMENTS; i++)
    ft_set_number(FT_FP16, values, i, (below(2001) - 1000) / 1000.0);
}

/* [batch, heads, rows, dim], from an element on. */
static fatune_tensor tensor_from(uint16_t *values, int heads, int dim, int batch, int head,
                                 int row) {
  const int64_t of_head = (int64_t)LENGTH * dim, of_batch = heads * of_head;
  return (fatune_tensor){values + batch * of_batch + head * of_head + (int64_t)row * dim, of_batch,
                         dim, of_head};
}

static fatune_arguments whole_arguments(int dim) {
  fatune_arguments whole = FATUNE_ARGUMENTS_INIT;
  whole.q = tensor_from(memory.q, HEADS, dim, 0, 0, 0);
  whole.k = tensor_from(memory.k, HEADS_KV, dim, 0, 0, 0);
  whole.v = tensor_from(memory.v, HEADS_KV, dim, 0, 0, 0);
  whole.o = tensor_from(memory.o, HEADS, dim, 0, 0, 0);
  whole.dout = tensor_from(memory.dout, HEADS, dim, 0, 0, 0);
  whole.dq = tensor_from(memory.dq, HEADS, dim, 0, 0, 0);
  whole.dk = tensor_from(memory.dk, HEADS_KV, dim, 0, 0, 0);
  whole.dv = tensor_from(memory.dv, HEADS_KV, dim, 0, 0, 0);
  whole.lse = memory.lse;
  whole.dropout = 0.4f;
  whole.seed = 77;
  whole.workspace = memory.workspace;
  return whole;
}

/* The part with the n-th keys. */
static fatune_arguments part_arguments(const fatune_arguments *whole, int dim, int n) {
  const int first_key = n ? SECOND_KEY : 0;
  fatune_arguments part = *whole;
  part.batch = 1;
  part.heads_q = PART_HEADS;
  part.heads_kv = 1;
  part.seqlen_q = QUERIES;
  part.seqlen_k = n ? LENGTH - SECOND_KEY : SECOND_KEY;
  part.q = tensor_from(memory.q, HEADS, dim, 1, 2, FIRST_QUERY);
  part.dout = tensor_from(memory.dout, HEADS, dim, 1, 2, FIRST_QUERY);
  part.k = tensor_from(memory.k, HEADS_KV, dim, 1, 1, first_key);
  part.v = tensor_from(memory.v, HEADS_KV, dim, 1, 1, first_key);
  part.o = tensor_from(memory.part_o[n], HEADS, dim, 1, 2, FIRST_QUERY);
  part.dq = tensor_from(memory.part_dq[n], HEADS, dim, 1, 2, FIRST_QUERY);
  part.dk = tensor_from(memory.part_dk, HEADS_KV, dim, 1, 1, first_key);
  part.dv = tensor_from(memory.part_dv, HEADS_KV, dim, 1, 1, first_key);
  part.lse = memory.part_lse[n];
  part.origin = (fatune_origin){
      .batch = 1, .head = 2, .heads = HEADS, .query = FIRST_QUERY, .key = first_key};
  return part;
}

static void run_plan(fatune_plan *of, const fatune_arguments *arguments) {
  size_t bytes;
  ck_assert_msg(fatune_plan_workspace_for(of, arguments, &bytes) == FATUNE_OK, "%s",
                fatune_detail());
  ck_assert_uint_le(bytes, sizeof memory.workspace);
  ck_assert_msg(fatune_plan_run(of, arguments, NULL) == FATUNE_OK, "%s", fatune_detail());
}

/* What a tensor has of the part, beside the sum of one or two others; at most so far off. */
static void expect_close(const char *name, const uint16_t *whole, const uint16_t *a,
                         const uint16_t *b, int heads, int head, int rows, int first, int dim) {
  const int own = heads == HEADS ? PART_HEADS : 1;
  for (int h = head; h < head + own; h++)
    for (int row = first; row < first + rows; row++)
      for (int c = 0; c < dim; c++) {
        const int64_t i = (((int64_t)heads + h) * LENGTH + row) * dim + c;
        const double sum = ft_number(FT_FP16, a, i) + (b ? ft_number(FT_FP16, b, i) : 0);
        const double is = ft_number(FT_FP16, whole, i);
        ck_assert_msg(fabs(is - sum) <= 4e-3 * (1 + fabs(is)),
                      "%s of head %d, row %d, column %d: %g in the whole, %g of parts (seed %llu)",
                      name, h, row, c, is, sum, (unsigned long long)random_seed);
      }
}

static void merge_parts(fatune_session *session, int dim) {
  const fatune_part parts[] = {
      {tensor_from(memory.part_o[0], HEADS, dim, 1, 2, FIRST_QUERY), memory.part_lse[0]},
      {tensor_from(memory.part_o[1], HEADS, dim, 1, 2, FIRST_QUERY), memory.part_lse[1]}};
  fatune_merge_arguments arguments = FATUNE_MERGE_ARGUMENTS_INIT;
  arguments.dtype = FATUNE_FP16;
  arguments.head_dim_v = dim;
  arguments.heads_q = PART_HEADS;
  arguments.seqlen_q = QUERIES;
  arguments.o = parts[0].o;
  arguments.lse = memory.own_lse;
  arguments.parts = parts;
  arguments.part_count = 2;
  ck_assert_msg(fatune_merge(session, &arguments, NULL) == FATUNE_OK, "%s", fatune_detail());
  for (int h = 0; h < PART_HEADS; h++)
    for (int i = 0; i < QUERIES; i++)
      ck_assert_float_eq_tol(memory.own_lse[h * QUERIES + i],
                             memory.lse[(HEADS + 2 + h) * LENGTH + FIRST_QUERY + i], 1e-3f);
}

static const struct {
  const char *gpu, *words, *forward, *backward;
  int dim, left, right;
} wholes[] = {
    {"a100", "causal=top-left", NULL, NULL, 16, -1, -1},
    {"h200", "window=top-left", NULL, NULL, 64, 70, 20},
    {"h200", "causal=top-left window=top-left",
     "wgmma_forward block_m=128 block_n=64 stages=2 q_stages=1 pack_gqa=1", NULL, 64, 100, -1},
    {"a100", "window=top-left", NULL, NULL, 32, 10, -1},
    {"h200", "", NULL, NULL, 128, -1, -1},
};

START_TEST(parts_give_what_the_whole_gives) {
  const int dim = wholes[_i].dim;
  char forward[128], backward[160];
  snprintf(forward, sizeof forward, "fp16 d%d hq%d hkv%d b%d nq%d %s dropout", dim, HEADS, HEADS_KV,
           BATCH, LENGTH, wholes[_i].words);
  snprintf(backward, sizeof backward, "backward %s", forward);
  random_seed = emulator_seed();
  fatune_session *const session = emulator_open(wholes[_i].gpu, NULL);
  fatune_plan *const plan_forward = emulator_plan(session, forward, wholes[_i].forward);
  fatune_plan *const plan_back = emulator_plan(session, backward, wholes[_i].backward);
  memset(&memory, 0xff, sizeof memory);
  fill(memory.q), fill(memory.k), fill(memory.v), fill(memory.dout);
  fatune_arguments whole = whole_arguments(dim);
  whole.window_left = wholes[_i].left;
  whole.window_right = wholes[_i].right;
  run_plan(plan_forward, &whole);
  run_plan(plan_back, &whole);
  fatune_arguments parts[2];
  for (int n = 0; n < 2; n++) {
    parts[n] = part_arguments(&whole, dim, n);
    run_plan(plan_forward, &parts[n]);
  }
  merge_parts(session, dim);
  expect_close("O", memory.o, memory.part_o[0], NULL, HEADS, 2, QUERIES, FIRST_QUERY, dim);
  for (int n = 0; n < 2; n++) { /* with O and LSE of all keys */
    parts[n].o = tensor_from(memory.o, HEADS, dim, 1, 2, FIRST_QUERY);
    parts[n].lse = memory.own_lse;
    run_plan(plan_back, &parts[n]);
  }
  expect_close("dQ", memory.dq, memory.part_dq[0], memory.part_dq[1], HEADS, 2, QUERIES,
               FIRST_QUERY, dim);
  fatune_plan_free(plan_forward);
  fatune_plan_free(plan_back);
  fatune_session_close(session);
}
END_TEST

/* All queries, so that dK and dV are whole. */
START_TEST(gradients_of_keys_are_those_of_the_whole) {
  enum { DIM = 32 };
  random_seed = emulator_seed();
  fatune_session *const session = emulator_open("h200", NULL);
  fatune_plan *const plan_forward =
      emulator_plan(session, "fp16 d32 hq4 hkv2 b2 nq200 causal=top-left dropout", NULL);
  fatune_plan *const plan_back =
      emulator_plan(session, "backward fp16 d32 hq4 hkv2 b2 nq200 causal=top-left dropout", NULL);
  memset(&memory, 0xff, sizeof memory);
  fill(memory.q), fill(memory.k), fill(memory.v), fill(memory.dout);
  const fatune_arguments whole = whole_arguments(DIM);
  run_plan(plan_forward, &whole);
  run_plan(plan_back, &whole);
  fatune_arguments part = part_arguments(&whole, DIM, 1);
  part.seqlen_q = LENGTH;
  part.q = tensor_from(memory.q, HEADS, DIM, 1, 2, 0);
  part.o = tensor_from(memory.o, HEADS, DIM, 1, 2, 0);
  part.dout = tensor_from(memory.dout, HEADS, DIM, 1, 2, 0);
  part.dq = tensor_from(memory.part_dq[0], HEADS, DIM, 1, 2, 0);
  part.lse = memory.lse + (HEADS + 2) * LENGTH;
  part.origin.query = 0;
  run_plan(plan_back, &part);
  expect_close("dK", memory.dk, memory.part_dk, NULL, HEADS_KV, 1, LENGTH - SECOND_KEY, SECOND_KEY,
               DIM);
  expect_close("dV", memory.dv, memory.part_dv, NULL, HEADS_KV, 1, LENGTH - SECOND_KEY, SECOND_KEY,
               DIM);
  fatune_plan_free(plan_forward);
  fatune_plan_free(plan_back);
  fatune_session_close(session);
}
END_TEST

/* ---- as kernels read them ---- */

static void set_up(void) {
  ck_assert_int_eq(ft_request_parse(&request, "fp16 d64 hq8 hkv2 nq300 dropout causal=top-left"),
                   FT_OK);
  config = FT_CONFIG(mma_forward, .block_m = 128, .block_n = 64, .warps = 4, .stages = 2);
  arch = (struct ft_arch){.sm = 80, .sm_count = 108, .l2_bytes = 40 << 20};
  good = (fatune_arguments)FATUNE_ARGUMENTS_INIT;
  good.q = good.k = good.v = (fatune_tensor){at(0x10000000), 300 * 8 * 64, 8 * 64, 64};
  good.o = (fatune_tensor){at(0x40000000), 300 * 8 * 64, 8 * 64, 64};
}

static const struct ft_forward_params *params(void) {
  return &launch.argument.forward;
}

START_TEST(the_diagonal_moves_with_the_origins) {
  ck_assert_status(prepare(&good), FT_OK);
  ck_assert_int_eq(params()->visibility.last_diagonal, 0);
  fatune_arguments part = good;
  part.origin = (fatune_origin){.batch = 3, .head = 4, .heads = 24, .query = 128, .key = 192};
  ck_assert_status(prepare(&part), FT_OK);
  ck_assert_int_eq(params()->visibility.last_diagonal, -64);
  ck_assert_int_eq(params()->dropout.heads, 24);
  ck_assert_int_eq(params()->dropout.first_head, 3 * 24 + 4);
  ck_assert_int_eq(params()->dropout.first_query, 128);
  ck_assert_int_eq(params()->dropout.first_key, 192);
  part.origin.key = INT32_MAX / 64 * 64; /* no key is seen */
  ck_assert_status(prepare(&part), FT_OK);
  ck_assert_int_eq(params()->visibility.last_diagonal, -300);
  part.origin = (fatune_origin){.query = INT32_MAX / 64 * 64}; /* all are */
  ck_assert_status(prepare(&part), FT_OK);
  ck_assert_int_eq(params()->visibility.last_diagonal, 300);
  request.causal = FT_CAUSAL_BOTTOM_RIGHT; /* counts from the run's last ones */
  ck_assert_status(prepare(&part), FT_OK);
  ck_assert_int_eq(params()->visibility.last_diagonal, 0);
}
END_TEST

START_TEST(bad_origins_are_named) {
  BAD(origin.batch, -1, "arguments.origin.batch is -1", "0 .. 2^31 - 1");
  BAD(origin.query, 32, "arguments.origin.query is 32", "multiples of 64");
  BAD(origin.key, (int64_t)1 << 40, "arguments.origin.key", "0 .. 2^31 - 1");
  BAD(origin.heads, 7, "arguments.origin.heads is 7", "origin.head + heads_q, 8");
  BAD(origin.head, 1, "arguments.origin.heads is 8", "origin.head + heads_q, 9");
  BAD(origin.batch, INT32_MAX, "arguments.origin.batch is 2147483647", "2^31 - 1");
  request.dropout = 0;
  fatune_arguments odd = good;
  odd.origin.query = 33;
  ck_assert_status(prepare(&odd), FT_OK);
}
END_TEST

Suite *make_origin_suite(void) {
  Suite *const suite = suite_create("origin");
  TCase *const runs = tcase_create("runs");
  tcase_set_timeout(runs, 120);
  tcase_add_loop_test(runs, parts_give_what_the_whole_gives, 0,
                      (int)(sizeof wholes / sizeof *wholes));
  tcase_add_test(runs, gradients_of_keys_are_those_of_the_whole);
  suite_add_tcase(suite, runs);
  TCase *const launches = tcase_create("launches");
  tcase_add_checked_fixture(launches, set_up, NULL);
  tcase_add_test(launches, the_diagonal_moves_with_the_origins);
  tcase_add_test(launches, bad_origins_are_named);
  suite_add_tcase(suite, launches);
  return suite;
}
