/* test_problem.c: problems and their verdicts on the fake GPU, whose memory this process can write.
 * in -> out: right outputs and each kind of damage, failing driver calls -> Check suite. */
#include "generator/status.h"
#include "runtime/session.h"
#include "tests/fresh_seed.h"
#include "tests/generator_cases.h"
#include "tests/problem_lab.h"
#include "tests/suites.h"
#include "tuner/search/measure_cold.h"
#include "tuner/search/tune.h"
#include "tuner/verify/halves.h"
#include "tuner/verify/problem.h"
#include "tuner/verify/problem_verify.h"
#include "tuner/verify/random_inputs.h"
#include "tuner/verify/sequences.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- a right kernel, on the CPU ---- */

/* Reads its inputs where a kernel would: through the addresses and strides of the arguments. */
static uint16_t *dense_copy(const fatune_tensor *tensor, int64_t batch, int64_t rows, int heads,
                            int dim) {
  uint16_t *dense = malloc((size_t)(batch * rows * heads * dim) * sizeof *dense), *to = dense;
  for (int64_t b = 0; b < batch; b++) {
    for (int64_t row = 0; row < rows; row++) {
      for (int h = 0; h < heads; h++, to += dim) {
        const uint16_t *from = (const uint16_t *)tensor->data + b * tensor->stride_batch +
                               row * tensor->stride_seq + h * tensor->stride_head;
        memcpy(to, from, (size_t)dim * sizeof *to);
      }
    }
  }
  return dense;
}

static uint16_t *o_row(const fatune_arguments *a, int64_t b, int h, int64_t i) {
  return (uint16_t *)a->o.data + b * a->o.stride_batch + i * a->o.stride_seq + h * a->o.stride_head;
}

static void run_on_cpu(const struct ft_problem *problem, const struct ft_request *request) {
  const fatune_arguments *a = ft_problem_arguments(problem);
  uint16_t *q =
      dense_copy(&a->q, request->batch, request->seqlen_q, request->heads_q, request->head_dim);
  uint16_t *k =
      dense_copy(&a->k, request->batch, request->seqlen_k, request->heads_kv, request->head_dim);
  uint16_t *v =
      dense_copy(&a->v, request->batch, request->seqlen_k, request->heads_kv, request->head_dim_v);
  const struct ft_host_problem host = {.request = *request,
                                       .q = q,
                                       .k = k,
                                       .v = v,
                                       .blocks = problem->blocks,
                                       .mask_batch = problem->host.mask_batch,
                                       .mask_heads = problem->host.mask_heads,
                                       .scale = (double)a->scale,
                                       .dropout = (double)a->dropout,
                                       .seed = a->seed,
                                       .offset = a->offset};
  for (int64_t b = 0; b < request->batch; b++) {
    for (int h = 0; h < request->heads_q; h++) {
      for (int64_t i = 0; i < request->seqlen_q; i++) {
        double o[256], lse;
        ft_plain_row(&host, (struct ft_row){.batch = b, .head = h, .i = i}, o, &lse);
        for (int d = 0; d < request->head_dim_v; d++)
          o_row(a, b, h, i)[d] = ft_to_dtype(request->dtype, o[d]);
        a->lse[(b * request->heads_q + h) * request->seqlen_q + i] = (float)lse;
      }
    }
  }
  free(q);
  free(k);
  free(v);
}

/* ---- tests ---- */

static const char *const requests[] = {
    "forward bf16 d64 nq33 nk65 b2 hq4 hkv2",
    "forward fp16 d72 dv40 nq40 nk23 b2 hq2 hkv1 causal",
    "forward bf16 d64 nq70 nk90 b2 hq2 hkv1 dropout causal=top-left",
    "forward fp16 d128 nq70 nk90 b2 hq2 hkv1 mask=16x32@0.5",
};
enum { REQUESTS = sizeof requests / sizeof requests[0], LAYOUTS = 3 };

