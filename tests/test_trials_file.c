/* test_trials_file.c: files of trials for the fit: what is written is read again, bad lines are
 * named. in -> out: random trials, lines of text -> Check suite. */
#include "tests/suites.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generator/status.h"
#include "tests/fresh_seed.h"
#include "tuner/cli/fit/trials_append.h"
#include "tuner/cli/fit/trials_file.h"

static char folder[64], path[128];

static void set_up(void) {
  strcpy(folder, "/tmp/fatune_trials_XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/trials", folder);
}

static void tear_down(void) {
  unlink(path);
  ck_assert_int_eq(rmdir(folder), 0);
}

static void write_text(const char *text) {
  FILE *const file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  ck_assert_int_ge(fputs(text, file), 0);
  ck_assert_int_eq(fclose(file), 0);
}

static void read_text(char *text, size_t room) {
  FILE *const file = fopen(path, "r");
  ck_assert_ptr_nonnull(file);
  text[fread(text, 1, room - 1, file)] = '\0';
  fclose(file);
}

static struct ft_trials read_trials(void) {
  struct ft_trials trials;
  ck_assert_msg(ft_trials_read(&trials, path) == FT_OK, "%s", ft_detail());
  return trials;
}

/* ---- written, and read again ---- */

static const char *const requests[] = {"forward bf16 d64 hq4 nq256 causal",
                                       "backward bf16 d128 hq8 hkv2 b3 nq300",
                                       "forward bf16 d64 hq4 b2 nq64 ragged"};
static const char *const configs[] = {
    "wgmma_forward block_m=192 block_n=128 stages=2 q_stages=1",
    "mma_forward block_m=64 block_n=64 warps=4 stages=2 ctas_per_sm=1",
    "mma_forward block_m=128 block_n=64 warps=8 stages=2 ctas_per_sm=2"};
static const char *const reasons[] = {"", "72 bytes of local memory per thread", "row 3: 1 : 2"};

static uint64_t seed;

static int draw(int count) {
  seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407U;
  return (int)((seed >> 33) % (uint64_t)count);
}

static double draw_real(double least, double most) {
  return least * pow(most / least, draw(1 << 20) / (double)(1 << 20));
}

static struct ft_trial draw_trial(void) {
  struct ft_trial trial = {.outcome = (enum ft_outcome)draw(FT_OUTCOME_TIMEOUT + 1)};
  ck_assert_int_eq(ft_request_parse(&trial.request, requests[draw(3)]), FT_OK);
  ck_assert_int_eq(ft_config_parse(&trial.config, configs[draw(3)]), FT_OK);
  strcpy(trial.device, "nvidia-h200/sm_90/132");
  strcpy(trial.policy, draw(9) ? "events-warm/3" : "events-warm-ragged/2");
  if (draw(9)) strcpy(trial.driver, "580.159.04");
  if (draw(9)) strcpy(trial.nvrtc, "13.0.88+65be0db342ad");
  if (draw(9)) trial.templates = ft_digest_of("a", 1);
  if (draw(9)) trial.at = 1795465491 + draw(2) * 86400;
  if (ft_outcome_timed(trial.outcome) || draw(2)) trial.median_us = draw_real(0.5, 1e7);
  if (draw(2)) trial.spread_us = trial.median_us * draw_real(1e-4, 3);
  if (draw(2)) trial.sm_clock_mhz = 300 + draw(1700);
  if (draw(2)) trial.registers = 1 + draw(255);
  if (draw(2)) trial.spill_bytes = 4 + draw(5000);
  if (draw(2)) trial.error_ratio = draw_real(1e-6, 1e6);
  trial.is_default = draw(2);
  strcpy(trial.reason, reasons[draw(3)]);
  return trial;
}

static bool is_near(double a, double b, double share) {
  return fabs(a - b) <= share * fabs(b);
}

