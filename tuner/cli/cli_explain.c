/* cli_explain.c: the parts of `fatune explain`.
 * in -> out: target + request + what the caches hold -> text and JSON. */
#include "tuner/cli/cli_explain.h"
#include "tuner/cli/cli_fit.h"
#include "tuner/cli/cli_table.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cache/store.h"
#include "generator/space.h"
#include "generator/status.h"
#include "runtime/session.h"
#include "generator/model/model.h"

struct reading {
  struct cli_trials *trials;
  const struct ft_config *chosen;
};

static bool take_trial(void *payload, const struct ft_trial *trial) {
  const struct reading *const reading = payload;
  struct cli_trials *const trials = reading->trials;
  ++trials->total;
  if (trial->outcome >= FT_OUTCOME_OK && trial->outcome <= FT_OUTCOME_TIMEOUT) {
    ++trials->outcomes[trial->outcome];
  }
  if (!ft_outcome_timed(trial->outcome)) return true;
  const bool first = trials->best_count == 0;
  if (first || ft_trial_beats(trial, &trials->fastest)) trials->fastest = *trial;
  if (!(trials->chosen.median_us > 0) && ft_config_compare(&trial->config, reading->chosen) == 0) {
    trials->chosen = *trial;
  }
  if (trials->best_count < CLI_BEST_TRIALS) trials->best[trials->best_count++] = *trial;
  return true;
}

int cli_trials_read(struct cli_trials *trials, fatune_session *session,
                    const struct ft_request *bucket, const char *device,
                    const struct ft_config *chosen) {
  *trials = (struct cli_trials){0};
  struct reading reading = {trials, chosen};
  return ft_store_trials(session->store, bucket, device, take_trial, &reading);
}

void cli_explain_why(const struct cli_trials *trials, const struct ft_choice *choice,
                     struct ft_text *text) {
  const struct ft_trial *const chosen = &trials->chosen, *const fastest = &trials->fastest;
  const bool by_model = choice->hit == FT_HIT_MODEL && choice->median_us <= 0;
  if (choice->hit == FT_HIT_DEFAULT || by_model) {
    const bool unfit = trials->total > 0 && trials->best_count == 0;
    if (unfit)
      ft_text_add(text, "of %d trials here none is fit", trials->total);
    else
      ft_text_add(text, "nothing usable is known for this request here");
    ft_text_add(text, by_model ? ", and the model puts this before the hand-written default; "
                               : ", so the hand-written default; ");
    ft_text_add(text, unfit ? "`fatune cache list --all` tells what was wrong"
                            : "`fatune tune` measures");
    return;
  }
  if (choice->hit == FT_HIT_SHIPPED) {
    ft_text_add(text, "a winner that ships with fatune; `fatune tune` measures here");
    return;
  }
  if (!(chosen->median_us > 0)) { /* from another bucket, GPU or layer */
    ft_text_add(text, "the nearest winner known; this bucket was not tuned on this GPU");
    return;
  }
  const char *const kind = ft_outcome_ran(chosen->outcome) ? "measured" : "predicted";
  if (ft_config_compare(&chosen->config, &fastest->config) == 0) {
    ft_text_add(text, "the fastest %s of %d trial%s", kind, trials->total,
                trials->total == 1 ? "" : "s");
  } else {
    ft_text_add(
        text,
        "%.1f %% from the fastest %s, which is inside the noise; in a tie the order is: the "
        "default, less shared memory, fewer registers, config text",
        100 * (chosen->median_us / fastest->median_us - 1), kind);
  }
}

static const char *or_unknown(const char *text) {
  return text[0] != '\0' ? text : "unknown";
}

void cli_day(int64_t at, char day[16]) {
  const time_t seconds = (time_t)at;
  struct tm date;
  if (gmtime_r(&seconds, &date) == NULL || strftime(day, 16, "%Y-%m-%d", &date) == 0)
    strcpy(day, "?");
}

long long cli_days_since(int64_t at) {
  enum { DAY = 24 * 60 * 60 };
  return ((long long)time(NULL) - (long long)at) / DAY;
}

