/* report_files.h: the files that a report page is made of, built into the program.
 * in -> out: files of tuner/cli/report (at build time) -> an array of name and text. */
#ifndef TUNER_REPORT_FILES_H
#define TUNER_REPORT_FILES_H

#include "generator/templates.h"

/* Ends with a row whose name is NULL. */
extern const struct ft_template ft_report_files[];

#endif
