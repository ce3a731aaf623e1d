/* analyser.h: read before every file by clang-tidy only (see .ci/lint).
 * in -> out: ft_fail(status, ...) -> its status. The analyser looks into one file at a time and
 * cannot know that ft_fail returns what it is given; without this it follows paths where a failure
 * is FT_OK. */
#include "generator/status.h"

void ft_fail_uses(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define ft_fail(status, ...) (ft_fail_uses(__VA_ARGS__), (status))