void cli_explain_measured(struct cli *cli, const struct ft_choice *choice) {
  char day[16];
  if (choice->at == 0 || choice->hit == FT_HIT_MODEL) return;
  cli_day(choice->at, day);
  const long long days = cli_days_since(choice->at);
  cli_field(cli, "measured", "%s (%lld day%s ago), %s, driver %s, NVRTC %s", day, days,
            days == 1 ? "" : "s", choice->device, or_unknown(choice->driver),
            or_unknown(choice->nvrtc));
  json_t *const measured = json_object();
  cli_json_set(measured, "at", json_integer(choice->at));
  cli_json_set(measured, "age_days", json_integer(days));
  cli_json_set(measured, "device", cli_json_text(choice->device));
  cli_json_set(measured, "driver", cli_json_text(choice->driver));
  cli_json_set(measured, "nvrtc", cli_json_text(choice->nvrtc));
  cli_json(cli, "measured", measured);
}

static json_t *trial_json(const struct ft_trial *trial, int occupancy) {
  json_t *const object = cli_trial_json(trial);
  cli_json_set(object, "registers", json_integer(trial->registers));
  cli_json_set(object, "spill_bytes", json_integer(trial->spill_bytes));
  cli_json_set(object, "smem_bytes", json_integer(trial->smem_bytes));
  cli_json_set(object, "occupancy", json_integer(occupancy));
  cli_json_set(object, "nvrtc", cli_json_text(trial->nvrtc));
  cli_json_set(object, "driver", cli_json_text(trial->driver));
  cli_json_set(object, "sm_clock_mhz", json_integer(trial->sm_clock_mhz));
  cli_json_set(object, "error_ratio", cli_json_real(trial->error_ratio));
  return object;
}

void cli_explain_trials(struct cli *cli, const struct cli_trials *trials,
                        const struct cli_target *target, const struct ft_request *request) {
  struct cli_table table;
  json_t *const list = json_array(), *outcomes = json_object();
  cli_table_begin(&table, ">us|>spread|>regs|>spill|>smem|>blocks/SM|outcome|config");
  for (int i = 0; i < trials->best_count; ++i) {
    const struct ft_trial *const trial = &trials->best[i];
    const struct ft_budget budget = ft_budget_of(request, &trial->config, &target->arch);
    const int occupancy = ft_budget_occupancy(&budget, &target->arch, trial->registers);
    char *const config = cli_config_text(&trial->config);
    cli_table_add(&table, "%.2f", trial->median_us);
    if (ft_outcome_ran(trial->outcome))
      cli_table_add(&table, "%.2f", trial->spread_us);
    else
      cli_table_add(&table, "%s", "");
    cli_table_add(&table, "%d", trial->registers);
    cli_table_add(&table, "%d", trial->spill_bytes);
    cli_table_add(&table, "%d", trial->smem_bytes);
    cli_table_add(&table, "%d", occupancy);
    cli_table_add(&table, "%s", ft_outcome_name(trial->outcome));
    cli_table_add(&table, "%s%s", config, trial->is_default ? " (default)" : "");
    cli_json_append(list, trial_json(trial, occupancy));
    free(config);
  }
  struct ft_text counts = FT_TEXT_INIT;
  for (int i = 0; i <= FT_OUTCOME_TIMEOUT; ++i) {
    if (trials->outcomes[i] == 0) continue;
    ft_text_add(&counts, ", %d %s", trials->outcomes[i], ft_outcome_name((enum ft_outcome)i));
    cli_json_set(outcomes, ft_outcome_name((enum ft_outcome)i), json_integer(trials->outcomes[i]));
  }
  cli_field(cli, "trials", "%d%s", trials->total, cli_whole(&counts));
  cli_table_end(cli, &table);
  cli_json(cli, "trials", list);
  cli_json(cli, "outcomes", outcomes);
  ft_text_free(&counts);
}

static json_t *predict(struct cli_table *table, const char *which, const struct ft_request *request,
                       const struct cli_target *target, const struct ft_config *config,
                       const struct ft_score_costs *score, const struct ft_trial *known) {
  const int registers = known == NULL ? 0 : known->registers;
  const struct ft_prediction p = ft_model(request, &target->arch, config, score, registers,
                                          known == NULL ? 0 : known->spill_bytes);
  const struct {
    const char *name;
    double us;
  } terms[] = {{"us", p.us},           {"mma_us", p.mma_us},
               {"exp_us", p.exp_us},   {"issue_us", p.issue_us},
               {"smem_us", p.smem_us}, {"dram_us", p.dram_us}};
  json_t *const object = json_object();
  for (size_t i = 0; i < sizeof terms / sizeof *terms; ++i) {
    cli_json_set(object, terms[i].name, cli_json_real(terms[i].us));
    cli_table_add(table, "%.2f", terms[i].us);
  }
  cli_json_set(object, "waves", cli_json_real(p.waves));
  cli_json_set(object, "occupancy", json_integer(p.occupancy));
  cli_json_set(object, "registers", registers > 0 ? json_integer(registers) : json_null());
  cli_table_add(table, "%.2f", p.waves);
  cli_table_add(table, "%d", p.occupancy);
  cli_table_add(table, "%s%s", which, known == NULL ? " (registers estimated)" : "");
  return object;
}

