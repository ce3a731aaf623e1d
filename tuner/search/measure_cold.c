/* measure_cold.c: one launch after L2 was overwritten, between two events, many times.
 * in -> out: a runnable -> samples, median, spread, clock.
 * All is queued before the first sample is waited for, so the GPU is busy overwriting L2 while the
 * host enqueues what is timed. */
#include "tuner/search/measure_cold.h"

#include "generator/status.h"
#include "tuner/verify/stopwatch.h"

enum { SAMPLES = 25, WORD = 4 };

_Static_assert((int)FT_STOPWATCH_EVENTS >= 2 * SAMPLES && SAMPLES <= (int)FT_TRIAL_SAMPLES,
               "two events a sample");

/* Twice L2, so that no line of the tensors stays, whichever lines the hardware prefers to keep. */
static size_t words_over_l2(const fatune_session *session) {
  return (size_t)session->device.arch.l2_bytes * 2 / WORD;
}

static int sample(struct ft_stopwatch *watch, cu_address memory, size_t words,
                  const struct ft_runnable *runnable) {
  for (int n = 0; n < SAMPLES; n++) {
    FT_TRY(ft_driver_status(watch->driver,
                            watch->driver->set_words(memory, (unsigned)n, words, watch->stream),
                            "cuMemsetD32Async"));
    FT_TRY(ft_stopwatch_record(watch, 2 * n));
    FT_TRY(runnable->launch(runnable->payload, watch->stream));
    FT_TRY(ft_stopwatch_record(watch, 2 * n + 1));
  }
  return FT_OK;
}

int ft_measure_cold(struct ft_timing *timing, fatune_session *session, struct ft_nvml *nvml,
                    const struct ft_runnable *runnable, cu_stream stream) {
  const struct ft_driver *const driver = &session->driver;
  const size_t words = words_over_l2(session);
  struct ft_stopwatch watch;
  cu_address memory = 0;
  int status;
  *timing = (struct ft_timing){0};
  FT_CHECK(ft_stopwatch_open(&watch, session, stream, 2 * SAMPLES));
  FT_CHECK(ft_driver_status(driver, driver->memory_alloc(&memory, words * WORD), "cuMemAlloc"));
  FT_CHECK(runnable->launch(runnable->payload, stream)); /* loads its code */
  FT_CHECK(sample(&watch, memory, words, runnable));
  timing->sm_clock_mhz = ft_nvml_sm_clock(nvml); /* the samples are running now */
  FT_CHECK(ft_stopwatch_wait(&watch, 2 * SAMPLES - 1));
  for (int n = 0; n < SAMPLES; n++)
    FT_CHECK(ft_stopwatch_interval(&watch, 2 * n, &timing->samples_us[timing->sample_count++]));
  ft_timing_summarise(timing);
done:
  if (memory != 0) driver->memory_free(memory);
  ft_stopwatch_close(&watch);
  return status;
}
