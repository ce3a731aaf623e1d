/* trial.c: the text form of a measured candidate.
 * in -> out: struct ft_trial <-> one line of name=value words. */
#include "cache/trial.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "cache/fields.h"
#include "generator/status.h"

static const char *const outcome_names[] = {/* ORDER OUTCOME */
                                            "ok",       "screened", "predicted",
                                            "rejected", "compile",  "spilled",
                                            "launch",   "wrong",    "timeout"};

enum { OUTCOMES = sizeof outcome_names / sizeof outcome_names[0] };

static void print_request(const void *member, size_t size, struct ft_text *value) {
  (void)size;
  ft_request_print(member, value);
}

static int parse_request(void *member, size_t size, const char *value) {
  (void)size;
  return ft_request_parse(member, value);
}

static void print_config(const void *member, size_t size, struct ft_text *value) {
  (void)size;
  ft_config_print(member, value);
}

static int parse_config(void *member, size_t size, const char *value) {
  (void)size;
  return ft_config_parse(member, value);
}

static void print_outcome(const void *member, size_t size, struct ft_text *value) {
  enum ft_outcome outcome = FT_OUTCOME_OK;
  memcpy(&outcome, member, size);
  ft_text_add(value, "%s", ft_outcome_name(outcome));
}

static int parse_outcome(void *member, size_t size, const char *value) {
  for (int i = 0; i < OUTCOMES; i++) {
    const enum ft_outcome outcome = (enum ft_outcome)i;
    if (strcmp(outcome_names[i], value) != 0) continue;
    memcpy(member, &outcome, size);
    return FT_OK;
  }
  return ft_fail(FT_E_ARGUMENT,
                 "is '%.40s'; allowed are ok, screened, predicted, rejected, compile, "
                 "spilled, launch, wrong, timeout",
                 value);
}

/* The samples are two members, so their field spans the whole trial. */
static void print_samples(const void *member, size_t size, struct ft_text *value) {
  const struct ft_trial *const trial = member;
  (void)size;
  for (int i = 0; i < trial->sample_count; i++) {
    if (i > 0) ft_text_add(value, ",");
    ft_real_print(trial->samples_us[i], value);
  }
}

static int parse_samples(void *member, size_t size, const char *value) {
  struct ft_trial *const trial = member;
  (void)size;
  int count = 0;
  for (const char *at = value;; at++) {
    double sample = 0;
    if (count == FT_TRIAL_SAMPLES)
      return ft_fail(FT_E_ARGUMENT, "has more than %d samples", FT_TRIAL_SAMPLES);
    FT_TRY(ft_real_parse(at, &at, &sample));
    if (!isfinite(sample) || sample < 0)
      return ft_fail(FT_E_ARGUMENT, "sample %d is %g; allowed are finite numbers >= 0", count,
                     sample);
    trial->samples_us[count++] = sample;
    if (*at == '\0') break;
    if (*at != ',') return ft_fail(FT_E_ARGUMENT, "samples are separated by commas");
  }
  trial->sample_count = count;
  return FT_OK;
}

static const struct ft_field_type type_request = {print_request, parse_request};
static const struct ft_field_type type_config = {print_config, parse_config};
static const struct ft_field_type type_outcome = {print_outcome, parse_outcome};
static const struct ft_field_type type_samples = {print_samples, parse_samples};

#define FIELD(name, type, member, required)                                                        \
  {                                                                                                \
    name, &type, offsetof(struct ft_trial, member), sizeof(((struct ft_trial *)0)->member),        \
        required                                                                                   \
  }

static const struct ft_field trial_fields[] = {
    FIELD("bucket", type_request, bucket, true),
    FIELD("device", ft_field_string, device, true),
    FIELD("policy", ft_field_string, policy, true),
    FIELD("config", type_config, config, true),
    FIELD("outcome", type_outcome, outcome, true),
    FIELD("reason", ft_field_string, reason, false),
    FIELD("request", type_request, request, true),
    FIELD("median_us", ft_field_time, median_us, false),
    FIELD("spread_us", ft_field_time, spread_us, false),
    {"samples_us", &type_samples, 0, sizeof(struct ft_trial), false},
    FIELD("registers", ft_field_int, registers, false),
    FIELD("spills", ft_field_int, spill_bytes, false),
    FIELD("smem", ft_field_int, smem_bytes, false),
    FIELD("sm_clock_mhz", ft_field_int, sm_clock_mhz, false),
    FIELD("error_ratio", ft_field_real, error_ratio, false),
    FIELD("default", ft_field_int, is_default, false),
    FIELD("nvrtc", ft_field_string, nvrtc, false),
    FIELD("driver", ft_field_string, driver, false),
    FIELD("templates", ft_field_digest, templates, false),
    FIELD("kernel", ft_field_digest, kernel, false),
    FIELD("at", ft_field_int64, at, false),
};

enum { TRIAL_FIELDS = sizeof trial_fields / sizeof trial_fields[0] };

const char *ft_outcome_name(enum ft_outcome outcome) {
  return outcome >= 0 && (int)outcome < OUTCOMES ? outcome_names[outcome] : "?";
}

bool ft_outcome_ran(enum ft_outcome outcome) {
  return outcome == FT_OUTCOME_OK || outcome == FT_OUTCOME_SCREENED;
}

bool ft_outcome_timed(enum ft_outcome outcome) {
  return ft_outcome_ran(outcome) || outcome == FT_OUTCOME_PREDICTED;
}

double ft_trial_us_at(const struct ft_trial *trial, double clock_mhz) {
  return trial->sm_clock_mhz > 0 ? trial->median_us * trial->sm_clock_mhz / clock_mhz
                                 : trial->median_us;
}

bool ft_trial_beats(const struct ft_trial *a, const struct ft_trial *b) {
  return a->outcome != b->outcome ? a->outcome < b->outcome : a->median_us < b->median_us;
}

void ft_trial_print(const struct ft_trial *trial, struct ft_text *text) {
  ft_fields_print(trial_fields, TRIAL_FIELDS, trial, text);
}

int ft_trial_parse(struct ft_trial *trial, const char *text) {
  memset(trial, 0, sizeof *trial);
  const int status = ft_fields_parse(trial_fields, TRIAL_FIELDS, trial, text);
  return status == FT_OK ? FT_OK : ft_fail_within(status, "trial text");
}