/* What of a trial was not read as it was written; NULL: all was. */
static const char *differs(const struct ft_trials *trials, const struct ft_trials_row *row,
                           const struct ft_trial *trial) {
  const struct ft_trials_head *const got = &trials->heads[row->head];
  const struct ft_trials_head head = ft_trials_head_of(trial, got->what);
  const struct ft_trials_config *const config = &trials->configs[row->config];
  const struct ft_request *const request = &trials->requests[row->request].request;
  struct ft_text with = FT_TEXT_INIT;
  ft_trials_print_with(got, &head, &with);
  const bool same_head = with.length == 0;
  ft_text_free(&with);
  if (!same_head) return "head";
  if (!config->known || ft_config_compare(&config->config, &trial->config) != 0) return "config";
  if (memcmp(request, &trial->request, sizeof *request) != 0) return "request";
  if (row->outcome != trial->outcome || row->is_default != trial->is_default) return "outcome";
  if (row->sm_clock_mhz != trial->sm_clock_mhz) return "clock";
  if (row->registers != trial->registers || row->spill_bytes != trial->spill_bytes)
    return "registers";
  if (strcmp(row->reason ? row->reason : "", trial->reason) != 0) return "reason";
  if (!is_near(row->median_us, trial->median_us, 5.01e-6)) return "microseconds";
  if (!is_near(row->spread * trial->median_us, trial->spread_us, 0.0501)) return "spread";
  return is_near(row->error_ratio, trial->error_ratio, 0.0501) ? NULL : "error ratio";
}

/* In some runs, by several who open the file and go on. */
START_TEST(what_is_written_is_read_again) {
  enum { COUNT = 300 };
  static const char *const words[] = {"a run", "another: \"second\" `run`, d\xc3\xa9j\xc3\xa0"};
  static struct ft_trial written[COUNT];
  static int run_of[COUNT];
  struct ft_trials_append *append;
  const char *what = words[0];
  int run = 1;
  const uint64_t begun = fresh_seed();
  seed = begun;
  ck_assert_int_eq(ft_trials_append_open(&append, path, what), FT_OK);
  for (int n = 0; n < COUNT; n++) {
    if (n > 0 && draw(20) == 0) {
      const char *const next = words[draw(2)];
      run += what != next;
      what = next;
      ck_assert_int_eq(ft_trials_append_close(append), FT_OK);
      ck_assert_int_eq(ft_trials_append_open(&append, path, what), FT_OK);
    } else if (n > 0 && draw(20) == 0) {
      run += 1;
      ck_assert_int_eq(ft_trials_append_begin(append, what), FT_OK);
    }
    written[n] = draw_trial();
    run_of[n] = run;
    ck_assert_int_eq(ft_trials_append_put(append, &written[n]), FT_OK);
  }
  ck_assert_int_eq(ft_trials_append_close(append), FT_OK);
  struct ft_trials trials = read_trials();
  ck_assert_int_eq(trials.row_count, COUNT);
  ck_assert_int_eq(trials.run_count, run);
  ck_assert_int_le(trials.request_count, 3);
  ck_assert_int_le(trials.config_count, 3);
  for (int n = 0; n < COUNT; n++) {
    const char *const what_differs = differs(&trials, &trials.rows[n], &written[n]);
    ck_assert_msg(trials.rows[n].run == run_of[n] && what_differs == NULL,
                  "seed %llu, trial %d of run %d: %s", (unsigned long long)begun, n,
                  trials.rows[n].run, what_differs ? what_differs : "of another run");
  }
  ft_trials_free(&trials);
}
END_TEST

