/* trial_run.h: one candidate from its compile to its outcome.
 * in -> out: candidate + what the compiler said -> struct ft_trial, loaded kernel where it runs
 * right. */
#ifndef TUNER_TRIAL_RUN_H
#define TUNER_TRIAL_RUN_H

#include "tuner/search/compile_pool.h"

/* Seconds and names that all trials of one search share; config, outcome and figures are left open.
 */
struct ft_trial_run {
  const struct ft_rig *rig;
  const struct ft_trial *stamp;
};

/* What candidates are measured beside: the best so far. The clock moves by a sixth between an idle
 * GPU and a hot one, so times of two candidates compare only by what each takes beside a third. */
struct ft_pace {
  void *loaded; /* NULL: there is none yet */
  double us;    /* its time on the scale of the screening */
};

/* Load -> verify -> time. *loaded is NULL unless it ran right: then *screen_us is its time on the
 * scale of pace->us. A run much longer than that is timed once only. A failure of the candidate is
 * its outcome and FT_OK; FT_E_DEVICE means that the GPU is lost, with the trial filled in all the
 * same. */
int ft_trial_run(const struct ft_trial_run *run, const struct ft_candidate *candidate,
                 const struct ft_compiled *compiled, const struct ft_pace *pace,
                 struct ft_trial *trial, double *screen_us, void **loaded);

/* Whether a failed compile is the candidate's own fault. */
bool ft_compile_is_candidates(int status);

/* The stamp with the candidate's name, outcome and reason. */
void ft_trial_begin(struct ft_trial *trial, const struct ft_trial *stamp,
                    const struct ft_candidate *candidate);
void ft_trial_end(struct ft_trial *trial, enum ft_outcome outcome, const char *reason);

/* Whether what the compiler made is not worth timing: it spills more than FT_SPILL_TOLERATED bytes,
 * or ptxas says (C75xx) that wgmma runs one by one or that setmaxnreg is ignored. Ends the trial
 * then. The default is timed come what may: it is what the others are compared with. */
bool ft_trial_ruled_out(struct ft_trial *trial, const struct ft_candidate *candidate,
                        const struct ft_kernel *kernel);

/* Figures of the compiled kernel and of a timing. */
void ft_trial_set_kernel(struct ft_trial *trial, const struct ft_kernel *kernel);
void ft_trial_set_timing(struct ft_trial *trial, const struct ft_timing *timing);

#endif
