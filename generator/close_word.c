/* close_word.c: what a mistyped word was meant to be.
 * in -> out: two words -> edits that turn one into the other. */
#include "generator/close_word.h"

#include <ctype.h>
#include <string.h>

int ft_edit_distance(const char *a, const char *b) {
  enum { LONGEST = 31 };
  int d[LONGEST + 1][LONGEST + 1];
  const int rows = (int)strnlen(a, LONGEST), columns = (int)strnlen(b, LONGEST);
  for (int i = 0; i <= rows; ++i) {
    for (int j = 0; j <= columns; ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
      int best = d[i - 1][j - 1] + (x != y);
      if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
      if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
      if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
          y == tolower((unsigned char)a[i - 2]) && d[i - 2][j - 2] + 1 < best) {
        best = d[i - 2][j - 2] + 1;
      }
      d[i][j] = best;
    }
  }
  return d[rows][columns];
}

bool ft_is_close(const char *word, const char *name) {
  const int length = (int)strnlen(name, 31);
  return ft_edit_distance(word, name) <= (length <= 4 ? 1 : length <= 8 ? 2 : 3);
}