START_TEST(right_outputs_pass_in_every_layout) {
  const struct fake_lab lab = fake_lab_open();
  struct ft_problem_options options =
      problem_options(requests[_i / LAYOUTS], (enum ft_layout)(_i % LAYOUTS));
  options.broadcast_mask = _i % 2;
  struct ft_problem *problem = problem_make(&lab, &options);
  ck_assert_wrong(problem, "not written");
  run_on_cpu(problem, &options.request);
  const struct ft_comparison some = verdict(problem, 20), all = verdict(problem, 1 << 20);
  ck_assert_msg(some.error_ratio <= 0.5 && all.error_ratio <= 0.5, "seed %llu: %s",
                (unsigned long long)options.seed, all.worst);
  ck_assert_double_gt(all.o_error, 0);
  ck_assert_status(ft_problem_poison(problem, NULL), FT_OK);
  ck_assert_wrong(problem, "not written");
  ft_problem_free(problem);
  fake_lab_close(&lab);
}
END_TEST

START_TEST(damage_is_named) {
  const struct fake_lab lab = fake_lab_open();
  const struct ft_problem_options options = problem_options(requests[0], FT_LAYOUT_PADDED);
  struct ft_problem *problem = problem_make(&lab, &options);
  const fatune_arguments *a = ft_problem_arguments(problem);
  run_on_cpu(problem, &options.request);
  uint16_t *o = o_row(a, 1, 3, 32), *begin = a->o.data;
  const int64_t span = 2 * a->o.stride_batch;

  uint16_t kept = o[63];
  o[63] = 0xFFFF;
  ck_assert_wrong(problem, "O of batch 1 head 3 row 32");
  o[63] = kept;
  kept = o[64]; /* the gap behind the row */
  ck_assert_int_eq(kept, 0xFFFF);
  o[64] = 0;
  ck_assert_wrong(problem, "1 elements into the gaps");
  o[64] = kept;
  kept = begin[-1];
  begin[-1] = 0;
  ck_assert_wrong(problem, "before the begin of O");
  begin[-1] = kept;
  kept = begin[span + 7];
  begin[span + 7] = 0;
  ck_assert_wrong(problem, "past the end of O");
  begin[span + 7] = kept;

  const int last = 2 * 4 * 33 - 1;
  const float lse = a->lse[last];
  a->lse[last] = NAN;
  ck_assert_wrong(problem, "LSE of batch 1 head 3 row 32");
  a->lse[last] = lse;
  const float fence = a->lse[last + 1];
  a->lse[last + 1] = 0;
  ck_assert_wrong(problem, "past the end of LSE");
  a->lse[last + 1] = fence;
  a->lse[0] += 0.01f; /* the first and the last row are always compared */
  ck_assert_wrong(problem, "LSE of batch 0 head 0 row 0");
  a->lse[0] -= 0.01f;
  ck_assert_double_le(verdict(problem, 50).error_ratio, 1);
  ft_problem_free(problem);
  fake_lab_close(&lab);
}
END_TEST

struct flickering {
  const struct ft_problem *problem;
  const struct ft_request *request;
  int runs, changed; /* 0: none; else O or LSE of the second run, by a bit */
};

static int run_flickering(void *payload, const fatune_arguments *arguments) {
  struct flickering *const it = payload;
  run_on_cpu(it->problem, it->request);
  const bool second = ++it->runs == 2;
  if (second && it->changed == 1) o_row(arguments, 1, 2, 7)[3] ^= 1;
  if (second && it->changed == 2) arguments->lse[40] = nextafterf(arguments->lse[40], 100);
  return FT_OK;
}

/* By less than any tolerance. */
START_TEST(what_differs_from_run_to_run_is_wrong) {
  static const char *const told[] = {"", "O differs from run to run",
                                     "LSE differs from run to run"};
  const struct fake_lab lab = fake_lab_open();
  const struct ft_problem_options options = problem_options(requests[0], FT_LAYOUT_PADDED);
  struct ft_problem *problem = problem_make(&lab, &options);
  struct flickering it = {problem, &options.request, 0, _i};
  struct ft_comparison comparison;
  struct ft_problem_run run = {run_flickering, &it, NULL, true};
  ck_assert_status(ft_problem_check(problem, &run, 50, 2, &comparison), FT_OK);
  ck_assert_int_eq(it.runs, 2);
  ck_assert_msg((comparison.error_ratio <= 1) == (_i == 0), "%s", comparison.worst);
  ck_assert_msg(strstr(comparison.worst, told[_i]) != NULL, "%s", comparison.worst);
  run.twice = false;
  ck_assert_status(ft_problem_check(problem, &run, 50, 2, &comparison), FT_OK);
  ck_assert_int_eq(it.runs, 3);
  ft_problem_free(problem);
  fake_lab_close(&lab);
}
END_TEST

