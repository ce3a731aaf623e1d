/* test_trial_text.c: trials print and parse.
 * in -> out: random trials, mutated and broken texts, foreign locales -> Check suite. */
#include "tests/suites.h"

#include <locale.h>
#include <math.h>

#include "tests/store_fixture.h"

static char *text_of(const struct ft_trial *trial) {
  struct ft_text text = FT_TEXT_INIT;
  ft_trial_print(trial, &text);
  assert_ok(ft_text_status(&text));
  return text.data;
}

/* Any finite double that is not negative, not only round ones. */
static double random_time(struct dice *dice) {
  double number;
  do {
    const uint64_t bits = dice_bits(dice) >> 1;
    memcpy(&number, &bits, sizeof number);
  } while (!isfinite(number));
  return dice_below(dice, 4) ? dice_share(dice) * 1000 : number;
}

static void random_string(struct dice *dice, char *buffer, int size) {
  const int length = dice_below(dice, size);
  for (int i = 0; i < length; i++) buffer[i] = (char)(1 + dice_below(dice, 255));
  buffer[length] = '\0';
}

static struct ft_trial random_trial(struct dice *dice) {
  static const char *const requests[] = {
      "forward bf16 d128 hq32 hkv8 b2 nq4096 nk4096 causal",
      "forward fp16 d64 dv128 hq4 hkv4 nq77 nk1000 causal=top-left dropout mask=128x128@0.3",
      "backward bf16 d256 nq1 nk2147483647 deterministic"};
  struct ft_trial trial =
      make_trial(requests[dice_below(dice, 3)], CLASS_H200, dice_below(dice, 300), 0);
  random_string(dice, trial.device, sizeof trial.device);
  random_string(dice, trial.policy, sizeof trial.policy);
  random_string(dice, trial.reason, sizeof trial.reason);
  random_string(dice, trial.nvrtc, sizeof trial.nvrtc);
  random_string(dice, trial.driver, sizeof trial.driver);
  trial.outcome = (enum ft_outcome)dice_below(dice, FT_OUTCOME_TIMEOUT + 1);
  trial.median_us = random_time(dice);
  trial.spread_us = dice_below(dice, 2) ? 0 : random_time(dice);
  trial.sample_count = dice_below(dice, FT_TRIAL_SAMPLES + 1);
  for (int i = 0; i < trial.sample_count; i++) trial.samples_us[i] = random_time(dice);
  trial.error_ratio = dice_below(dice, 3) ? dice_share(dice) : INFINITY;
  trial.registers = dice_below(dice, 256);
  trial.spill_bytes = dice_below(dice, 2);
  trial.sm_clock_mhz = dice_below(dice, 2000);
  trial.is_default = dice_below(dice, 2);
  trial.at = (int64_t)(dice_bits(dice) >> 1);
  if (dice_below(dice, 2)) trial.kernel = dice_digest(dice);
  return trial;
}

static void assert_same(const struct ft_trial *a, const struct ft_trial *b, uint64_t seed) {
  char *const left = text_of(a), *const right = text_of(b);
  ck_assert_msg(strcmp(left, right) == 0, "seed %llu\n%s\n%s", (unsigned long long)seed, left,
                right);
  free(left);
  free(right);
  ck_assert_str_eq(a->device, b->device);
  ck_assert_str_eq(a->policy, b->policy);
  ck_assert_str_eq(a->reason, b->reason);
  ck_assert_str_eq(a->nvrtc, b->nvrtc);
  ck_assert_str_eq(a->driver, b->driver);
  ck_assert_int_eq(a->outcome, b->outcome);
  ck_assert_int_eq(a->sample_count, b->sample_count);
  ck_assert(memcmp(a->samples_us, b->samples_us, sizeof a->samples_us) == 0);
  ck_assert(a->median_us == b->median_us && a->spread_us == b->spread_us);
  ck_assert(a->error_ratio == b->error_ratio);
  ck_assert_int_eq(a->registers, b->registers);
  ck_assert_int_eq(a->spill_bytes, b->spill_bytes);
  ck_assert_int_eq(a->smem_bytes, b->smem_bytes);
  ck_assert_int_eq(a->sm_clock_mhz, b->sm_clock_mhz);
  ck_assert_int_eq(a->is_default, b->is_default);
  ck_assert_int_eq(a->at, b->at);
  ck_assert_int_eq(ft_config_compare(&a->config, &b->config), 0);
  ck_assert(ft_digest_equal(&a->templates, &b->templates));
  ck_assert(ft_digest_equal(&a->kernel, &b->kernel));
}

