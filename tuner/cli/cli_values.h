/* cli_values.h: strict reading of option values.
 * in -> out: option name + text -> number, or FT_E_ARGUMENT naming the option, the value and what
 * is allowed. Nothing is rounded, clamped or half read. */
#ifndef TUNER_CLI_VALUES_H
#define TUNER_CLI_VALUES_H

#include <stdbool.h>
#include <stdint.h>

int cli_integer(const char *option, const char *text, int64_t low, int64_t high, int64_t *value);

/* "32" or "32:8"; without the colon *second is *first. */
int cli_pair(const char *option, const char *text, int64_t high, int64_t *first, int64_t *second);

/* low <= value <= high. */
int cli_real(const char *option, const char *text, double low, double high, double *value);

/* "90", "90s", "15m", "2h" -> seconds, > 0. */
int cli_duration(const char *option, const char *text, double *seconds);

/* "1500", "64K", "512M", "2G" (powers of 1024). */
int cli_bytes(const char *option, const char *text, int64_t *bytes);

/* "2/8"; false: it is not of this form. */
bool cli_share(const char *text, int64_t *index, int64_t *count);

/* Index of the word among names (NULL-terminated), FT_E_ARGUMENT listing them otherwise. */
int cli_choice(const char *option, const char *text, const char *const *names, int *index);

#endif
