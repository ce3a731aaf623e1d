/* test_problem_explain.c: kernels with planted mistakes, on the CPU, and what is said of them.
 * in -> out: mistake + random problem -> the text names the row, the keys and the reason. */
#include "tests/suites.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "tests/fake/use_fake.h"
#include "tests/fresh_seed.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/philox.h"
#include "tuner/verify/problem_explain.h"
#include "tuner/verify/problem_parts.h"
#include "tuner/verify/problem_verify.h"

enum mistake {
  NOTHING,
  SEES_ONE_MORE,   /* causal: key i + 1, too */
  SEES_ONE_LESS,   /* causal: not key i */
  KEYS_EXCHANGED,  /* keys 0 to 7 get the weights of keys 8 to 15, and the other way round */
  BLOCK_LOST,      /* keys 32 to 47 are left out */
  ROWS_EXCHANGED,  /* rows 2n and 2n + 1 of O */
  DROPOUT_BIT,     /* the decision on one element */
  MASK_BLOCK,      /* one block that is off is seen */
  COLUMNS,         /* 8 to 15 of O hold what 0 to 7 should */
  LSE_BASE,        /* LSE in base 2 */
  KEYS_PAST_END,   /* eight more, of score 0 and V = 0 */
  NO_RESCALE,      /* keys 0 to 15 weigh 1.5 times too much */
  ROW_NOT_WRITTEN, /* row 5 of the last head */
  RUN_TO_RUN       /* another number in each run */
};

static struct fake_controls cuda;
static fatune_session *session;

struct machine {
  struct ft_problem *problem;
  enum mistake mistake;
  struct ft_row row; /* of DROPOUT_BIT and MASK_BLOCK */
  int64_t key;       /* likewise */
  int runs, runs_ever;
  int fails_at; /* run that fails; 0: none */
};

/* ---- the kernel ------------------------------------------------------------------------------ */

static const uint16_t *at(const fatune_tensor *t, int64_t b, int64_t i, int h) {
  return (const uint16_t *)t->data + b * t->stride_batch + i * t->stride_seq + h * t->stride_head;
}

static bool in_block(const struct machine *m, struct ft_row row, int64_t j) {
  const struct ft_host_problem *host = &m->problem->host;
  const struct ft_request *r = &host->request;
  const int64_t rows = (r->seqlen_q + r->mask_rows - 1) / r->mask_rows;
  const int64_t cols = (r->seqlen_k + r->mask_cols - 1) / r->mask_cols;
  const int64_t list = host->mask_batch == 1 ? 0 : row.batch * r->heads_q + row.head;
  const int64_t block_row = row.i / r->mask_rows, block_col = j / r->mask_cols;
  const bool planted = m->mistake == MASK_BLOCK && row.batch == m->row.batch &&
                       row.head == m->row.head && block_row == m->row.i / r->mask_rows &&
                       block_col == m->key / r->mask_cols;
  return planted || host->blocks[(list * rows + block_row) * cols + block_col];
}

static bool sees(const struct machine *m, struct ft_row row, int64_t j) {
  const struct ft_request *r = &m->problem->options.request;
  int64_t last = r->seqlen_k - 1;
  if (r->causal != FT_CAUSAL_NONE) {
    last = row.i + (r->causal == FT_CAUSAL_BOTTOM_RIGHT ? r->seqlen_k - r->seqlen_q : 0);
    last += (m->mistake == SEES_ONE_MORE) - (m->mistake == SEES_ONE_LESS);
  }
  if (m->mistake == BLOCK_LOST && j >= 32 && j < 48) return false;
  return j <= last && (r->mask_rows == 0 || in_block(m, row, j));
}

static bool keeps(const struct machine *m, const fatune_arguments *a, struct ft_row row,
                  int64_t j) {
  const struct ft_request *r = &m->problem->options.request;
  if (!r->dropout) return true;
  const bool planted = m->mistake == DROPOUT_BIT && row.batch == m->row.batch &&
                       row.head == m->row.head && row.i == m->row.i && j == m->key;
  return planted != ft_dropout_keeps(a->seed, a->offset, row.batch, r->heads_q, row.head, row.i, j,
                                     ft_dropout_threshold((double)a->dropout));
}