static void round_trips(int count) {
  struct dice dice = dice_new();
  for (int i = 0; i < count; i++) {
    const struct ft_trial trial = random_trial(&dice);
    struct ft_trial back;
    char *const text = text_of(&trial);
    ck_assert_ptr_null(strchr(text, '\n'));
    assert_ok(ft_trial_parse(&back, text));
    assert_same(&trial, &back, dice.seed);
    free(text);
  }
}

START_TEST(random_trials_survive_the_round_trip) {
  round_trips(300);
}
END_TEST

/* Locales with a comma are rarely installed, but they can be made where their sources are. */
static void make_locale(const struct fixture *fixture) {
  char command[256];
  snprintf(command, sizeof command, "localedef -f UTF-8 -i de_DE %s/de_DE.UTF-8 2>/dev/null",
           fixture->root);
  if (system(command) == 0) setenv("LOCPATH", fixture->root, 1);
}

START_TEST(texts_do_not_depend_on_the_locale) {
  struct fixture fixture;
  fixture_open(&fixture);
  make_locale(&fixture);
  static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "ru_RU.UTF-8"};
  struct ft_trial trial = make_trial("forward bf16 d64 nq512 mask=64x64@0.25", CLASS_H200, 3, 12.5);
  char *const plain = text_of(&trial);
  ck_assert_ptr_nonnull(strstr(plain, "median_us=12.5"));
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    if (!setlocale(LC_ALL, names[i])) continue; /* what is installed differs by machine */
    char *const text = text_of(&trial);
    ck_assert_str_eq(text, plain);
    free(text);
    round_trips(20);
  }
  free(plain);
  fixture_close(&fixture);
}
END_TEST

/* One byte changed anywhere: refused, or another trial that is itself sound. */
START_TEST(mutated_texts_never_half_parse) {
  struct dice dice = dice_new();
  int refused = 0;
  for (int i = 0; i < 2000; i++) {
    const struct ft_trial trial = random_trial(&dice);
    struct ft_trial mutant, back;
    char *const text = text_of(&trial);
    text[dice_below(&dice, (int)strlen(text))] = (char)(1 + dice_below(&dice, 255));
    if (ft_trial_parse(&mutant, text) == FT_OK) {
      char *const again = text_of(&mutant);
      assert_ok(ft_trial_parse(&back, again));
      assert_same(&mutant, &back, dice.seed);
      free(again);
    } else {
      refused++;
      ck_assert(ft_detail()[0] != '\0');
    }
    free(text);
  }
  ck_assert_int_gt(refused, 200);
}
END_TEST

static const struct {
  const char *field, *value; /* replaces or adds field=value; NULL: removes it */
} broken[] = {{"bucket", NULL},
              {"device", NULL},
              {"policy", NULL},
              {"config", NULL},
              {"outcome", NULL},
              {"request", NULL},
              {"bucket", "nonsense"},
              {"config", "mma"},
              {"outcome", "fine"},
              {"median_us", "-1"},
              {"median_us", "nan"},
              {"median_us", "inf"},
              {"median_us", "1,5"},
              {"median_us", "1 2"},
              {"median_us", "fast"},
              {"samples_us", "1,,2"},
              {"samples_us", "1;2"},
              {"samples_us", "1,-2"},
              {"samples_us", "1,inf"},
              {"samples_us", ""},
              {"registers", "1.5"},
              {"registers", "many"},
              {"templates", "abc"},
              {"at", "-5"},
              {"kernel", "ABCDEF"},
              {"nonsense", "1"},
              {"at", "99999999999999999999"},
              {"driver", "a-driver-version-that-is-much-too-long"}};

