/* choice.c: the config of a request.
 * in -> out: request + GPU -> what the caches know, where it is legal here; else the default, or
 * what the model puts before it. */
#include "runtime/choice.h"

#include <stdio.h>
#include <string.h>

#include "generator/model/choice.h"
#include "generator/model/fit.h"
#include "generator/rules.h"
#include "generator/space.h"
#include "generator/status.h"
#include "runtime/device.h"
#include "runtime/scores.h"
#include "runtime/session.h"

/* The default, or what the model puts before it. */
static int choose_unmeasured(fatune_session *session, const struct ft_request *request,
                             const struct ft_arch *arch, const char *why,
                             struct ft_choice *choice) {
  const struct ft_score_costs *score;
  double gain;
  memset(choice, 0, sizeof *choice);
  FT_TRY(ft_session_score_costs(session, request->score, &score));
  FT_TRY(ft_model_choose(request, arch, score, &choice->config, &gain));
  choice->hit = gain > 1 ? FT_HIT_MODEL : FT_HIT_DEFAULT;
  const bool asked = ft_fit_choice_of(request->pass, arch) != NULL;
  snprintf(choice->note, sizeof choice->note, "%s%s", why,
           asked ? "; the model puts nothing before the default" : "");
  if (gain > 1)
    snprintf(choice->note, sizeof choice->note,
             "%s; by the model the default takes %.2f times as long", why, gain);
  return FT_OK;
}

/* A default knows the sizes of its request, and what was learnt since; a copy of one does not. */
static int choose_default_of(const struct ft_request *request, const struct ft_arch *arch,
                             struct ft_choice *choice) {
  const size_t length = strlen(choice->note);
  const struct ft_config winner = choice->config;
  snprintf(choice->note + length, sizeof choice->note - length, "; the default won there");
  FT_TRY(ft_default_config(request, arch, &choice->config));
  if (ft_config_compare(&winner, &choice->config) == 0) return FT_OK;
  choice->kernel = (struct ft_digest){0};
  choice->median_us = 0;
  return FT_OK;
}

static void say_why_unmeasured(const struct ft_choice *known, char *why, size_t room) {
  const bool is_beyond = known->octaves > 0;
  snprintf(why, room, "nothing measured or predicted");
  if (is_beyond)
    snprintf(why, room,
             "nothing measured near enough, nor predicted; the nearest winner is %.3g "
             "octave%s away",
             known->octaves, known->octaves == 1 ? "" : "s");
}

static int choose(fatune_session *session, const struct ft_request *request,
                  const struct ft_arch *arch, const char *device_class, bool from_anywhere,
                  struct ft_choice *choice) {
  char why[256];
  memset(choice, 0, sizeof *choice);
  FT_TRY(ft_rules_serves(request, arch));
  char target[16];
  ft_arch_target(arch, target);
  const struct ft_query query = {.request = request,
                                 .device = device_class,
                                 .target = target,
                                 .templates = &session->templates,
                                 .from_anywhere = from_anywhere};
  FT_TRY(ft_store_choose(session->store, &query, choice));
  if (choice->default_won && !from_anywhere) return choose_default_of(request, arch, choice);
  if (choice->hit == FT_HIT_DEFAULT) {
    say_why_unmeasured(choice, why, sizeof why);
    return choose_unmeasured(session, request, arch, why, choice);
  }

  /* A winner of another GPU, or from before a rule was added, may break a rule here. */
  const struct ft_rule *const broken =
      ft_rules_broken(request, arch, &choice->config, FT_EVERY_RULE);
  if (!broken) return FT_OK;
  snprintf(why, sizeof why, "the known winner breaks rule %s", broken->name);
  return choose_unmeasured(session, request, arch, why, choice);
}

int ft_session_choose(fatune_session *session, const struct ft_request *request,
                      const struct ft_arch *arch, const char *device_class,
                      struct ft_choice *choice) {
  char of_table[96];
  if (!device_class) {
    ft_device_class(arch, of_table);
    device_class = of_table;
  }
  return choose(session, request, arch, device_class, false, choice);
}

int ft_session_choose_from_anywhere(fatune_session *session, const struct ft_request *request,
                                    struct ft_choice *choice) {
  return choose(session, request, &session->device.arch, session->device.id, true, choice);
}

bool ft_session_named_kernel(fatune_session *session, const struct ft_request *request,
                             const struct ft_arch *arch, const struct ft_config *config,
                             struct ft_digest *key) {
  char target[16];
  ft_arch_target(arch, target);
  const struct ft_query query = {
      .request = request, .target = target, .templates = &session->templates};
  return ft_store_kernel_of_config(session->store, &query, config, key) == FT_OK;
}