/* Unrounded weights before division; returns their sum. */
static float weigh(const struct machine *m, const fatune_arguments *a, struct ft_row row,
                   float *weights, float *max) {
  const struct ft_request *r = &m->problem->options.request;
  const int kv_head = row.head / (r->heads_q / r->heads_kv);
  float q[256], k[256], sum = 0;
  *max = -INFINITY;
  ft_widen(r->dtype, at(&a->q, row.batch, row.i, row.head), q, r->head_dim);
  for (int64_t j = 0; j < r->seqlen_k; j++) {
    const int64_t from = m->mistake == KEYS_EXCHANGED && j < 16 ? j ^ 8 : j;
    weights[j] = 0;
    ft_widen(r->dtype, at(&a->k, row.batch, from, kv_head), k, r->head_dim);
    for (int d = 0; d < r->head_dim; d++) weights[j] += q[d] * k[d];
    weights[j] = sees(m, row, j) ? weights[j] * a->scale : -INFINITY;
    *max = fmaxf(*max, weights[j]);
  }
  for (int64_t j = 0; j < r->seqlen_k; j++) {
    weights[j] = isinf(weights[j]) ? 0 : expf(weights[j] - *max);
    sum += weights[j];
    if (m->mistake == NO_RESCALE && j < 16) weights[j] *= 1.5f;
  }
  if (m->mistake == KEYS_PAST_END) sum += 8 * expf(-*max);
  return sum;
}

static void one_row(const struct machine *m, const fatune_arguments *a, struct ft_row row,
                    float *weights) {
  const struct ft_request *r = &m->problem->options.request;
  const int kv_head = row.head / (r->heads_q / r->heads_kv);
  float max, v[256], sums[256] = {0};
  const float sum = weigh(m, a, row, weights, &max);
  const float rescale = r->dropout ? (float)ft_dropout_rescale(&m->problem->host) : 1;
  for (int64_t j = 0; j < r->seqlen_k; j++) {
    if (!keeps(m, a, row, j)) continue;
    ft_widen(r->dtype, at(&a->v, row.batch, j, kv_head), v, r->head_dim_v);
    const float p = ft_round_to_dtype(r->dtype, weights[j]);
    for (int d = 0; d < r->head_dim_v; d++) sums[d] += p * v[d];
  }
  const int64_t i = m->mistake == ROWS_EXCHANGED && (row.i ^ 1) < r->seqlen_q ? row.i ^ 1 : row.i;
  uint16_t *o = (uint16_t *)(uintptr_t)at(&a->o, row.batch, i, row.head);
  for (int d = 0; d < r->head_dim_v; d++) {
    const int from = m->mistake == COLUMNS && d >= 8 && d < 16 ? d - 8 : d;
    const double noise = m->mistake == RUN_TO_RUN && row.i == 3 && d == 5 ? m->runs_ever : 0;
    if (m->mistake == ROW_NOT_WRITTEN && row.i == 5 && row.head == r->heads_q - 1) continue;
    o[d] = ft_to_dtype(r->dtype, sum > 0 ? (double)(sums[from] / sum * rescale) + noise : 0);
  }
  const float lse = sum > 0 ? max + logf(sum) : -INFINITY;
  a->lse[(row.batch * r->heads_q + row.head) * r->seqlen_q + row.i] =
      m->mistake == LSE_BASE ? lse * 1.442695f : lse;
}

static int run(void *payload, const fatune_arguments *a) {
  struct machine *m = payload;
  m->runs_ever += 1;
  if (++m->runs == m->fails_at) return ft_fail(FT_E_DEVICE, "run %d fails", m->runs);
  float *weights = malloc((size_t)a->seqlen_k * sizeof *weights);
  for (int64_t b = 0; b < a->batch; b++) {
    for (int h = 0; h < a->heads_q; h++) {
      for (int64_t i = 0; i < a->seqlen_q; i++) {
        one_row(m, a, (struct ft_row){.batch = b, .head = h, .i = i}, weights);
      }
    }
  }
  free(weights);
  return FT_OK;
}