START_TEST(inputs_follow_the_seed) {
  const struct fake_lab lab = fake_lab_open();
  struct ft_problem_options options =
      problem_options("forward bf16 d64 nq5000 hq8", FT_LAYOUT_BSHD);
  struct ft_problem *one = problem_make(&lab, &options), *same = problem_make(&lab, &options);
  options.seed++;
  struct ft_problem *other = problem_make(&lab, &options);
  const size_t bytes = 5000 * 8 * 64 * sizeof(uint16_t); /* more than one block of fresh numbers */
  const fatune_arguments *a = ft_problem_arguments(one), *b = ft_problem_arguments(same);
  const fatune_arguments *c = ft_problem_arguments(other);
  ck_assert(memcmp(a->q.data, b->q.data, bytes) == 0 && a->seed == b->seed &&
            a->offset == b->offset);
  ck_assert(memcmp(a->q.data, c->q.data, bytes) != 0 && a->seed != c->seed);
  ck_assert(memcmp(a->q.data, a->k.data, bytes) != 0 && memcmp(a->k.data, a->v.data, bytes) != 0);

  double sum = 0, square = 0;
  const double n = 5000 * 8 * 64;
  for (int i = 0; i < n; i++) {
    const double x = ft_from_dtype(FT_BF16, ((const uint16_t *)a->v.data)[i]);
    sum += x;
    square += x * x;
  }
  ck_assert_msg(fabs(sum / n) < 0.01 && fabs(square / n - 1) < 0.02,
                "seed %llu: mean %g, variance %g", (unsigned long long)options.seed, sum / n,
                square / n);
  ft_problem_free(one);
  ft_problem_free(same);
  ft_problem_free(other);
  fake_lab_close(&lab);
}
END_TEST

/* Where two batch entries share a page, their dense host copies have the same rows. */
START_TEST(shared_pages_hold_the_same_rows) {
  static const char *const paged[] = {"forward bf16 d16 b32 nq4 nk300 hq2 pages=4",
                                      "forward fp32 d16 b32 nq4 nk300 hq2 pages=4"};
  const struct fake_lab lab = fake_lab_open();
  const struct ft_problem_options options = problem_options(paged[_i], FT_LAYOUT_BSHD);
  struct ft_problem *const problem = problem_make(&lab, &options);
  const struct ft_shape *const shape = &problem->shapes[FT_K];
  const size_t row_bytes = (size_t)shape->heads * (size_t)shape->dim * (size_t)shape->host_bytes;
  const char *const rows = (const char *)problem->dense[FT_K];
  int64_t shared = 0;
  for (int64_t n = 1; n < shape->batch; n++)
    for (int64_t other = 0; other < n; other++)
      for (int64_t j = 0; j < ft_shape_rows(shape, n) && j < ft_shape_rows(shape, other); j++) {
        if (ft_shape_offset(shape, n, j, 0) != ft_shape_offset(shape, other, j, 0)) continue;
        shared++;
        ck_assert_mem_eq(rows + (size_t)(n * shape->rows + j) * row_bytes,
                         rows + (size_t)(other * shape->rows + j) * row_bytes, row_bytes);
      }
  ck_assert_int_gt(shared, 0);
  ft_problem_free(problem);
  fake_lab_close(&lab);
}
END_TEST

static void expect_about_mean(const struct ft_packed_rows *rows, int64_t count, uint64_t seed) {
  const int64_t mean = rows->total / count;
  ck_assert_msg(rows->starts[0] == 0 && rows->starts[count] == rows->total, "seed %llu",
                (unsigned long long)seed);
  for (int64_t n = 0; n < count; n++) {
    const int64_t length = rows->starts[n + 1] - rows->starts[n];
    ck_assert_msg(length == rows->used[n] && length >= mean - mean / 2 &&
                      length <= mean + mean / 2 + 1,
                  "seed %llu: %lld of mean %lld", (unsigned long long)seed, (long long)length,
                  (long long)mean);
  }
}

