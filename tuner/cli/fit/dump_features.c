/* dump_features.c: a program for fit.py: what the model computes of recorded trials.
 * in -> out: GPU and a file of trials, one a line in the form of `fatune cache export`, with a
 * comment line between those that were not measured in one run -> a line each on stdout: section,
 * request, family, config, microseconds measured, at the clock that the model reckons with, and
 * predicted by hand, features that are not 0 as quality, setting and value. Trials without a time,
 * with a score function, or of knobs that are no more are counted on stderr. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/trial.h"
#include "generator/lua_host.h"
#include "generator/status.h"
#include "tuner/model/features.h"
#include "tuner/model/model.h"
#include "tuner/model/rates.h"

static void put(const struct ft_features *features, const char *quality, double size) {
  for (int n = 0; n < FT_SETTINGS && size != 0; n++) {
    const double value = size * features->settings[n];
    if (value != 0) printf("\t%s %s %.9g", quality, ft_setting_name(n), value);
  }
}

static void put_features(const struct ft_features *features, const struct ft_config *config) {
  for (int n = 0; n < FT_TERMS; n++) put(features, ft_term_name(n), features->terms[n]);
  for (int n = 0; n < config->family->knob_count; n++) {
    const struct ft_knob *const knob = &config->family->knobs[n];
    char quality[64];
    if (knob->searched_count < 2 || ft_searched_place(knob, config->knobs[n]) < 0) continue;
    snprintf(quality, sizeof quality, "%s=%d", knob->name, config->knobs[n]);
    put(features, quality, 1);
  }
}

static bool put_trial(int section, const struct ft_trial *trial, const struct ft_arch *arch) {
  const struct ft_request alike = ft_request_alike(&trial->request);
  const struct ft_modelled of = {.request = &alike, .arch = arch, .config = &trial->config};
  if (!ft_outcome_ran(trial->outcome) || !(trial->median_us > 0)) return false;
  if (alike.score != 0 || ft_config_out_of_range(&trial->config)) return false;
  if (!ft_family_serves(trial->config.family, &alike, arch)) return false;
  const struct ft_prediction prediction = ft_model_by_hand(&of);
  const struct ft_features features = ft_features_of(&of, &prediction);
  struct ft_text request = FT_TEXT_INIT, config = FT_TEXT_INIT;
  ft_request_print(&trial->request, &request);
  ft_config_print(&trial->config, &config);
  printf("%d\t%s\t%s\t%s\t%.9g\t%.9g", section, request.data, trial->config.family->name,
         config.data, ft_trial_us_at(trial, ft_cycles_per_us(arch)), prediction.us);
  put_features(&features, &trial->config);
  putchar('\n');
  ft_text_free(&request);
  ft_text_free(&config);
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
