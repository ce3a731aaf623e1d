/* on_machine.h: a compiled candidate, run and timed.
 * in -> out: rig + candidates -> struct ft_measuring. */
#ifndef TUNER_ON_MACHINE_H
#define TUNER_ON_MACHINE_H

#include "tuner/search/measuring.h"

/* Runs and times candidates on the rig's machine. `candidates` and the rig must outlive the result.
 */
int ft_measuring_on_machine(struct ft_measuring *measuring, const struct ft_rig *rig,
                            const struct ft_candidates *candidates);
void ft_measuring_off_machine(struct ft_measuring *measuring);

#endif
