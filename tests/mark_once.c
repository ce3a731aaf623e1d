/* mark_once.c: where a test got to, told once a place. in -> out: each check that passes -> Check's
 * message of its line, which tells where a crash came after; but not of the line of the check
 * before. Each message is a write to a file, and some tests check millions of numbers.
 *
 * The linker leads calls of _mark_point here (tests/CMakeLists.txt). */
#include <check.h>

void __real__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line);

void __wrap__mark_point(const char *file, int line) {
  static _Thread_local const char *last_file;
  static _Thread_local int last_line;
  if (file == last_file && line == last_line) return;
  last_file = file;
  last_line = line;
  __real__mark_point(file, line);
}
