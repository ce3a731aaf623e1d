/* cli_shard.c: which share of the work this process has.
 * in -> out: text and environment -> index and count. */
#include "tuner/cli/cli_shard.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "tuner/cli/cli_values.h"

enum { SHARDS_MOST = 1000000 };

/* A program that starts many processes, and the variables in which it tells each its index and how
 * many there are. */
struct starter {
  const char *index, *count;
  const char *first, *step; /* of the index; NULL: 0, 1 */
};

/* A job may be started many times, and each may consist of ranks. A starter counts only if the
 * variable of its count is set, too: in a batch script without srun Slurm sets SLURM_PROCID, but
 * not SLURM_STEP_NUM_TASKS. */
static const struct starter jobs[] = {{"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT",
                                       "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_STEP"},
                                      {"JOB_COMPLETION_INDEX", NULL, NULL, NULL}};
static const struct starter ranks[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL, NULL},
                                       {"PMI_RANK", "PMI_SIZE", NULL, NULL},
                                       {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", NULL, NULL}};

enum { JOBS = sizeof jobs / sizeof *jobs, RANKS = sizeof ranks / sizeof *ranks };

struct share {
  bool found;
  int64_t index, count; /* count 0: not told */
};

/* *value stays where the variable is not set. */
static int read_variable(const char *name, int64_t low, int64_t *value) {
  const char *const text = name ? getenv(name) : NULL;
  return text ? cli_integer(name, text, low, INT32_MAX, value) : FT_OK;
}

static int read_share(const struct starter *starter, struct share *share) {
  int64_t first = 0, step = 1;
  *share = (struct share){.index = -1};
  FT_TRY(read_variable(starter->index, 0, &share->index));
  FT_TRY(read_variable(starter->count, 1, &share->count));
  FT_TRY(read_variable(starter->first, 0, &first));
  FT_TRY(read_variable(starter->step, 1, &step));
  share->found = share->index >= 0 && (!starter->count || share->count > 0);
  if (!share->found) return FT_OK;
  if (share->index < first || (share->index - first) % step != 0)
    return ft_fail(FT_E_ARGUMENT, "%s is %s; allowed: %lld (%s) and each %lld behind it",
                   starter->index, getenv(starter->index), (long long)first, starter->first,
                   (long long)step);
  share->index = (share->index - first) / step;
  if (share->count == 0 || share->index < share->count) return FT_OK;
  return ft_fail(FT_E_ARGUMENT, "%s is %s and %s %s; allowed: an index below the count",
                 starter->index, getenv(starter->index), starter->count, getenv(starter->count));
}

static int find_share(const struct starter *starters, int count, struct share *share) {
  *share = (struct share){.found = false};
  for (int i = 0; i < count && !share->found; ++i) FT_TRY(read_share(&starters[i], share));
  return FT_OK;
}

/* of: N of --shard auto/N; 0: it was not given. */
static int from_environment(const char *option, int64_t of, int *shard, int *shards) {
  struct share job, rank;
  FT_TRY(find_share(jobs, JOBS, &job));
  FT_TRY(find_share(ranks, RANKS, &rank));
  if (!job.found && !rank.found)
    return ft_fail(FT_E_ARGUMENT,
                   "%s is auto, and none of SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX, "
                   "OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID with its count is set; allowed "
                   "then: K/N",
                   option);
  const int64_t within = rank.found ? rank.count : 1;
  const int64_t index = (job.found ? job.index * within : 0) + (rank.found ? rank.index : 0);
  const int64_t told = job.found ? job.count * within : within;
  const int64_t count = of > 0 ? of : told;
  if (count == 0)
    return ft_fail(FT_E_ARGUMENT,
                   "%s is auto, and JOB_COMPLETION_INDEX comes without a count; allowed: auto/N, N "
                   "being the completions of the job",
                   option);
  if (count > SHARDS_MOST)
    return ft_fail(FT_E_ARGUMENT, "%s: the environment says %lld processes; allowed: at most %d",
                   option, (long long)count, SHARDS_MOST);
  if (index >= count)
    return ft_fail(FT_E_ARGUMENT,
                   "%s: the environment says process %lld of %lld; allowed: an index of 0 to %lld",
                   option, (long long)index + 1, (long long)count, (long long)count - 1);
  *shard = (int)index;
  *shards = (int)count;
  return FT_OK;
}

int cli_shard(const char *option, const char *text, int *shard, int *shards) {
  int64_t index = 0, count = 0;
  if (strcmp(text, "auto") == 0) return from_environment(option, 0, shard, shards);
  if (strncmp(text, "auto/", 5) == 0) {
    FT_TRY(cli_integer("N of --shard auto/N", text + 5, 1, SHARDS_MOST, &count));
    return from_environment(option, count, shard, shards);
  }
  if (!cli_share(text, &index, &count) || index < 1 || count < index || count > SHARDS_MOST) {
    return ft_fail(FT_E_ARGUMENT,
                   "%s is '%s'; allowed: K/N with 1 <= K <= N <= %d, as 1/4, auto, or auto/N",
                   option, text, SHARDS_MOST);
  }
  *shard = (int)index - 1;
  *shards = (int)count;
  return FT_OK;
}
