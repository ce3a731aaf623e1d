/* simulated_machine.h: a machine for the search where every candidate's fate and time are known.
 * in -> out: fates, times, drift -> struct ft_rig; a search over it -> rows, summary.
 * Functions are inline where a suite may do without them. */
#ifndef TESTS_SIMULATED_MACHINE_H
#define TESTS_SIMULATED_MACHINE_H

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/store.h"
#include "generator/space.h"
#include "generator/status.h"
#include "tuner/search/on_machine.h"
#include "tuner/search/search.h"

/* ---- the simulated machine ---- */

enum fate { RUNS, WRONG, SPILLS, NO_COMPILE, NO_LOAD, FAULTS, HANGS, SAME_IMAGE, SERIAL };
/* More than any effort tries here: effort normal gives up after some 30 candidates. */
enum { CANDIDATES = 200, ROWS = 2 * CANDIDATES };

struct simulated {
  const struct ft_candidates *candidates;
  enum fate fates[CANDIDATES];
  double us[CANDIDATES]; /* true time of each candidate */
  double drift;          /* factor on all times of the first round of finals */
  double later;          /* factor on all times of its later rounds */
  int changes;           /* in the first so many rounds of finals the clock changes midway */
  double change;         /* factor on all times after that */
  int alone;             /* it concerns this candidate alone; 0: all */
  double noise;          /* samples vary by so much: evenly, and one of ten by ten times that */
  uint64_t random;       /* state of the generator for it */
  int hot;               /* the first so many screenings are of a hot GPU */
  double hot_factor;     /* factor on the times of those */
  bool lost;
  int compile_status; /* status of every compile, unless FT_OK */
  int slow;           /* this candidate, unless it is 0, takes slow_ms to compile */
  int slow_ms;
  int prepared, prepare_status; /* calls of prepare, and what they return */
  _Atomic int compiles;
  int measures, rounds, loads, unloads, kept;
  struct ft_trial rows[ROWS];
  int row_count;
  struct ft_store *store; /* gets the rows too, unless NULL */
  int rows_refused;       /* so many rows are refused from now on, as by a full disk */
};

static int index_of(const struct simulated *machine, const struct ft_config *config) {
  for (int n = 0; n < machine->candidates->count; n++) {
    if (ft_config_compare(&machine->candidates->list[n].config, config) == 0) return n;
  }
  ck_abort_msg("unknown config");
}

static int simulated_compile(void *payload, const struct ft_config *config,
                             struct ft_kernel *kernel) {
  struct simulated *machine = payload;
  const int index = index_of(machine, config);
  machine->compiles++;
  if (index == machine->slow) usleep(1000u * (unsigned)machine->slow_ms);
  *kernel = (struct ft_kernel){0};
  if (machine->compile_status != FT_OK) return ft_fail(machine->compile_status, "simulated");
  if (machine->fates[index] == NO_COMPILE)
    return ft_fail(FT_E_COMPILE, "error: simulated\nin two lines");
  kernel->image = calloc(1, 8);
  kernel->image_size = 8;
  kernel->registers = 100 + index % 7;
  kernel->smem_bytes = 1000 * (1 + index % 5);
  kernel->threads = 128;
  kernel->spill_bytes = machine->fates[index] == SPILLS ? 208 : 0;
  if (machine->fates[index] == SERIAL)
    kernel->log = strdup("ptxas info    : (C7519) warpgroup.arrive is injected in around line 9\n"
                         "ptxas info    : (C7512) Potential Performance Loss: wgmma.mma_async "
                         "instructions are serialized due to insufficient register resources in "
                         "the function 'fatune_kernel'\n");
  const int name = machine->fates[index] == SAME_IMAGE ? index - 1 : index;
  if (name != index) kernel->smem_bytes = 1000 * (1 + name % 5);
  kernel->image_digest = ft_digest_of(&name, sizeof name);
  kernel->key = kernel->image_digest;
  strcpy(kernel->nvrtc, "13.0.0");
  return FT_OK;
}

static int simulated_prepare(void *payload) {
  struct simulated *machine = payload;
  machine->prepared++;
  return machine->prepare_status == FT_OK ? FT_OK : ft_fail(machine->prepare_status, "simulated");
}

