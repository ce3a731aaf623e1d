/* standard_streams.c: the C library's streams as variables of the file that is linked.
 * in -> out: stdin, stdout, stderr -> ft_stdin, ft_stdout, ft_stderr, which copies of the
 * distribution's .a files read (see CMakeLists.txt). Set before any code of theirs can run. */
#include <stdio.h>

extern FILE *ft_stdin, *ft_stdout, *ft_stderr;
FILE *ft_stdin, *ft_stdout, *ft_stderr;

__attribute__((constructor)) static void take_streams(void) {
  ft_stdin = stdin;
  ft_stdout = stdout;
  ft_stderr = stderr;
}