/* ---- the explanation ------------------------------------------------------------------------- */

static struct machine machine;
static struct ft_text said;
static unsigned long long seed;

static void open_problem(const char *request, enum ft_layout layout, enum mistake mistake) {
  cuda = use_fake_cuda();
  const fatune_session_options session_options = memory_only_options();
  ck_assert_status(fatune_session_open(&session, &session_options), FT_OK);
  seed = fresh_seed();
  struct ft_problem_options options = {
      .layout = layout, .seed = seed, .dropout = 0.3, .keep_host = true, .want_lse = true};
  ck_assert_status(ft_request_parse(&options.request, request), FT_OK);
  machine = (struct machine){.mistake = mistake};
  ck_assert_status(ft_problem_make(&machine.problem, session, &options), FT_OK);
}

static void verify(bool right) {
  struct ft_comparison comparison;
  ck_assert_status(ft_problem_poison(machine.problem, NULL), FT_OK);
  ck_assert_status(run(&machine, ft_problem_arguments(machine.problem)), FT_OK);
  ck_assert_status(ft_problem_verify(machine.problem, 1 << 20, 2, &comparison), FT_OK);
  ck_assert_msg((comparison.error_ratio <= 1) == right, "seed %llu: %g, %s", seed,
                comparison.error_ratio, comparison.worst);
}

static void explain(void) {
  verify(false);
  machine.runs = 0;
  ft_text_clear(&said);
  ck_assert_status(ft_problem_explain(machine.problem, run, &machine, &said), FT_OK);
  ck_assert_int_le(machine.runs, FT_EXPLAIN_RUNS);
  if (getenv("FATUNE_TEST_SHOW")) fputs(said.data, stderr);
}

/* V is as it was: what was wrong only in O is right when the mistake is mended. */
static void close_problem(void) {
  machine.mistake = NOTHING;
  verify(true);
  ft_problem_free(machine.problem);
  ft_text_free(&said);
  fatune_session_close(session);
  ck_assert_int_eq(cuda.live(), 0);
}

