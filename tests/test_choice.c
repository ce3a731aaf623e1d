/* test_choice.c: a config that the model chooses instead of a default is legal, and faster by the
 * model itself. Where both were measured it is seldom slower; in the rows of the benchmarks it was
 * measured, and is no slower.
 * in -> out: requests, GPUs, recorded trials -> Check suite. */
#include "tests/suites.h"

#include <math.h>
#include <stdio.h>

#include "generator/model/choice.h"
#include "generator/model/fit.h"
#include "generator/model/rates.h"
#include "generator/space.h"
#include "tests/generator_cases.h"
#include "tests/recorded_trials.h"
#include "tests/slow_tests.h"

static const char *const requests[] = {
    "forward bf16 d64 hq8 nq2172",
    "forward bf16 d64 hq4 nq6565 causal",
    "forward bf16 d64 hq8 b4 nq756 ragged",
    "forward fp16 d40 hq96 hkv12 nq664 dropout",
    "forward fp16 d40 hq64 hkv16 b4 nq4096 causal mask=64x64@0.1",
    "forward bf16 d128 hq32 hkv8 b2 nq8192 causal",
    "forward bf16 d128 hq32 hkv8 b16 nq1 nk4096",
    "forward fp32 d64 b2 nq3499",
    "forward bf16 kv=e4m3 d160 hq16 hkv2 b48 nq16 nk514",
    "forward e4m3 d80 hq4 b16 nq5260 window@2048,256",
    "backward bf16 d128 hq16 b4 nq4096 causal",
    "backward bf16 d64 hq12 b8 nq512 causal mask=128x128@0.25",
    "backward tf32 d160 b16 nq2576 window@256,256",
    "backward bf16 d256 hq8 b2 nq2048 causal deterministic",
};

static const char *const gpus[] = {"h200", "h100", "a100", "sm_120"};

static double us_of(struct ft_ranker *ranker, const struct ft_config *config) {
  const struct ft_prediction by_hand = ft_ranker_by_hand(ranker, config);
  return ft_ranker_us(ranker, config, &by_hand);
}

START_TEST(a_choice_is_legal_and_faster_by_a_margin) {
  const struct ft_request request = known_request(requests[_i]);
  for (int n = 0; n < FT_COUNT(gpus); ++n) {
    const struct ft_arch arch = known_gpu(gpus[n]);
    const struct ft_fit_choice *const fit = ft_fit_choice_of(request.pass, &arch);
    struct ft_config standard, chosen;
    struct ft_ranker ranker;
    double gain = 0;
    if (ft_default_config(&request, &arch, &standard) != FT_OK) { /* e4m3 on older GPUs */
      ck_assert_int_ne(ft_model_choose(&request, &arch, NULL, &chosen, &gain), FT_OK);
      continue;
    }
    ck_assert_int_eq(ft_model_choose(&request, &arch, NULL, &chosen, &gain), FT_OK);
    ck_assert_ptr_null(rule_broken(&request, &arch, &chosen));
    if (ft_config_compare(&standard, &chosen) == 0) {
      ck_assert_double_eq(gain, 1);
      continue;
    }
    ck_assert_ptr_nonnull(fit); /* of other GPUs nothing was measured */
    ck_assert_int_eq(ft_ranker_open(&ranker, &request, &arch, NULL), FT_OK);
    ck_assert_double_gt(gain, fit->margin);
    ck_assert_double_eq_tol(us_of(&ranker, &standard) / us_of(&ranker, &chosen), gain, 1e-9);
  }
}
END_TEST

/* A class has no lengths to reckon with. */
START_TEST(a_class_of_requests_keeps_its_default) {
  const struct ft_arch h200 = known_gpu("h200");
  struct ft_request request = known_request("forward bf16 d64 hq8 nq2172");
  struct ft_config config, standard;
  double gain;
  request.seqlen_q = request.seqlen_k = request.batch = 0;
  ck_assert_int_eq(ft_default_config(&request, &h200, &standard), FT_OK);
  ck_assert_int_eq(ft_model_choose(&request, &h200, NULL, &config, &gain), FT_OK);
  ck_assert_double_eq(gain, 1);
  ck_assert_int_eq(ft_config_compare(&standard, &config), 0);
}
END_TEST

/* The shortest time of a config among the rows from `begin` to `end`; 0: it was not measured. */
static double shortest(const struct recorded *recorded, int begin, int end,
                       const struct ft_config *config, double clock_mhz) {
  double least = 0;
  for (int n = begin; n < end; ++n) {
    const struct ft_trials_row *const row = recorded->rows[n];
    const double us = ft_trials_us_at(row, clock_mhz);
    if (ft_config_compare(&recorded->trials.configs[row->config].config, config) == 0 &&
        (least == 0 || us < least))
      least = us;
  }
  return least;
}

/* What is chosen for the request of a group, if not the default: its shortest time over that of the
 * default. 0: not both were measured. */
static double choice_over_default(const struct recorded *recorded, int begin, int end,
                                  const struct ft_arch *arch) {
  const struct ft_request *const request =
      &recorded->trials.requests[recorded->rows[begin]->request].request;
  const double clock_mhz = ft_cycles_per_us(arch);
  struct ft_config standard, chosen;
  double gain;
  if (request->score != 0 || ft_default_config(request, arch, &standard) != FT_OK) return 0;
  const double usual = shortest(recorded, begin, end, &standard, clock_mhz);
  if (usual <= 0) return 0;
  ck_assert_int_eq(ft_model_choose(request, arch, NULL, &chosen, &gain), FT_OK);
  return gain > 1 ? shortest(recorded, begin, end, &chosen, clock_mhz) / usual : 0;
}