START_TEST(lines_are_short) {
  static const char wanted[] =
      "\n"
      "run what=\"two trials\" device=nvidia-h200/sm_90/132 policy=events-warm/3 driver=580.159.04 "
      "date=2026-11-23\n"
      "request forward bf16 d64 hq4 nq256 causal\n"
      "config 1 mma_forward block_m=64 block_n=64 warps=4 stages=2 ctas_per_sm=1\n"
      "1 1529.18 1965 168 0.54% 0.42 ok default\n"
      "1 123456789 1965\n"
      "with policy=events-warm-ragged/2 driver=\"\"\n"
      "request forward bf16 d64 hq4 b2 nq64 ragged\n"
      "1 - - 255+96 spilled : 96 bytes\n";
  static char text[8192];
  struct ft_trials_append *append;
  struct ft_trial trial = {.outcome = FT_OUTCOME_OK,
                           .device = "nvidia-h200/sm_90/132",
                           .policy = "events-warm/3",
                           .driver = "580.159.04",
                           .at = 1795465491,
                           .median_us = 1529.1839838,
                           .sm_clock_mhz = 1965,
                           .registers = 168,
                           .spread_us = 8.25599431,
                           .error_ratio = 0.4209,
                           .is_default = 1};
  ck_assert_int_eq(ft_request_parse(&trial.request, requests[0]), FT_OK);
  ck_assert_int_eq(ft_config_parse(&trial.config, configs[1]), FT_OK);
  ck_assert_int_eq(ft_trials_append_open(&append, path, "two trials"), FT_OK);
  ck_assert_int_eq(ft_trials_append_put(append, &trial), FT_OK);
  trial.outcome = FT_OUTCOME_SCREENED;
  trial.median_us = 123456789;
  trial.registers = trial.is_default = 0;
  trial.spread_us = trial.error_ratio = 0;
  ck_assert_int_eq(ft_trials_append_put(append, &trial), FT_OK);
  ck_assert_int_eq(ft_request_parse(&trial.request, requests[2]), FT_OK);
  strcpy(trial.policy, "events-warm-ragged/2");
  strcpy(trial.reason, "96 bytes");
  trial.outcome = FT_OUTCOME_SPILLED;
  trial.driver[0] = '\0';
  trial.median_us = trial.sm_clock_mhz = 0;
  trial.registers = 255;
  trial.spill_bytes = 96;
  ck_assert_int_eq(ft_trials_append_put(append, &trial), FT_OK);
  ck_assert_int_eq(ft_trials_append_close(append), FT_OK);
  read_text(text, sizeof text);
  ck_assert_int_eq(text[0], '#');
  ck_assert_str_eq(strstr(text, "\n\nrun ") + 1, wanted);
}
END_TEST

/* ---- bad lines ---- */

#define RUN     "run what=x device=y policy=z\n"
#define REQUEST "request forward bf16 d64 nq256\n"
#define CONFIG  "config 1 mma_forward block_m=64 block_n=64 warps=4 stages=2 ctas_per_sm=1\n"

static const struct {
  const char *text, *line, *tells;
} bad[] = {
    {"1 20\n", "line 1", "before the first \"run what=...\""},
    {"# x\n\nrequest forward bf16 d64 nq256\n", "line 3", "before the first"},
    {"run device=y policy=z\n", "line 1", "field 'what' is missing"},
    {"run what=x device=y policy=z speed=1\n", "line 1", "unknown field 'speed'"},
    {"run what=x device=y policy=z templates=12\n", "line 1", "64 lower-case hex digits"},
    {RUN "with what=x\n", "line 2", "unknown field 'what'"},
    {RUN "trial 1\n", "line 2", "is none of: run, with, request, config"},
    {RUN CONFIG "1 20\n", "line 3", "before the first request"},
    {RUN REQUEST CONFIG "1 20\n" RUN CONFIG "1 20\n", "line 7", "before the first request"},
    {RUN REQUEST "1 20\n", "line 3", "they are 1 .. 0"},
    {RUN REQUEST CONFIG "0 20\n", "line 4", "they are 1 .. 1"},
    {RUN REQUEST CONFIG "99999999999999999999 20\n", "line 4", "is not the number of a config"},
    {RUN REQUEST CONFIG CONFIG, "line 4", "whose number is 2"},
    {RUN REQUEST "config one mma_forward\n", "line 3", "whose number is 1"},
    {RUN REQUEST CONFIG "1 20us\n", "line 4", "'20us' is not microseconds"},
    {RUN REQUEST CONFIG "1 -20\n", "line 4", "'-20' is not microseconds"},
    {RUN REQUEST CONFIG "1 20 1.5\n", "line 4", "'1.5' is not a clock in MHz"},
    {RUN REQUEST CONFIG "1 20 1980 168+\n", "line 4", "registers[+bytes spilled]"},
    {RUN REQUEST CONFIG "1 20 1980 168 0.5\n", "line 4", "'0.5' is not a spread in %"},
    {RUN REQUEST CONFIG "1 20 1980 168 0.5% 0.4 7\n", "line 4", "'7' is too much"},
    {RUN REQUEST CONFIG "1 20 1980 good\n", "line 4", "'good' is too much; allowed are"},
    {RUN REQUEST CONFIG "1 - 1980\n", "line 4", "a trial that is screened has microseconds"},
    {RUN REQUEST CONFIG "1 - ok\n", "line 4", "a trial that is ok has microseconds"},
    {RUN REQUEST CONFIG "1 20\n1 2", "line 5", "the file ends within a line"},
    {"bucket=\"forward bf16 d64 nq256\" device=x\n", "line 1", "`record_many pack`"},
};

