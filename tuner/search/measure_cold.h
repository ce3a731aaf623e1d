/* measure_cold.h: timing of a kernel whose tensors are not in L2.
 * in -> out: a launch -> samples in microseconds. For `fatune bench --cold`: a search leaves L2
 * warm (measure.h). */
#ifndef TUNER_MEASURE_COLD_H
#define TUNER_MEASURE_COLD_H

#include "tuner/search/measure.h"

#define FT_POLICY_COLD "events-cold/1"

/* Each sample is the time of one launch, before which twice the bytes of L2 were overwritten. Each
 * has in it what an event and the start of a launch take, a microsecond or two. FT_E_DEVICE: as
 * ft_measure. */
int ft_measure_cold(struct ft_timing *timing, fatune_session *session, struct ft_nvml *nvml,
                    const struct ft_runnable *runnable, cu_stream stream);

#endif