/* What is timed of a ragged request: a decode has one query a sequence, all rows are in use. */
START_TEST(timed_sequences_are_about_as_long) {
  static const char *const ragged[] = {
      "bf16 d16 b300 nq300 nk900000 ragged", "bf16 d16 b7 nq700 nk700 ragged",
      "bf16 d16 b1 nq33 nk5 ragged pages=16", "bf16 d16 b12 nq40 nk5000 ragged pages=64"};
  const uint64_t seed = fresh_seed();
  for (size_t i = 0; i < sizeof ragged / sizeof *ragged; i++) {
    struct ft_request request;
    struct ft_sequences sequences;
    ck_assert_int_eq(ft_request_parse(&request, ragged[i]), FT_OK);
    ck_assert_int_eq(ft_sequences_make(&sequences, &request, true, seed), FT_OK);
    ck_assert(!sequences.some_unused);
    expect_about_mean(&sequences.q, request.batch, seed);
    expect_about_mean(&sequences.k, request.batch, seed);
    if (request.seqlen_q == request.seqlen_k)
      ck_assert_mem_eq(sequences.q.starts, sequences.k.starts,
                       ((size_t)request.batch + 1) * sizeof(int32_t));
    ft_sequences_free(&sequences);
  }
}
END_TEST

START_TEST(mask_density_is_as_asked) {
  const struct fake_lab lab = fake_lab_open();
  const struct ft_problem_options options =
      problem_options("forward bf16 d64 nq4096 hq4 mask=64x64@0.25", FT_LAYOUT_BSHD);
  struct ft_problem *problem = problem_make(&lab, &options);
  /* 16384 blocks, five sigma */
  ck_assert_double_eq_tol(ft_problem_mask_density(problem), 0.25,
                          5 * sqrt(0.25 * 0.75 / 16384) + 0.005);
  ft_problem_free(problem);
  fake_lab_close(&lab);
}
END_TEST

/* The first row of each head has five times as many blocks as the mean one; of a backward the first
 * column. */
START_TEST(masks_are_as_uneven_as_asked) {
  enum { HEADS = 4, BLOCKS = 64 };
  for (int backward = 0; backward < 2; backward++) {
    struct ft_request asked = known_request("d64 nq4096 hq4 mask=64x64@0.125,5");
    if (backward) asked.pass = FT_BACKWARD;
    uint8_t *blocks;
    int first = 0, all = 0;
    ck_assert_status(ft_random_blocks(&blocks, &asked, 1, HEADS, 11), FT_OK);
    for (int n = 0; n < HEADS * BLOCKS * BLOCKS; n++) {
      all += blocks[n];
      if ((backward ? n % BLOCKS : n / BLOCKS % BLOCKS) == 0) first += blocks[n];
    }
    /* 160 of 256 and 2048 of 16384, five sigma */
    ck_assert_double_eq_tol(first, 0.625 * HEADS * BLOCKS, 5 * sqrt(256 * 0.625 * 0.375));
    ck_assert_double_eq_tol(all, 0.125 * HEADS * BLOCKS * BLOCKS, 5 * sqrt(16384 * 0.125) + 64);
    free(blocks);
  }
}
END_TEST

START_TEST(without_host_copies_there_is_no_verdict) {
  const struct fake_lab lab = fake_lab_open();
  struct ft_problem_options options = problem_options(requests[0], FT_LAYOUT_BSHD);
  options.keep_host = false;
  struct ft_problem *problem = problem_make(&lab, &options);
  struct ft_comparison comparison;
  ck_assert_status(ft_problem_verify(problem, 10, 1, &comparison), FT_E_ARGUMENT);
  ck_assert_detail("keep_host");
  ft_problem_free(problem);
  fake_lab_close(&lab);
}
END_TEST

static int use(struct ft_problem *problem) {
  struct ft_comparison comparison;
  return ft_problem_verify(problem, 10, 1, &comparison);
}

START_TEST(no_driver_failure_leaks) {
  const struct fake_lab lab = fake_lab_open();
  const struct ft_problem_options options = problem_options(requests[3], FT_LAYOUT_PADDED);
  ck_assert_int_gt(problem_fail_each_call(&lab, &options, use), 15);
  fatune_session_close(lab.session);
}
END_TEST

static struct timespec gpu_time; /* of the fake GPU: only launches take any */

static int launch_600_us(void *payload, cu_stream stream) {
  (void)stream;
  *(int *)payload += 1;
  gpu_time.tv_nsec += 600000;
  gpu_time.tv_sec += gpu_time.tv_nsec / 1000000000;
  gpu_time.tv_nsec %= 1000000000;
  return FT_OK;
}