/* The fit has seen these trials: this is no figure of how good it is, but says that what is known
 * to be slower is seldom chosen. A choice takes some milliseconds: of all groups some 2,000 are
 * looked at, every n-th, and all of them where FATUNE_TEST_SLOW=1 asks for it. */
START_TEST(few_choices_are_slower_where_both_were_measured) {
  static const double SLOWER = 1.03, SHARE = 0.01;
  enum { LOOKED_AT = 2000 };
  const struct ft_arch h200 = known_gpu("h200");
  struct recorded recorded;
  int groups = 0, both = 0, slower = 0, number = 0;
  double sum = 0;
  read_recorded(&recorded);
  for (int at = 0; at < recorded.count; at = end_of_group(&recorded, at)) groups++;
  const int every = tests_are_slow() ? 1 : (groups + LOOKED_AT - 1) / LOOKED_AT;
  for (int begin = 0, end; begin < recorded.count; begin = end) {
    end = end_of_group(&recorded, begin);
    if (is_in_no_fit(&recorded, begin) || number++ % every != 0) continue;
    const double ratio = choice_over_default(&recorded, begin, end, &h200);
    if (ratio <= 0) continue;
    both++;
    sum += log(ratio);
    slower += ratio > SLOWER;
  }
  ck_assert_int_gt(both, 100);
  ck_assert_msg(slower <= SHARE * both, "%d of %d choices are slower", slower, both);
  ck_assert_double_lt(exp(sum / both),
                      0.95); /* of the time of the default, where another is taken */
  free_recorded(&recorded);
}
END_TEST

enum { TEXTS_MOST = 64 };

/* What the benchmarks run. Returns how many. */
static int benchmarks(char (*texts)[128]) {
  static const char *const passes[] = {"forward", "backward"};
  static const char *const sizes[] = {
      "d64 hq32 b32 nq512",       "d64 hq32 b4 nq4096",    "d64 hq32 nq16384",
      "d128 hq16 b32 nq512",      "d128 hq16 b16 nq1024",  "d128 hq16 b4 nq4096",
      "d128 hq16 nq16384",        "d256 hq8 b16 nq1024",   "d256 hq8 b2 nq8192",
      "d128 hq32 hkv8 b4 nq4096", "d128 hq64 hkv8 nq16384"};
  static const char *const decodes[] = {"forward bf16 d128 hq32 hkv8 b16 nq1 nk8192",
                                        "forward bf16 d128 hq32 hkv8 b64 nq1 nk4096",
                                        "forward bf16 d128 hq32 hkv8 nq1 nk65536",
                                        "forward bf16 d128 hq32 hkv8 b16 nq1 nk8192 pages=64",
                                        "forward bf16 kv=e4m3 d128 hq64 hkv8 b16 nq1 nk8192",
                                        "forward e4m3 d128 hq16 nq16384 causal"};
  int count = 0;
  for (int n = 0; n < FT_COUNT(sizes) * 4; ++n)
    snprintf(texts[count++], sizeof texts[0], "%s bf16 %s%s", passes[n % 2], sizes[n / 4],
             n / 2 % 2 ? " causal" : "");
  for (int n = 0; n < FT_COUNT(decodes); ++n)
    snprintf(texts[count++], sizeof texts[0], "%s", decodes[n]);
  return count;
}

/* The least of choice over default in the runs that timed both for the request; 0: none did. */
static double least_in_runs(const struct recorded *recorded, const char *request,
                            const struct ft_arch *arch) {
  double least = 0;
  for (int begin = 0, end; begin < recorded->count; begin = end) {
    end = end_of_group(recorded, begin);
    if (strcmp(recorded->trials.requests[recorded->rows[begin]->request].text, request) != 0)
      continue;
    const double ratio = choice_over_default(recorded, begin, end, arch);
    if (ratio > 0 && (least == 0 || ratio < least)) least = ratio;
  }
  return least;
}

/* Their defaults were searched for. What is taken in place of one was timed beside it. */
START_TEST(rows_of_the_benchmarks_take_nothing_slower) {
  static const double NOISE = 1.02; /* of two times */
  const struct ft_arch h200 = known_gpu("h200");
  char texts[TEXTS_MOST][128];
  struct recorded recorded;
  const int count = benchmarks(texts);
  read_recorded(&recorded);
  for (int n = 0; n < count; ++n) {
    const struct ft_request request = known_request(texts[n]);
    struct ft_config config;
    double gain;
    ck_assert_int_eq(ft_model_choose(&request, &h200, NULL, &config, &gain), FT_OK);
    if (gain == 1) continue;
    const double ratio = least_in_runs(&recorded, texts[n], &h200);
    ck_assert_msg(ratio > 0, "%s: %.2f by the model, and not timed", texts[n], gain);
    ck_assert_msg(ratio <= NOISE, "%s: %.3f of the default's time", texts[n], ratio);
  }
  free_recorded(&recorded);
}
END_TEST

Suite *make_choice_suite(void) {
  Suite *const suite = suite_create("choice");
  TCase *const tests = tcase_create("all");
  tcase_add_loop_test(tests, a_choice_is_legal_and_faster_by_a_margin, 0, FT_COUNT(requests));
  tcase_add_test(tests, a_class_of_requests_keeps_its_default);
  tcase_add_test(tests, rows_of_the_benchmarks_take_nothing_slower);
  tcase_add_test(tests, few_choices_are_slower_where_both_were_measured);
  suite_add_tcase(suite, tests);
  return suite;
}
