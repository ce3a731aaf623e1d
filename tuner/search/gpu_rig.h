/* gpu_rig.h: the rig of a session: its compiler, its GPU, its store.
 * in -> out: session + request + arch -> struct ft_rig, struct ft_trial stamp. */
#ifndef TUNER_GPU_RIG_H
#define TUNER_GPU_RIG_H

#include "generator/arch.h"
#include "tuner/search/rig.h"
#include "tuner/search/tune_options.h"

struct ft_gpu_rig;

/* The rig can compile, record, recall and keep. here: rows are of the session's GPU, else of the
 * arch. */
int ft_gpu_rig_open(struct ft_gpu_rig **rig, fatune_session *session,
                    const struct ft_request *request, const struct ft_arch *arch,
                    const struct ft_tune_options *options, bool here);
/* Then it can do the rest, too: the problem to verify and the one to time are made on the session's
 * GPU. Its context stays current for this thread, which has to be the one that closes the rig. */
int ft_gpu_rig_enter(struct ft_gpu_rig *rig);
void ft_gpu_rig_close(struct ft_gpu_rig *rig);

const struct ft_rig *ft_gpu_rig_functions(const struct ft_gpu_rig *rig);
const struct ft_trial *ft_gpu_rig_stamp(const struct ft_gpu_rig *rig);

/* The small problem that each candidate must get right: all features of the request, odd lengths,
 * strides with gaps, several tiles of every block size. */
struct ft_request ft_small_request(const struct ft_request *request, const struct ft_arch *arch);

#endif