/* Each run that is timed is alone between its events, after a write over twice L2. */
START_TEST(cold_measuring_overwrites_l2_before_each_run) {
  const struct fake_lab lab = fake_lab_open();
  ck_assert_status(ft_session_enter(lab.session), FT_OK);
  const int live = lab.cuda.live();
  int launches = 0;
  const struct ft_runnable runnable = {launch_600_us, &launches};
  struct ft_timing timing;
  lab.cuda.clock(&gpu_time);
  const int before = lab.cuda.calls("cuMemsetD32Async");
  ck_assert_status(ft_measure_cold(&timing, lab.session, NULL, &runnable, NULL), FT_OK);
  ck_assert_int_eq(timing.sample_count, 25);
  ck_assert_int_eq(launches, 1 + 25);
  ck_assert_int_eq(lab.cuda.calls("cuMemsetD32Async") - before, 25);
  ck_assert_double_eq_tol(timing.median_us, 600, 0.01);
  ck_assert_int_eq(lab.cuda.live(), live);
  lab.cuda.clock(NULL);
  ft_session_leave(lab.session);
  static const char *const failures[] = {"cuEventCreate:3:2",    "cuMemAlloc_v2:1:2",
                                         "cuMemsetD32Async:2:2", "cuEventRecord:3:2",
                                         "cuEventQuery:1:700",   "cuEventElapsedTime:2:2"};
  for (size_t n = 0; n < sizeof failures / sizeof *failures; n++) {
    lab.cuda.reset(failures[n]);
    ck_assert_status(ft_session_enter(lab.session), FT_OK);
    ck_assert_int_ne(ft_measure_cold(&timing, lab.session, NULL, &runnable, NULL), FT_OK);
    ck_assert_msg(lab.cuda.failed()[0] != '\0' && lab.cuda.live() == 0, "%s: %s", failures[n],
                  ft_detail());
    ft_session_leave(lab.session);
  }
  fatune_session_close(lab.session); /* whose own objects the resets forgot */
}
END_TEST

START_TEST(measuring_repeats_as_the_policy_says) {
  const struct fake_lab lab = fake_lab_open();
  ck_assert_status(ft_session_enter(lab.session), FT_OK);
  const int live = lab.cuda.live();
  int launches[2] = {0};
  const struct ft_runnable runnables[2] = {{launch_600_us, &launches[0]},
                                           {launch_600_us, &launches[1]}};
  struct ft_measure_policy policy = {.warmup_us = 1500, .sample_us = 2000, .samples = 4};
  struct ft_timing timing, timings[2];
  lab.cuda.clock(&gpu_time);
  ck_assert_status(ft_measure(&timing, lab.session, NULL, runnables, &policy, NULL), FT_OK);
  ck_assert_int_eq(timing.sample_count, 4);
  ck_assert_double_eq_tol(timing.median_us, 600, 0.01);
  ck_assert_double_eq_tol(timing.spread_us, 0, 0.01);
  /* the first; 1, 2, 4 until an interval is long enough; one ahead of the samples */
  ck_assert_int_eq(launches[0], 1 + 1 + 2 + 4 + 1 + 4 * 4);

  launches[0] = 0;
  policy.warmup_us = 8000; /* 4200 us have passed after 1, 2, 4; two intervals more */
  ck_assert_status(ft_measure(&timing, lab.session, NULL, runnables, &policy, NULL), FT_OK);
  ck_assert_int_eq(launches[0], 1 + 1 + 2 + 4 + 2 * 4 + 1 + 4 * 4);

  launches[0] = 0;
  policy.give_up_us = 599;
  ck_assert_status(ft_measure(&timing, lab.session, NULL, runnables, &policy, NULL), FT_OK);
  ck_assert_int_eq(timing.sample_count, 1);
  ck_assert_int_eq(launches[0], 3);

  launches[0] = 0;
  ck_assert_status(ft_measure_interleaved(timings, lab.session, NULL, runnables, 2, &policy, NULL),
                   FT_OK);
  ck_assert(timings[0].sample_count == 1 && timings[1].sample_count == 0);
  ck_assert_double_eq_tol(timings[0].median_us, 600, 0.01);
  ck_assert(launches[0] == 3 && launches[1] == 0);

  launches[0] = 0;
  policy.give_up_us = 601;
  policy.warmup_us = 1500;
  ck_assert_status(ft_measure_interleaved(timings, lab.session, NULL, runnables, 2, &policy, NULL),
                   FT_OK);
  ck_assert(timings[0].sample_count == 4 && timings[1].sample_count == 4);
  ck_assert_double_eq_tol(timings[1].median_us, 600, 0.01);
  ck_assert_int_eq(launches[0], 1 + 1 + 2 + 4 + 4 * (1 + 4));
  ck_assert_int_eq(launches[1], 1 + 1 + 2 + 4 + 4 * 4);
  ck_assert_int_eq(lab.cuda.live(), live);
  ft_session_leave(lab.session);
  fake_lab_close(&lab);
}
END_TEST

