/* trial_fill.h: a trial's fields from what is known of a candidate.
 * in -> out: stamp, candidate, compiled kernel, timing -> struct ft_trial. */
#ifndef TUNER_TRIAL_FILL_H
#define TUNER_TRIAL_FILL_H

#include "cache/kernel.h"
#include "tuner/search/candidates.h"
#include "tuner/search/measure.h"

/* Fills a trial with the stamp, which all trials of a search have in common, and the candidate's
 * config. */
void ft_trial_begin(struct ft_trial *trial, const struct ft_trial *stamp,
                    const struct ft_candidate *candidate);
void ft_trial_end(struct ft_trial *trial, enum ft_outcome outcome, const char *reason);

/* Fill in the figures of the compiled kernel, and of a timing. */
void ft_trial_set_kernel(struct ft_trial *trial, const struct ft_kernel *kernel);
void ft_trial_set_timing(struct ft_trial *trial, const struct ft_timing *timing);

/* A candidate is timed if its kernel keeps at most so many bytes of a thread in local memory. If it
 * keeps more, the outcome is `spilled`. Values outside the registers can cost less than a smaller
 * tile. On an H200 kernels of 599 requests in fp32 were timed, whatever they spilled. The fastest
 * kernel of 15 requests kept more than 64 bytes there. That of one request kept more than 192. */
enum { FT_SPILL_TOLERATED = 192 };

/* Whether the compiled kernel is not worth timing: it spills more than FT_SPILL_TOLERATED bytes, or
 * ptxas says (C75xx) that its wgmma run one by one or that setmaxnreg is ignored. The trial is
 * ended then. The default is always timed: the others are compared with it. */
bool ft_trial_ruled_out(struct ft_trial *trial, const struct ft_candidate *candidate,
                        const struct ft_kernel *kernel);

#endif
