/* gpu_emulated.h: the runs of the matrix once more, on an emulated GPU, by processes of their own,
 * one on each core, while the GPU works.
 * in -> out: cases -> a file of jobs, processes -> a file of outputs for each run. */
#ifndef TESTS_GPU_GPU_EMULATED_H
#define TESTS_GPU_GPU_EMULATED_H

#include "tests/gpu/gpu_cases.h"
#include "tests/gpu/gpu_outputs.h"

/* Starts them. FT_E_NO_CXX where the emulator has no compiler. */
int gpu_emulated_start(const struct gpu_case *cases, int count);
/* Waits for them; how many failed. What was wrong is on stderr. */
int gpu_emulated_wait(void);
/* What the run of a case with a config left; the counts of output as in gpu_output_load. */
int gpu_emulated_load(struct gpu_output *output, int index, int config);

/* One of the processes: every job of the file whose number is `first` modulo `step`. */
int gpu_emulated_child(const char *jobs, int first, int step);

#endif