static int launch_second_late(void *payload, cu_stream stream) {
  int *const launches = payload;
  const int status = launch_600_us(launches, stream);
  if (*launches == 2) gpu_time.tv_sec += 1;
  return status;
}

START_TEST(one_late_run_is_no_ground_to_give_up) {
  const struct fake_lab lab = fake_lab_open();
  ck_assert_status(ft_session_enter(lab.session), FT_OK);
  int launches = 0;
  const struct ft_runnable runnable = {launch_second_late, &launches};
  const struct ft_measure_policy policy = {.sample_us = 2000, .samples = 4, .give_up_us = 2400};
  struct ft_timing timing;
  lab.cuda.clock(&gpu_time);
  ck_assert_status(ft_measure(&timing, lab.session, NULL, &runnable, &policy, NULL), FT_OK);
  ck_assert_int_eq(timing.sample_count, 4);
  ck_assert_double_eq_tol(timing.median_us, 600, 0.01);
  lab.cuda.clock(NULL);
  ft_session_leave(lab.session);
  fake_lab_close(&lab);
}
END_TEST

/* The fake GPU computes nothing, so every candidate is wrong; the search ends with just that. */
START_TEST(a_gpu_that_does_nothing_is_found_out) {
  const struct fake_controls nvrtc = use_fake_nvrtc();
  const struct fake_lab lab = fake_lab_open();
  struct ft_request request;
  ck_assert_int_eq(ft_request_parse(&request, "forward bf16 d64 nq256 hq2"), FT_OK);
  const struct ft_tune_options options = {
      .effort = FT_EFFORT_QUICK, .jobs = 2, .shard = 0, .shards = 6};
  struct ft_tune_summary summary;
  ck_assert_status(ft_tune(lab.session, &request, &options, &summary), FT_E_NOT_FOUND);
  ck_assert_detail("none of 3 candidates is fit: 3 wrong");
  ck_assert_int_gt(nvrtc.calls("nvrtcCompileProgram"), 0);
  fake_lab_close(&lab);
  ck_assert_int_eq(nvrtc.live(), 0);
}
END_TEST

Suite *make_problem_suite(void) {
  Suite *suite = suite_create("problem");
  TCase *tcase = tcase_create("problem");
  tcase_set_timeout(tcase, 60);
  tcase_add_loop_test(tcase, right_outputs_pass_in_every_layout, 0, REQUESTS * LAYOUTS);
  tcase_add_test(tcase, damage_is_named);
  tcase_add_loop_test(tcase, what_differs_from_run_to_run_is_wrong, 0, 3);
  tcase_add_test(tcase, inputs_follow_the_seed);
  tcase_add_loop_test(tcase, shared_pages_hold_the_same_rows, 0, 2);
  tcase_add_test(tcase, timed_sequences_are_about_as_long);
  tcase_add_test(tcase, mask_density_is_as_asked);
  tcase_add_test(tcase, masks_are_as_uneven_as_asked);
  tcase_add_test(tcase, without_host_copies_there_is_no_verdict);
  tcase_add_test(tcase, no_driver_failure_leaks);
  tcase_add_test(tcase, measuring_repeats_as_the_policy_says);
  tcase_add_test(tcase, one_late_run_is_no_ground_to_give_up);
  tcase_add_test(tcase, cold_measuring_overwrites_l2_before_each_run);
  tcase_add_test(tcase, a_gpu_that_does_nothing_is_found_out);
  suite_add_tcase(suite, tcase);
  return suite;
}
