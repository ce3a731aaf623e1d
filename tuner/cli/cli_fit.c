/* cli_fit.c: how well the model ranks configs and chooses one, as its fit records it.
 * in -> out: family + GPU -> a sentence, JSON. */
#include "tuner/cli/cli_fit.h"

#include "generator/model/fit.h"
#include "tuner/cli/cli_output.h"

void cli_fit_tell(const struct ft_family *family, const struct ft_arch *arch,
                  struct ft_text *text) {
  const struct ft_fit *const fit = ft_fit_of(family, arch);
  const struct ft_fit_choice *const choice = ft_fit_choice_of(family->pass, arch);
  char target[16];
  ft_arch_target(arch, target);
  if (!fit || !choice) {
    ft_text_add(text, "%s: set by hand; no trials of %s are recorded", family->name, target);
    return;
  }
  ft_text_add(text, "%s: fitted to %d trials of %d requests on %s; ", family->name, fit->trials,
              fit->requests, target);
  if (fit->rank == 0)
    ft_text_add(text, "too few to rank requests held out");
  else
    ft_text_add(text,
                "rank correlation %.2f over requests held out, %.2f over kinds of requests held "
                "out (by hand %.2f), a model without error %.2f; median error %.1f %%",
                fit->rank, fit->kind_rank, fit->rank_by_hand, fit->ceiling, 100 * fit->error);
  ft_text_add(text,
              "; of %d %ss held out the choice has %.3f of the best speed tried, at least %.2f "
              "(defaults %.3f, %.2f)",
              choice->requests, ft_pass_name(family->pass), choice->chosen, choice->chosen_least,
              choice->usual, choice->usual_least);
}

json_t *cli_fit_json(const struct ft_family *family, const struct ft_arch *arch) {
  const struct ft_fit *const fit = ft_fit_of(family, arch);
  const struct ft_fit_choice *const choice = ft_fit_choice_of(family->pass, arch);
  if (!fit || !choice) return json_null();
  json_t *const object = json_object();
  const bool known = fit->rank != 0;
  cli_json_set(object, "family", cli_json_text(family->name));
  cli_json_set(object, "target", cli_json_text(fit->target));
  cli_json_set(object, "used", json_true());
  cli_json_set(object, "trials", json_integer(fit->trials));
  cli_json_set(object, "requests", json_integer(fit->requests));
  cli_json_set(object, "held_out_rank", known ? cli_json_real(fit->rank) : json_null());
  cli_json_set(object, "kinds", json_integer(fit->kinds));
  cli_json_set(object, "held_out_kind_rank", known ? cli_json_real(fit->kind_rank) : json_null());
  cli_json_set(object, "rank_ceiling", known ? cli_json_real(fit->ceiling) : json_null());
  cli_json_set(object, "rank_by_hand", known ? cli_json_real(fit->rank_by_hand) : json_null());
  cli_json_set(object, "held_out_error", known ? cli_json_real(fit->error) : json_null());
  cli_json_set(object, "error_by_hand", known ? cli_json_real(fit->error_by_hand) : json_null());
  cli_json_set(object, "choice_requests", json_integer(choice->requests));
  cli_json_set(object, "choice_over_best", cli_json_real(choice->chosen));
  cli_json_set(object, "choice_least", cli_json_real(choice->chosen_least));
  cli_json_set(object, "default_over_best", cli_json_real(choice->usual));
  cli_json_set(object, "default_least", cli_json_real(choice->usual_least));
  return object;
}