START_TEST(broken_texts_are_refused_by_name) {
  const struct ft_trial trial = make_trial("forward bf16 d64 nq512", CLASS_H200, 3, 12.5);
  struct ft_trial back;
  struct ft_text text = FT_TEXT_INIT;
  char *const whole = text_of(&trial);
  char word[64];
  snprintf(word, sizeof word, " %s=", broken[_i].field);
  /* bucket is first and has no blank before it */
  char *found = strstr(whole, word + 1) == whole ? whole : strstr(whole, word);
  if (found) {
    const char *end = strchr(found + 1, '=') + 1;
    end = *end == '"' ? strchr(end + 1, '"') + 1 : end + strcspn(end, " ");
    ft_text_append(&text, whole, (size_t)(found - whole));
    ft_text_add(&text, "%s", end);
  } else {
    ft_text_add(&text, "%s", whole);
  }
  if (broken[_i].value) ft_text_add(&text, " %s=\"%s\"", broken[_i].field, broken[_i].value);
  assert_status(ft_trial_parse(&back, text.data), FT_E_ARGUMENT);
  ck_assert_msg(strstr(ft_detail(), broken[_i].field) != NULL, "%s", ft_detail());
  ft_text_free(&text);
  free(whole);
}
END_TEST

START_TEST(too_many_samples_are_refused) {
  struct ft_trial trial = make_trial("forward bf16 d64 nq512", CLASS_H200, 3, 12.5), back;
  trial.sample_count = FT_TRIAL_SAMPLES;
  for (int i = 0; i < FT_TRIAL_SAMPLES; i++) trial.samples_us[i] = i;
  char *const text = text_of(&trial);
  assert_ok(ft_trial_parse(&back, text));
  char *more = NULL;
  char *const at = strstr(text, "samples_us=") + strlen("samples_us=");
  ck_assert_int_gt(asprintf(&more, "%.*s1,%s", (int)(at - text), text, at), 0);
  assert_status(ft_trial_parse(&back, more), FT_E_ARGUMENT);
  free(more);
  free(text);
}
END_TEST

START_TEST(a_better_outcome_beats_a_lower_time) {
  struct ft_trial a = make_trial("forward bf16 d64 nq512", CLASS_H200, 3, 12.5), b = a;
  b.median_us = 12;
  ck_assert(ft_trial_beats(&b, &a) && !ft_trial_beats(&a, &b) && !ft_trial_beats(&a, &a));
  b.outcome = FT_OUTCOME_WRONG;
  ck_assert(ft_trial_beats(&a, &b) && !ft_trial_beats(&b, &a));
}
END_TEST

START_TEST(a_time_is_told_at_another_clock) {
  struct ft_trial trial = {.median_us = 120, .sm_clock_mhz = 1500};
  ck_assert_double_eq(ft_trial_us_at(&trial, 1000), 180);
  ck_assert_double_eq(ft_trial_us_at(&trial, 1500), 120);
  trial.sm_clock_mhz = 0; /* it is not known */
  ck_assert_double_eq(ft_trial_us_at(&trial, 1000), 120);
}
END_TEST

START_TEST(every_outcome_has_a_name) {
  for (int i = FT_OUTCOME_OK; i <= FT_OUTCOME_TIMEOUT; i++) {
    ck_assert_str_ne(ft_outcome_name((enum ft_outcome)i), "?");
    for (int k = FT_OUTCOME_OK; k < i; k++)
      ck_assert_str_ne(ft_outcome_name((enum ft_outcome)i), ft_outcome_name((enum ft_outcome)k));
  }
  ck_assert_str_eq(ft_outcome_name((enum ft_outcome)(FT_OUTCOME_TIMEOUT + 1)), "?");
  ck_assert_str_eq(ft_outcome_name(FT_OUTCOME_TIMEOUT), "timeout");
}
END_TEST

Suite *make_trial_text_suite(void) {
  Suite *const suite = suite_create("trial_text");
  TCase *const tests = tcase_create("text");
  tcase_add_test(tests, random_trials_survive_the_round_trip);
  tcase_add_test(tests, texts_do_not_depend_on_the_locale);
  tcase_add_test(tests, mutated_texts_never_half_parse);
  tcase_add_loop_test(tests, broken_texts_are_refused_by_name, 0,
                      (int)(sizeof broken / sizeof broken[0]));
  tcase_add_test(tests, too_many_samples_are_refused);
  tcase_add_test(tests, a_better_outcome_beats_a_lower_time);
  tcase_add_test(tests, a_time_is_told_at_another_clock);
  tcase_add_test(tests, every_outcome_has_a_name);
  suite_add_tcase(suite, tests);
  return suite;
}
