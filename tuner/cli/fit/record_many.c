/* record_many.c: a program that times many kernels at many sizes each, for record_many.py,
 * record.py and bench/tune_quality.py. in -> out: requests -> their configs in a search's order; a
 * list of requests and configs -> kernels in the cache (FATUNE_CACHE_DIR) -> trials
 * (trials_file.h). Exit code 9 where the GPU's context was lost: the number on the last line of
 * stdout is the request to go on with, in another process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/lua_host.h"
#include "generator/model/choice.h"
#include "generator/status.h"
#include "runtime/session.h"
#include "tuner/cli/fit/many_compile.h"
#include "tuner/cli/fit/many_replay.h"
#include "tuner/cli/fit/many_run.h"
#include "tuner/cli/fit/trials_append.h"
#include "tuner/cli/fit/trials_file.h"
#include "tuner/search/candidates.h"

enum { LOST = 9, FAILED = 2 };

static const char usage[] =
    "usage: record_many configs GPU COUNT REQUESTS\n"
    "           of each request the default, the choice before anything is measured, then COUNT "
    "at\n"
    "           most in the order of a search, each with its predicted microseconds\n"
    "       record_many compile GPU LIST JOBS SECONDS\n"
    "           the kernels of such a list; no GPU is needed\n"
    "       record_many run LIST OUT FINALISTS SECONDS FROM [WHAT]\n"
    "           times them, from the request FROM on; trials go behind those in OUT, as those of a "
    "run\n"
    "           of which WHAT says what it was\n"
    "       record_many pack TRIALS OUT [WHAT]\n"
    "           trials as `fatune cache export` writes them (-: from stdin) go behind those in "
    "OUT; "
    "a\n"
    "           line \"# what it was\" begins each run but the one that WHAT says\n"
    "       record_many show TRIALS REQUESTS\n"
    "           their trials: request, outcome, microseconds, MHz, error ratio, config\n"
    "       record_many replay GPU TRIALS JOBS REQUESTS\n"
    "           what a search of normal effort over these times finds: how many were tried, how "
    "many\n"
    "           of them have no trial, microseconds of the default and of what was found, its "
    "config\n"
    "REQUESTS is a file of one a line, or -\n";

static int fail(void) {
  fprintf(stderr, "record_many: %s\n", ft_detail());
  return FAILED;
}

struct asked {
  int count; /* configs at most, or jobs */
  const char *trials;
  struct ft_trials *read; /* what is in that file */
};

/* ---- configs ---- */

static void put_config(const struct ft_candidate *candidate) {
  struct ft_text text = FT_TEXT_INIT;
  ft_config_print(&candidate->config, &text);
  if (text.data) printf("C %s\t%.2f\n", text.data, candidate->predicted_us);
  ft_text_free(&text);
}

static int put_configs(const char *text, const struct ft_arch *arch, const struct asked *asked) {
  const struct ft_tune_options options = {.effort = FT_EFFORT_EXHAUSTIVE};
  struct ft_request request;
  struct ft_candidates all;
  struct ft_config chosen;
  double gain;
  FT_TRY(ft_request_parse(&request, text));
  FT_TRY(ft_candidates_make(&all, &request, arch, NULL, &options));
  int status = ft_model_choose(&request, arch, NULL, &chosen, &gain);
  if (status == FT_OK) status = ft_candidates_lead(&all, &chosen, 0);
  if (status == FT_OK) printf("R %s\n", text);
  for (int n = 0; status == FT_OK && n < all.count && n < asked->count; n++)
    put_config(&all.list[n]);
  ft_candidates_free(&all);
  return status;
}

/* ---- replay ---- */

static int put_replay(const char *text, const struct ft_arch *arch, const struct asked *asked) {
  struct ft_request request;
  struct ft_tune_summary found;
  struct ft_text config = FT_TEXT_INIT;
  int missing;
  FT_TRY(ft_request_parse(&request, text));
  FT_TRY(ft_many_replay(asked->trials, &request, arch, asked->count, &found, &missing));
  ft_config_print(&found.best, &config);
  if (config.data)
    printf("%s\t%d\t%d\t%.4f\t%.4f\t%s\n", text, found.tried, missing, found.default_us,
           found.best_us, config.data);
  ft_text_free(&config);
  return FT_OK;
}

/* ---- show ---- */

/* Rows are few thousands, and requests one or two. */
static int put_rows(const char *text, const struct ft_arch *arch, const struct asked *asked) {
  struct ft_request request;
  struct ft_text wanted = FT_TEXT_INIT;
  const struct ft_trials *const trials = asked->read;
  (void)arch;
  FT_TRY(ft_request_parse(&request, text));
  ft_request_print(&request, &wanted);
  const int status = ft_text_status(&wanted);
  for (int n = 0; n < trials->row_count && status == FT_OK; n++) {
    const struct ft_trials_row *const row = &trials->rows[n];
    if (strcmp(trials->requests[row->request].text, wanted.data) != 0) continue;
    printf("%s\t%s\t%.6g\t%d\t%.2g\t%s\n", wanted.data, ft_outcome_name(row->outcome),
           row->median_us, row->sm_clock_mhz, row->error_ratio, trials->configs[row->config].text);
  }
  ft_text_free(&wanted);
  return status;
}

/* ---- what is asked of each request ---- */