START_TEST(a_bad_line_is_named) {
  struct ft_trials trials;
  struct ft_trials_append *append;
  write_text(bad[_i].text);
  ck_assert_int_eq(ft_trials_read(&trials, path), FT_E_ARGUMENT);
  ck_assert_msg(strstr(ft_detail(), path) && strstr(ft_detail(), bad[_i].line) &&
                    strstr(ft_detail(), bad[_i].tells),
                "%s", ft_detail());
  ck_assert_int_eq(ft_trials_append_open(&append, path, "more"), FT_E_ARGUMENT);
}
END_TEST

/* Knobs come and go; what was measured stays, and can be added to. */
START_TEST(what_is_not_known_is_told_and_left_out) {
  struct ft_trials_append *append;
  write_text(RUN REQUEST CONFIG "config 2 mma_forward block_m=64 no_knob=1\n1 20\n2 30\n"
                                "request sideways bf16 d64\n1 40\r\n");
  struct ft_trials trials = read_trials();
  ck_assert_int_eq(trials.row_count, 3);
  for (int n = 0; n < 3; n++) ck_assert_int_eq(ft_trials_ran(&trials, &trials.rows[n]), n == 0);
  ck_assert_msg(strstr(trials.unknown, "line 4: ") && strstr(trials.unknown, "no_knob"), "%s",
                trials.unknown);
  ft_trials_free(&trials);
  ck_assert_int_eq(ft_trials_append_open(&append, path, "x"), FT_OK);
  struct ft_trial trial = {.outcome = FT_OUTCOME_OK, .median_us = 1, .device = "y", .policy = "z"};
  ck_assert_int_eq(ft_request_parse(&trial.request, requests[0]), FT_OK);
  ck_assert_int_eq(ft_config_parse(&trial.config, configs[0]), FT_OK);
  ck_assert_int_eq(ft_trials_append_put(append, &trial), FT_OK);
  ck_assert_int_eq(ft_trials_append_close(append), FT_OK);
  trials = read_trials();
  ck_assert_int_eq(trials.row_count, 4);
  ck_assert_int_eq(trials.run_count, 1);
  ck_assert_int_eq(trials.numbered_count, 3);
  ck_assert(ft_trials_ran(&trials, &trials.rows[3]));
  ft_trials_free(&trials);
}
END_TEST

START_TEST(a_trial_of_no_run_is_refused) {
  static char words[1024];
  struct ft_trials_append *append;
  const struct ft_trial trial = draw_trial();
  memset(words, 'x', sizeof words - 1);
  ck_assert_int_eq(ft_trials_append_open(&append, path, words), FT_E_ARGUMENT);
  ck_assert_int_eq(ft_trials_append_open(&append, path, ""), FT_E_ARGUMENT);
  ck_assert_int_eq(ft_trials_append_open(&append, path, NULL), FT_OK);
  ck_assert_int_eq(ft_trials_append_put(append, &trial), FT_E_ARGUMENT);
  ck_assert_int_eq(ft_trials_append_close(append), FT_OK);
  ck_assert_int_eq(ft_trials_append_open(&append, "/nowhere/trials", "x"), FT_E_IO);
  struct ft_trials trials;
  ck_assert_int_eq(ft_trials_read(&trials, "/nowhere/trials"), FT_E_IO);
}
END_TEST

Suite *make_trials_file_suite(void) {
  Suite *const suite = suite_create("trials_file");
  TCase *const tests = tcase_create("all");
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, what_is_written_is_read_again);
  tcase_add_test(tests, lines_are_short);
  tcase_add_loop_test(tests, a_bad_line_is_named, 0, sizeof bad / sizeof *bad);
  tcase_add_test(tests, what_is_not_known_is_told_and_left_out);
  tcase_add_test(tests, a_trial_of_no_run_is_refused);
  suite_add_tcase(suite, tests);
  return suite;
}
