/* cli_fit.c: how well the model ranks configs, as its fit records it.
 * in -> out: family + GPU -> a sentence, JSON. */
#include "tuner/cli/cli_fit.h"

#include "tuner/cli/cli_output.h"
#include "tuner/model/fit.h"

void cli_fit_tell(const struct ft_family *family, const struct ft_arch *arch,
                  struct ft_text *text) {
  const struct ft_fit *const fit = ft_fit_of(family, arch);
  char target[16];
  ft_arch_target(arch, target);
  if (!fit) {
    ft_text_add(text, "%s: set by hand; no trials of %s are recorded", family->name, target);
    return;
  }
  ft_text_add(text, "%s: %s %d trials of %d requests on %s; ", family->name,
              fit->used ? "fitted to" : "set by hand, beside", fit->trials, fit->requests, target);
  if (fit->rank == 0) {
    ft_text_add(text, "too few to rank requests held out");
    return;
  }
  if (!fit->used) ft_text_add(text, "rank correlation %.2f; a fit would have ", fit->rank_by_hand);
  ft_text_add(text, "%s%.2f over requests held out, %.2f over kinds of requests held out",
              fit->used ? "rank correlation " : "", fit->rank, fit->kind_rank);
  if (fit->used) ft_text_add(text, " (by hand %.2f)", fit->rank_by_hand);
  ft_text_add(text, ", a model without error %.2f; median error %.1f %%", fit->ceiling,
              100 * (fit->used ? fit->error : fit->error_by_hand));
}

json_t *cli_fit_json(const struct ft_family *family, const struct ft_arch *arch) {
  const struct ft_fit *const fit = ft_fit_of(family, arch);
  if (!fit) return json_null();
  json_t *const object = json_object();
  const bool known = fit->rank != 0;
  cli_json_set(object, "family", cli_json_text(family->name));
  cli_json_set(object, "target", cli_json_text(fit->target));
  cli_json_set(object, "used", json_boolean(fit->used));
  cli_json_set(object, "trials", json_integer(fit->trials));
  cli_json_set(object, "requests", json_integer(fit->requests));
  cli_json_set(object, "held_out_rank", known ? cli_json_real(fit->rank) : json_null());
  cli_json_set(object, "kinds", json_integer(fit->kinds));
  cli_json_set(object, "held_out_kind_rank", known ? cli_json_real(fit->kind_rank) : json_null());
  cli_json_set(object, "rank_ceiling", known ? cli_json_real(fit->ceiling) : json_null());
  cli_json_set(object, "rank_by_hand", known ? cli_json_real(fit->rank_by_hand) : json_null());
  cli_json_set(object, "held_out_error", known ? cli_json_real(fit->error) : json_null());
  cli_json_set(object, "error_by_hand", known ? cli_json_real(fit->error_by_hand) : json_null());
  return object;
}
