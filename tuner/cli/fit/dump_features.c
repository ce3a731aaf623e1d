/* dump_features.c: a program for fit.py: what the model computes of recorded trials.
 * in -> out: GPU and a file of trials, one a line in the form of `fatune cache export`, with a
 * comment line between those that were not measured in one run -> a line each on stdout: section,
 * request, family, config, microseconds measured, at the clock that the model reckons with, and
 * predicted by hand, whether it is legal and whether it is the default, features that are not 0 by
 * name. Trials without a time, with a score function, or of knobs that are no more are counted on
 * stderr. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/trial.h"
#include "generator/lua_host.h"
#include "generator/status.h"
#include "generator/model/ranker.h"
#include "generator/model/rates.h"
#include "generator/rules.h"

static bool put_trial(int section, const struct ft_trial *trial, const struct ft_arch *arch) {
  const struct ft_config *const config = &trial->config;
  struct ft_ranker ranker;
  if (!ft_outcome_ran(trial->outcome) || !(trial->median_us > 0)) return false;
  if (trial->request.score != 0 || ft_config_out_of_range(config)) return false;
  if (!ft_family_serves(config->family, &trial->request, arch)) return false;
  if (ft_ranker_open(&ranker, &trial->request, arch, NULL) != FT_OK) return false;
  const struct ft_prediction prediction = ft_ranker_by_hand(&ranker, config);
  ft_ranker_us(&ranker, config, &prediction); /* fills in the features */
  struct ft_text request = FT_TEXT_INIT, text = FT_TEXT_INIT;
  ft_request_print(&trial->request, &request);
  ft_config_print(config, &text);
  const bool legal = ft_rules_broken(&trial->request, arch, config, FT_EVERY_RULE) == NULL;
  const bool usual = ft_config_compare(config, &ranker.standard.config) == 0;
  printf("%d\t%s\t%s\t%s\t%.9g\t%.9g\t%d\t%d", section, request.data, config->family->name,
         text.data, ft_trial_us_at(trial, ft_cycles_per_us(arch)), prediction.us, legal, usual);
  for (int n = 0; n < FT_FEATURES; n++) {
    const float value = ranker.features.of[n];
    if (value != 0) printf("\t%s=%.9g", ft_feature_name((enum ft_feature)n), (double)value);
  }
  putchar('\n');
  ft_text_free(&request);
  ft_text_free(&text);
  return true;
}

static int put_trials(FILE *from, const struct ft_arch *arch) {
  int section = 0, left_out = 0;
  char *line = NULL;
  size_t room = 0;
  while (getline(&line, &room, from) >= 0) {
    struct ft_trial trial;
    line[strcspn(line, "\r\n")] = '\0';
    if (line[0] == '#') section++;
    if (line[0] == '#' || line[0] == '\0') continue;
    if (ft_trial_parse(&trial, line) != FT_OK || !put_trial(section, &trial, arch)) left_out++;
  }
  free(line);
  if (left_out > 0) fprintf(stderr, "dump_features: %d trials left out\n", left_out);
  return ferror(from) || fflush(stdout) != 0;
}

int main(int count, char **words) {
  struct ft_lua *lua;
  struct ft_arch arch;
  FILE *const from = count == 3 ? fopen(words[2], "re") : NULL;
  if (!from || ft_lua_open(&lua, NULL) != FT_OK || ft_lua_gpu(lua, words[1], &arch) != FT_OK) {
    fprintf(stderr, "usage: dump_features GPU TRIALS; %s\n", ft_detail());
    return 2;
  }
  const int code = put_trials(from, &arch);
  fclose(from);
  ft_lua_close(lua);
  return code;
}