__attribute__((format(printf, 1, 2))) static void expect(const char *format, ...) {
  char part[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(part, sizeof part, format, arguments);
  va_end(arguments);
  ck_assert_msg(strstr(said.data, part), "seed %llu: \"%s\" lacks \"%s\"", seed, said.data, part);
}

/* The number behind these words. */
static long long told_number(const char *text, const char *words) {
  const char *const at = strstr(text, words);
  ck_assert_msg(at, "seed %llu: \"%s\" lacks \"%s\"", seed, text, words);
  return strtoll(at + strlen(words), NULL, 10);
}

static struct ft_row told_row(void) {
  const int head = (int)told_number(said.data, ", head ");
  return (struct ft_row){told_number(said.data, "O[batch "), head,
                         told_number(said.data, ", row ")};
}

static void expect_weights_of(struct ft_row row) {
  expect("Weights: row %lld of batch %lld, head %d gives ", (long long)row.i, (long long)row.batch,
         row.head);
}

static const char *const causal_requests[] = {
    "forward bf16 d64 nq40 nk40 b2 hq4 hkv2 causal",
    "forward fp16 d64 dv24 nq40 nk51 b2 hq2 hkv1 causal",
    "forward bf16 d32 dv16 nq70 nk50 hq2 hkv2 causal=top-left",
};

START_TEST(a_mask_edge_too_far) {
  open_problem(causal_requests[_i], (enum ft_layout)_i, SEES_ONE_MORE);
  explain();
  const struct ft_row row = told_row();
  const int64_t end = ft_row_keys(&machine.problem->host, row).end;
  expect_weights_of(row);
  expect("gives key %lld a weight of ", (long long)end);
  expect("does not see it (it sees keys 0 to %lld).\n", (long long)end - 1);
  close_problem();
}
END_TEST

START_TEST(a_mask_edge_too_near) {
  open_problem(causal_requests[_i], (enum ft_layout)_i, SEES_ONE_LESS);
  explain();
  const struct ft_row row = told_row();
  const int64_t end = ft_row_keys(&machine.problem->host, row).end;
  if (end > 1) {
    expect_weights_of(row);
    expect("gives key %lld no weight, expected ", (long long)end - 1);
    ck_assert_msg(!strstr(said.data, "are wrong."), "seed %llu: %s", seed, said.data);
  } else {
    expect("All of this row is 0.");
  }
  close_problem();
}
END_TEST

static const char *const plain_requests[] = {
    "forward bf16 d64 nq33 nk65 b2 hq4 hkv2",
    "forward fp16 d72 dv40 nq20 nk130 b2 hq2 hkv1",
    "forward bf16 d32 dv16 nq20 nk64 hq2",
};

START_TEST(keys_exchanged) {
  open_problem(plain_requests[_i], (enum ft_layout)_i, KEYS_EXCHANGED);
  explain();
  expect_weights_of(told_row());
  /* Where weights are alike, a few more or less seem to be exchanged. */
  const long long first = told_number(said.data, " have the weights of keys ");
  const long long last = told_number(strstr(said.data, " have the weights of keys "), " to ");
  ck_assert_msg(first >= 8 && first <= 11 && last >= 12 && last <= 19, "seed %llu: %s", seed,
                said.data);
  close_problem();
}
END_TEST

START_TEST(a_block_of_keys_lost) {
  open_problem(plain_requests[_i], (enum ft_layout)_i, BLOCK_LOST);
  explain();
  expect_weights_of(told_row());
  expect("gives key 32 no weight, expected 0.");
  expect(": keys 32 to 47 are missing.\n");
  close_problem();
}
END_TEST

START_TEST(rows_exchanged) {
  open_problem(plain_requests[_i], (enum ft_layout)_i, ROWS_EXCHANGED);
  explain();
  const struct ft_row row = told_row();
  expect("This row holds what O[batch %lld, row %lld, head %d] should be.\n", (long long)row.batch,
         (long long)(row.i ^ 1), row.head);
  expect("These are the weights of that other row, too.\n");
  close_problem();
}
END_TEST

/* The key that the row gives most weight. */
static int64_t heaviest_key(struct ft_row row) {
  float weights[256], max;
  int64_t heaviest = 0;
  weigh(&machine, ft_problem_arguments(machine.problem), row, weights, &max);
  for (int64_t j = 0; j < machine.problem->options.request.seqlen_k; j++) {
    if (weights[j] > weights[heaviest]) heaviest = j;
  }
  return heaviest;
}

START_TEST(one_dropout_bit) {
  open_problem(_i % 2 ? "forward fp16 d64 nq33 nk65 b2 hq4 hkv2 dropout"
                      : "forward bf16 d64 dv16 nq33 nk25 b2 hq2 dropout causal=top-left",
               FT_LAYOUT_BSHD, DROPOUT_BIT);
  machine.row = (struct ft_row){.batch = 1, .head = 1, .i = (int64_t)(seed % 33)};
  machine.key = heaviest_key(machine.row);
  const fatune_arguments *a = ft_problem_arguments(machine.problem);
  const bool kept = !keeps(&machine, a, machine.row, machine.key);
  explain();
  expect("O[batch 1, row %lld, head 1, column ", (long long)machine.row.i);
  expect("(1 of %d rows checked is wrong)", _i % 2 ? 33 * 8 : 33 * 4);
  expect_weights_of(machine.row);
  expect(kept ? "gives key %lld no weight, expected " : "gives key %lld a weight of ",
         (long long)machine.key);
  expect(kept ? "(dropout keeps it).\n" : ", but dropout drops it.\n");
  close_problem();
}
END_TEST

START_TEST(a_mask_block_that_is_off) {
  open_problem("forward fp16 d64 dv32 nq70 nk90 b2 hq2 hkv1 mask=16x32@0.5", FT_LAYOUT_PADDED,
               MASK_BLOCK);
  const uint8_t *blocks = machine.problem->blocks; /* [2][2][5][3] */
  int off = 3 * 3;                                 /* list 3 on: 1 to 2 see nothing */
  while (off < 59 && blocks[off]) off++;
  ck_assert(!blocks[off]); /* the chance that none is off is 2^-50 */
  machine.row = (struct ft_row){.batch = off / 30, .head = off / 15 % 2, .i = off / 3 % 5 * 16};
  machine.key = off % 3 * 32;
  explain();
  const struct ft_row row = told_row();
  ck_assert_int_eq(row.i / 16, off / 3 % 5);
  expect_weights_of(row);
  expect("gives key %lld a weight of", (long long)machine.key);
  expect(
      "does not see it (block row %d, column %d of the mask is off), and so to keys %lld to %lld",
      off / 3 % 5, off % 3, (long long)machine.key,
      (long long)(machine.key + 31 < 89 ? machine.key + 31 : 89));
  close_problem();
}
END_TEST

START_TEST(columns_of_o) {
  open_problem(plain_requests[_i], (enum ft_layout)_i, COLUMNS);
  explain();
  expect("of this row columns ");
  expect("The weights are right, but do not reach ");
  expect(" of O: the fault is in P V or in writing O.\n");
  ck_assert_msg(!strstr(said.data, "column 16"), "seed %llu: %s", seed, said.data);
  close_problem();
}
END_TEST

START_TEST(lse_alone) {
  open_problem(plain_requests[_i], (enum ft_layout)_i, LSE_BASE);
  explain();
  expect("LSE[batch ");
  expect("O is right: the fault is in LSE alone");
  ck_assert_int_eq(machine.runs, 0);
  close_problem();
}
END_TEST

START_TEST(keys_past_the_end) {
  open_problem(_i ? "forward fp16 d64 nq33 nk20 hq2" : "forward bf16 d64 dv16 nq33 nk20 hq2",
               FT_LAYOUT_BHSD, KEYS_PAST_END);
  explain();
  const struct ft_row row = told_row();
  ck_assert(row.batch == 0 && row.i < 33);
  expect_weights_of(row);
  expect("gives all keys 0.");
  expect(" times the right sum.\n");
  close_problem();
}
END_TEST

START_TEST(a_missing_rescale) {
  open_problem(plain_requests[_i], (enum ft_layout)_i, NO_RESCALE);
  explain();
  expect_weights_of(told_row());
  expect("; keys 0 to 15 are wrong, all by the factor 1.");
  close_problem();
}
END_TEST

START_TEST(a_row_not_written) {
  open_problem(plain_requests[_i], (enum ft_layout)_i, ROW_NOT_WRITTEN);
  explain();
  expect("O[batch 0, row 5, head %d, column 0] was not written, expected",
         machine.problem->options.request.heads_q - 1);
  ck_assert_int_eq(machine.runs, 0);
  close_problem();
}
END_TEST

START_TEST(another_result_in_every_run) {
  open_problem(plain_requests[_i], (enum ft_layout)_i, RUN_TO_RUN);
  explain();
  expect("row 3, head");
  expect("; of this row column 5 alone is wrong");
  expect("A second run gives other numbers (column 5: ");
  close_problem();
}
END_TEST

/* More windows of keys than runs: the search goes where the sums are off. */
START_TEST(many_keys) {
  open_problem(_i ? "forward fp16 d16 dv16 nq3 nk4000 causal=top-left"
                  : "forward fp16 d16 dv16 nq3 nk4000",
               FT_LAYOUT_BSHD, _i ? SEES_ONE_MORE : BLOCK_LOST);
  explain();
  const struct ft_row row = told_row();
  expect_weights_of(row);
  if (_i) {
    expect("gives key %lld a weight of ", (long long)row.i + 1);
  } else {
    expect(": keys 32 to 47 are missing.\n");
  }
  ck_assert_int_gt(machine.runs, 3);
  close_problem();
}
END_TEST

/* No weight of a right kernel is found fault with, whatever the format and its rounding. */
START_TEST(right_weights_are_right) {
  static const char *const requests[] = {
      "forward bf16 d64 dv32 nq64 nk100 b2 hq4 hkv2", "forward fp16 d16 dv16 nq64 nk300 hq4",
      "forward bf16 d128 nq64 nk64 hq4 dropout causal", "forward fp16 d256 nq64 nk64 hq4 dropout"};
  open_problem(requests[_i], FT_LAYOUT_BSHD, NOTHING);
  verify(true);
  ck_assert_status(ft_problem_explain(machine.problem, run, &machine, &said), FT_OK);
  ck_assert_str_eq(said.data, "The result is right.\n");
  machine.problem->verdict.error_ratio = 2; /* as if it were not */
  for (int n = 0; n < 8; n++) {
    machine.problem->verdict.row = machine.problem->rows[(n * 131 + (int)(seed % 131)) % 256];
    ft_text_clear(&said);
    ck_assert_status(ft_problem_explain(machine.problem, run, &machine, &said), FT_OK);
    expect("The weights of all keys are right to");
    expect(": the fault is in P V or in writing O.\n");
  }
  close_problem();
}
END_TEST

START_TEST(failures_are_passed_on) {
  open_problem(plain_requests[0], FT_LAYOUT_PADDED, BLOCK_LOST);
  ck_assert_status(ft_problem_explain(machine.problem, run, &machine, &said), FT_E_ARGUMENT);
  ck_assert_detail("not verified");
  for (int fails_at = 1; fails_at <= 5; fails_at++) {
    machine.fails_at = 0;
    verify(false);
    machine.runs = 0;
    machine.fails_at = fails_at; /* of: as it is, in two windows of keys, one key again */
    const int status = ft_problem_explain(machine.problem, run, &machine, &said);
    ck_assert_int_eq(status, fails_at <= 4 ? FT_E_DEVICE : FT_OK);
  }
  machine.fails_at = 0;
  close_problem();
}
END_TEST

Suite *make_problem_explain_suite(void) {
  Suite *suite = suite_create("problem_explain");
  TCase *tcase = tcase_create("mistakes");
  tcase_set_timeout(tcase, 60);
  tcase_add_loop_test(tcase, a_mask_edge_too_far, 0, 3);
  tcase_add_loop_test(tcase, a_mask_edge_too_near, 0, 3);
  tcase_add_loop_test(tcase, keys_exchanged, 0, 3);
  tcase_add_loop_test(tcase, a_block_of_keys_lost, 0, 3);
  tcase_add_loop_test(tcase, rows_exchanged, 0, 3);
  tcase_add_loop_test(tcase, one_dropout_bit, 0, 4);
  tcase_add_test(tcase, a_mask_block_that_is_off);
  tcase_add_loop_test(tcase, columns_of_o, 0, 3);
  tcase_add_loop_test(tcase, lse_alone, 0, 3);
  tcase_add_loop_test(tcase, keys_past_the_end, 0, 2);
  tcase_add_loop_test(tcase, a_missing_rescale, 0, 3);
  tcase_add_loop_test(tcase, a_row_not_written, 0, 3);
  tcase_add_loop_test(tcase, another_result_in_every_run, 0, 3);
  tcase_add_loop_test(tcase, many_keys, 0, 2);
  suite_add_tcase(suite, tcase);
  TCase *soundness = tcase_create("soundness");
  tcase_set_timeout(soundness, 60);
  tcase_add_loop_test(soundness, right_weights_are_right, 0, 4);
  tcase_add_test(soundness, failures_are_passed_on);
  suite_add_tcase(suite, soundness);
  return suite;
}