static int each_request(const char *gpu, const char *path,
                        int (*put)(const char *, const struct ft_arch *, const struct asked *),
                        const struct asked *asked) {
  struct ft_lua *lua;
  struct ft_arch arch;
  char *line = NULL;
  size_t room = 0;
  int refused = 0;
  FILE *const from = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
  if (!from) ft_fail(FT_E_IO, "%s cannot be read", path);
  if (!from || ft_lua_open(&lua, NULL) != FT_OK || (gpu && ft_lua_gpu(lua, gpu, &arch) != FT_OK))
    return fail();
  while (getline(&line, &room, from) >= 0) {
    line[strcspn(line, "\r\n")] = '\0';
    if (line[0] == '\0' || put(line, &arch, asked) == FT_OK) continue;
    fprintf(stderr, "passed over: %s: %s\n", line, ft_detail());
    refused += 1;
  }
  free(line);
  fclose(from);
  ft_lua_close(lua);
  return refused > 0 ? FAILED : 0;
}

/* ---- compile, run ---- */

static int compile(const char *gpu, const char *path, int jobs, double seconds) {
  fatune_session *session;
  struct ft_many_list list;
  struct ft_arch arch;
  struct ft_many_compiled done = {0};
  if (ft_many_list_read(&list, path) != FT_OK || fatune_session_open(&session, NULL) != FT_OK)
    return fail();
  int status = ft_lua_gpu(session->lua, gpu, &arch);
  if (status == FT_OK) status = ft_many_compile(session, &arch, &list, jobs, seconds, &done);
  const int code = status == FT_OK ? 0 : fail();
  if (status == FT_OK)
    printf("%d kernels of %d items, %d compiled now, %d failed, %.1f s%s\n", done.kernels,
           list.item_count, done.compiled, done.failed, done.seconds,
           done.out_of_time ? ", out of time" : "");
  fatune_session_close(session);
  ft_many_list_free(&list);
  return code != 0 ? code : done.failed > 0;
}

static int run(const char *path, const char *out, const char *what, struct ft_many_run all) {
  fatune_session *session;
  struct ft_many_list list;
  if (ft_many_list_read(&list, path) != FT_OK ||
      ft_trials_append_open(&all.out, out, what) != FT_OK ||
      fatune_session_open(&session, NULL) != FT_OK)
    return fail();
  const int status = ft_many_run(session, &list, &all);
  int code = status == FT_OK ? 0 : fail();
  if (ft_trials_append_close(all.out) != FT_OK) code = fail();
  printf("%d requests, %d timed, %d without a kernel, %d ruled out, %d failed, %d wrong\n%d\n",
         all.requests, all.timed, all.missing, all.ruled_out, all.failed, all.wrong, all.next);
  fflush(stdout);
  if (status == FT_E_DEVICE) _Exit(LOST); /* closing would wait for the GPU */
  fatune_session_close(session);
  ft_many_list_free(&list);
  return code;
}

/* ---- trials that are there ---- */

static int pack(const char *path, const char *out, const char *what) {
  struct ft_trials_append *append;
  const bool is_stdin = strcmp(path, "-") == 0;
  int number;
  FILE *const from = is_stdin ? stdin : fopen(path, "re");
  if (!from) ft_fail(FT_E_IO, "%s cannot be read", path);
  if (!from || ft_trials_append_open(&append, out, what) != FT_OK) return fail();
  int status = ft_trials_append_text(append, from, is_stdin ? "stdin" : path, &number);
  const int code = status == FT_OK ? 0 : fail();
  status = ft_trials_append_close(append);
  fclose(from);
  printf("%d trials\n", number);
  return status == FT_OK ? code : fail();
}

static int show(const char *path, const char *requests) {
  struct ft_trials trials;
  if (ft_trials_read(&trials, path) != FT_OK) return fail();
  const int code = each_request(NULL, requests, put_rows, &(struct asked){.read = &trials});
  ft_trials_free(&trials);
  return code;
}

static double number_of(const char *text) {
  char *end;
  const double number = strtod(text, &end);
  if (end != text && *end == '\0') return number;
  fprintf(stderr, "record_many: '%s' is no number\n", text);
  exit(FAILED);
}

int main(int count, char **words) {
  const char *const what = count > 1 ? words[1] : "";
  if (strcmp(what, "configs") == 0 && count == 5)
    return each_request(words[2], words[4], put_configs,
                        &(struct asked){.count = (int)number_of(words[3])});
  if (strcmp(what, "replay") == 0 && count == 6)
    return each_request(words[2], words[5], put_replay,
                        &(struct asked){.count = (int)number_of(words[4]), .trials = words[3]});
  if (strcmp(what, "compile") == 0 && count == 6)
    return compile(words[2], words[3], (int)number_of(words[4]), number_of(words[5]));
  if (strcmp(what, "run") == 0 && (count == 7 || count == 8))
    return run(words[2], words[3], count == 8 ? words[7] : "record_many",
               (struct ft_many_run){.finalists = (int)number_of(words[4]),
                                    .seconds = number_of(words[5]),
                                    .from = (int)number_of(words[6])});
  if (strcmp(what, "pack") == 0 && (count == 4 || count == 5))
    return pack(words[2], words[3], count == 5 ? words[4] : NULL);
  if (strcmp(what, "show") == 0 && count == 4) return show(words[2], words[3]);
  fputs(usage, stderr);
  return FAILED;
}
