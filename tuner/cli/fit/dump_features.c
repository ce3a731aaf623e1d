/* dump_features.c: a program for fit.py: what the model computes of recorded trials.
 * in -> out: GPU and a file of trials (trials_file.h) -> a line each on stdout: run, request,
 * family, config, microseconds measured, at the clock that the model reckons with, and predicted by
 * hand, whether it is legal and whether it is the default, features that are not 0 by name. Trials
 * without a time, with a score function, or of knobs that are no more are counted on stderr. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "generator/lua_host.h"
#include "generator/status.h"
#include "generator/model/ranker.h"
#include "generator/model/rates.h"
#include "generator/rules.h"
#include "tuner/cli/fit/trials_file.h"

static bool put_trial(const struct ft_trials *trials, const struct ft_trials_row *row,
                      const struct ft_arch *arch) {
  const struct ft_request *const asked = &trials->requests[row->request].request;
  const struct ft_config *const config = &trials->configs[row->config].config;
  struct ft_ranker ranker;
  if (!ft_trials_ran(trials, row)) return false;
  if (asked->score != 0 || ft_config_out_of_range(config)) return false;
  if (!ft_family_serves(config->family, asked, arch)) return false;
  if (ft_ranker_open(&ranker, asked, arch, NULL) != FT_OK) return false;
  const struct ft_prediction prediction = ft_ranker_by_hand(&ranker, config);
  const struct ft_features features =
      ft_ranker_features(&ranker, &(struct ft_ranked){*config, prediction});
  struct ft_text request = FT_TEXT_INIT, text = FT_TEXT_INIT;
  ft_request_print(asked, &request);
  ft_config_print(config, &text);
  const bool legal = ft_rules_broken(asked, arch, config, FT_EVERY_RULE) == NULL;
  const bool usual = ft_config_compare(config, &ranker.standard.config) == 0;
  printf("%d\t%s\t%s\t%s\t%.9g\t%.9g\t%d\t%d", row->run, request.data, config->family->name,
         text.data, ft_trials_us_at(row, ft_cycles_per_us(arch)), prediction.us, legal, usual);
  for (int n = 0; n < FT_FEATURES; n++) {
    const float value = features.of[n];
    if (value != 0) printf("\t%s=%.9g", ft_feature_name((enum ft_feature)n), (double)value);
  }
  putchar('\n');
  ft_text_free(&request);
  ft_text_free(&text);
  return true;
}

static int put_trials(const struct ft_trials *trials, const struct ft_arch *arch) {
  int left_out = 0;
  for (int n = 0; n < trials->row_count; n++)
    left_out += !put_trial(trials, &trials->rows[n], arch);
  if (left_out > 0) fprintf(stderr, "dump_features: %d trials left out\n", left_out);
  if (trials->unknown[0] != '\0') fprintf(stderr, "dump_features: %s\n", trials->unknown);
  return fflush(stdout) != 0;
}

int main(int count, char **words) {
  struct ft_lua *lua;
  struct ft_arch arch;
  struct ft_trials trials;
  if (count != 3) {
    fprintf(stderr, "usage: dump_features GPU TRIALS\n");
    return 2;
  }
  if (ft_lua_open(&lua, NULL) != FT_OK || ft_lua_gpu(lua, words[1], &arch) != FT_OK ||
      ft_trials_read(&trials, words[2]) != FT_OK) {
    fprintf(stderr, "dump_features: %s\n", ft_detail());
    return 2;
  }
  const int code = put_trials(&trials, &arch);
  ft_trials_free(&trials);
  ft_lua_close(lua);
  return code;
}