static int simulated_load(void *payload, const struct ft_config *config,
                          const struct ft_kernel *kernel, void **loaded) {
  struct simulated *machine = payload;
  const int index = index_of(machine, config);
  ck_assert_ptr_nonnull(kernel->image);
  if (machine->fates[index] == NO_LOAD) return ft_fail(FT_E_DEVICE, "simulated refusal");
  int *handle = malloc(sizeof *handle);
  *handle = index;
  *loaded = handle;
  machine->loads++;
  return FT_OK;
}

static void simulated_unload(void *payload, void *loaded) {
  struct simulated *machine = payload;
  machine->unloads++;
  free(loaded);
}

static int simulated_verify(void *payload, void *loaded, struct ft_comparison *comparison) {
  struct simulated *machine = payload;
  const int index = *(int *)loaded;
  *comparison = (struct ft_comparison){.error_ratio = machine->fates[index] == WRONG ? NAN : 0.4};
  strcpy(comparison->worst, "O is off");
  machine->lost = machine->fates[index] == FAULTS || machine->fates[index] == HANGS;
  return machine->lost ? ft_fail(FT_E_DEVICE, "simulated fault") : FT_OK;
}

/* Evenly from 0 to 1. */
static double by_chance(struct simulated *machine) {
  machine->random = machine->random * 6364136223846793005u + 1442695040888963407u;
  return (double)(machine->random >> 11) * 0x1p-53;
}

/* Another job delays, and never hurries. */
static double disturbance(struct simulated *machine) {
  if (machine->noise == 0) return 1;
  const double much = by_chance(machine) < 0.1 ? 10 : 1;
  return 1 + much * machine->noise * by_chance(machine);
}

/* Samples 0.1 % apart around the true time. */
static void take_samples(struct simulated *machine, int index, double factor, int count,
                         struct ft_timing *timing) {
  *timing = (struct ft_timing){.sample_count = count, .sm_clock_mhz = 1500};
  for (int n = 0; n < count; n++) {
    timing->samples_us[n] =
        machine->us[index] * factor * (1 + 0.001 * (n % 3 - 1)) * disturbance(machine);
  }
  ft_timing_summarise(timing);
}

static int simulated_measure(void *payload, void *loaded, void *incumbent, double give_up_us,
                             struct ft_timing *timing, struct ft_timing *beside) {
  struct simulated *machine = payload;
  const int index = *(int *)loaded;
  ck_assert_msg(machine->fates[index] == RUNS || index == 0, "candidate %d must not be timed",
                index);
  const double factor = machine->measures++ < machine->hot ? machine->hot_factor : 1;
  const bool gives_up = give_up_us > 0 && machine->us[index] * factor > give_up_us;
  take_samples(machine, index, factor, gives_up ? 1 : 5, timing);
  *beside = (struct ft_timing){0};
  if (incumbent && !gives_up) take_samples(machine, *(int *)incumbent, factor, 5, beside);
  return FT_OK;
}

static int simulated_round(void *payload, void *const *loaded, int count,
                           struct ft_timing *timings) {
  struct simulated *machine = payload;
  const bool changes = machine->rounds < machine->changes;
  const double factor = machine->rounds++ == 0 ? machine->drift : machine->later;
  for (int n = 0; n < count; n++) {
    const int index = *(int *)loaded[n];
    take_samples(machine, index, factor, 24, &timings[n]);
    if (!changes || (machine->alone != 0 && machine->alone != index)) continue;
    for (int i = 12; i < 24; i++) timings[n].samples_us[i] *= machine->change;
    ft_timing_summarise(&timings[n]);
  }
  return FT_OK;
}

static enum ft_health simulated_health(void *payload) {
  struct simulated *machine = payload;
  if (!machine->lost) return FT_HEALTH_GOOD;
  for (int n = 0; n < machine->candidates->count; n++) {
    if (machine->fates[n] == HANGS) return FT_HEALTH_BUSY;
  }
  return FT_HEALTH_LOST;
}

static int simulated_record(void *payload, const struct ft_trial *trial) {
  struct simulated *machine = payload;
  if (machine->rows_refused > 0) {
    machine->rows_refused--;
    return ft_fail(FT_E_CACHE, "simulated full disk");
  }
  ck_assert_int_lt(machine->row_count, ROWS);
  machine->rows[machine->row_count++] = *trial;
  return machine->store ? ft_store_trial_put(machine->store, trial) : FT_OK;
}

static bool simulated_recall(void *payload, const struct ft_config *config,
                             struct ft_trial *trial) {
  struct simulated *machine = payload;
  for (int n = machine->row_count - 1; n >= 0; n--) {
    if (ft_config_compare(&machine->rows[n].config, config) != 0) continue;
    *trial = machine->rows[n];
    return true;
  }
  return false;
}