void cli_explain_model(struct cli *cli, const struct ft_request *request,
                       const struct cli_target *target, const struct ft_score_costs *score,
                       const struct ft_config *chosen, const struct ft_config *standard,
                       const struct cli_trials *trials) {
  struct cli_table table;
  json_t *const model = json_object();
  const bool known = trials->chosen.median_us > 0;
  cli_table_begin(&table, ">model us|>mma|>exp|>issue|>smem|>dram|>waves|>blocks/SM|config");
  cli_json_set(model, "chosen",
               predict(&table, "chosen config", request, target, chosen, score,
                       known ? &trials->chosen : NULL));
  if (ft_config_compare(chosen, standard) != 0) {
    cli_json_set(model, "default",
                 predict(&table, "default config", request, target, standard, score, NULL));
  }
  cli_table_end(cli, &table);
  struct ft_text fit = FT_TEXT_INIT;
  cli_fit_tell(chosen->family, &target->arch, &fit);
  cli_field(cli, "fit", "%s", cli_whole(&fit));
  ft_text_free(&fit);
  cli_json_set(model, "fit", cli_fit_json(chosen->family, &target->arch));
  cli_json(cli, "model", model);
}

/* How many configs each rule rejects, in the order in which they are met. */
struct toll {
  struct {
    const struct ft_rule *rule;
    long rejected;
  } rules[128];
  int count;
};

/* By the rules themselves: of many configs names would be compared longer than all else. */
static void count_rejected(void *payload, const struct ft_rule *rule, long configs) {
  struct toll *const toll = payload;
  enum { MOST = sizeof toll->rules / sizeof *toll->rules };
  int i = 0;
  while (i < toll->count && toll->rules[i].rule != rule) ++i;
  if (i == MOST) return;
  if (i == toll->count) toll->rules[toll->count++].rule = rule;
  toll->rules[i].rejected += configs;
}

/* Rules of several families that have one name are one. */
static void join_names(struct toll *toll) {
  int kept = 0;
  for (int i = 0; i < toll->count; ++i) {
    int same = 0;
    while (same < kept && strcmp(toll->rules[same].rule->name, toll->rules[i].rule->name) != 0)
      ++same;
    if (same < kept)
      toll->rules[same].rejected += toll->rules[i].rejected;
    else
      toll->rules[kept++] = toll->rules[i];
  }
  toll->count = kept;
}

int cli_explain_space(struct cli *cli, const struct ft_request *request,
                      const struct cli_target *target) {
  struct ft_space space;
  struct cli_table table;
  struct toll toll = {0};
  FT_TRY(ft_space_open(&space, request, &target->arch));
  ft_space_count(&space, count_rejected, &toll);
  join_names(&toll);
  json_t *const rules = json_object(), *const counts = json_object();
  cli_table_begin(&table, ">rejected|rule|kind|why");
  for (int i = 0; i < toll.count; ++i) {
    const struct ft_rule *const rule = toll.rules[i].rule;
    cli_table_add(&table, "%ld", toll.rules[i].rejected);
    cli_table_add(&table, "%s", rule->name);
    cli_table_add(&table, "%s", rule->kind == FT_CANNOT_RUN ? "cannot run" : "not worth trying");
    cli_table_add(&table, "%s", rule->reason);
    cli_json_set(rules, rule->name, json_integer(toll.rules[i].rejected));
  }
  cli_field(cli, "space", "%ld configs, %ld legal", space.product, space.legal);
  cli_table_end(cli, &table);
  cli_json_set(counts, "product", json_integer(space.product));
  cli_json_set(counts, "legal", json_integer(space.legal));
  cli_json_set(counts, "rejected", rules);
  cli_json(cli, "space", counts);
  return FT_OK;
}