static int simulated_keep(void *payload, const struct ft_kernel *kernel) {
  struct simulated *machine = payload;
  ck_assert_ptr_nonnull(kernel->image);
  machine->kept++;
  return FT_OK;
}

/* ---- what all tests begin with ---- */

static const struct ft_arch arch = {.name = "simulated",
                                    .sm = 80,
                                    .sm_count = 132,
                                    .smem_per_block = 232448,
                                    .smem_per_sm = 233472,
                                    .smem_reserved = 1024,
                                    .regs_per_sm = 65536,
                                    .threads_per_sm = 2048,
                                    .blocks_per_sm = 32,
                                    .clock_ghz = 1.98,
                                    .dram_gbs = 4800,
                                    .mma_flops_per_clk = 2048};

static struct ft_request the_request(void) {
  struct ft_request request;
  ck_assert_int_eq(ft_request_parse(&request, "forward bf16 d64 hq16 b2 nq2048"), FT_OK);
  return request;
}

/* A machine on which everything runs: the default takes 150 us, the other candidates from 100 us
 * on, each 0.2 % longer than the one before. It has the first CANDIDATES of the space, so that the
 * tests take the same time however large the space is. */
struct setting {
  struct ft_candidates candidates;
  struct simulated *machine;
  struct ft_rig rig;
  struct ft_trial stamp;
  struct ft_tune_options options;
  struct ft_tune_summary summary;
};

static struct setting *setting_make(enum ft_effort effort) {
  struct setting *s = calloc(1, sizeof *s);
  const struct ft_request request = the_request();
  s->options = (struct ft_tune_options){.effort = effort, .jobs = 2};
  ck_assert_msg(ft_candidates_make(&s->candidates, &request, &arch, NULL, &s->options) == FT_OK,
                "%s", ft_detail());
  if (s->candidates.count > CANDIDATES) s->candidates.count = CANDIDATES;
  s->machine = calloc(1, sizeof *s->machine);
  s->machine->candidates = &s->candidates;
  s->machine->drift = s->machine->later = 1;
  for (int n = 0; n < s->candidates.count; n++)
    s->machine->us[n] = n == 0 ? 150 : 100 * pow(1.002, n);
  s->rig = (struct ft_rig){.payload = s->machine,
                           .compile = simulated_compile,
                           .prepare = simulated_prepare,
                           .load = simulated_load,
                           .unload = simulated_unload,
                           .verify = simulated_verify,
                           .measure = simulated_measure,
                           .measure_in_turn = simulated_round,
                           .health = simulated_health,
                           .record = simulated_record,
                           .recall = simulated_recall,
                           .keep = simulated_keep};
  s->stamp = (struct ft_trial){.request = request, .bucket = ft_request_bucket(&request)};
  strcpy(s->stamp.device, "simulated/sm_80/132");
  strcpy(s->stamp.policy, FT_POLICY);
  return s;
}

static int search_by(struct setting *s, const struct ft_measuring *measuring) {
  const struct ft_search_inputs in = {.rig = &s->rig,
                                      .measuring = measuring,
                                      .candidates = &s->candidates,
                                      .stamp = &s->stamp,
                                      .options = &s->options};
  s->summary = (struct ft_tune_summary){0};
  const int status = ft_search(&in, &s->summary);
  ck_assert_int_eq(s->machine->loads, s->machine->unloads);
  return status;
}

static inline int search(struct setting *s) {
  struct ft_measuring measuring;
  ck_assert_int_eq(ft_measuring_on_machine(&measuring, &s->rig, &s->candidates), FT_OK);
  const int status = search_by(s, &measuring);
  ft_measuring_off_machine(&measuring);
  return status;
}

static void setting_free(struct setting *s) {
  ft_store_close(s->machine->store);
  ft_candidates_free(&s->candidates);
  free(s->machine);
  free(s);
}

static inline int rows_of(const struct setting *s, int candidate, const struct ft_trial **row) {
  int count = 0;
  for (int n = 0; n < s->machine->row_count; n++) {
    if (ft_config_compare(&s->machine->rows[n].config, &s->candidates.list[candidate].config) != 0)
      continue;
    if (row) *row = &s->machine->rows[n];
    count++;
  }
  return count;
}

static inline int best_of(const struct setting *s) {
  return index_of(s->machine, &s->summary.best);
}

#endif
