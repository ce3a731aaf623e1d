#!/bin/sh
# check_circles.sh: files use each other in one direction. NAME.h and NAME.c are one file here; it uses those whose
# headers it includes. in -> out: source root -> one line per circle, exit 1 if there is any.
# A header that declares a function which the C file of its name does not define would hide a circle: that is a
# violation, too. --self-test plants violations in a copy of nothing and fails if one goes unseen.
set -eu

folders="generator/model runtime tuner"

# Headers that C files of other names define: the public one, and those that emulated kernels are compiled with.
own_face() {
  case $1 in
  runtime/fatune.h | runtime/emulator/device/*) return 1 ;;
  *) return 0 ;;
  esac
}

sources() { # ending
  for folder in $folders; do
    [ ! -d "$folder" ] || find "$folder" -name "*.$1" | sort
  done
}

# "a b" for each file and each of those it uses.
uses() {
  for ending in c h; do
    sources $ending | while read -r file; do
      sed -nE 's|^[[:space:]]*#[[:space:]]*include[[:space:]]*"([^"]+)\.h".*|\1|p' "$file" |
        while read -r used; do
          [ "$used" = "${file%.*}" ] || echo "${file%.*} $used"
        done
    done
  done | sort -u
}

# Those left when files that use none of the others have been taken away, again and again; then the same for files
# that none of the others use.
circles() {
  awk '
    { from[NR] = $1; to[NR] = $2 }
    END {
      do {
        taken = 0
        split("", uses); split("", used)
        for (n in from) { uses[from[n]] = 1; used[to[n]] = 1 }
        for (n in from) if (!(to[n] in uses) || !(from[n] in used)) { delete from[n]; taken = 1 }
      } while (taken)
      for (n in from) print from[n] " uses " to[n] "   <- a circle of files"
    }' | sort
}

# Functions declared in a header, one a line: the last word before a parenthesis of what begins in column 0.
declared() {
  sed -nE '/^(static|extern|typedef|#| |\/)/d; s/^[a-zA-Z_][a-zA-Z0-9_ \*]*[ \*]([a-z_][a-z0-9_]*)\(.*/\1/p' "$1"
}

strangers() {
  sources h | while read -r header; do
    own_face "$header" || continue
    for function in $(declared "$header"); do
      grep -qsE "^[a-zA-Z_].*[ *]$function\(" "${header%.h}.c" ||
        echo "$header declares $function, which ${header%.h}.c does not define"
    done
  done
}

violations() {
  cd "$1"
  uses | circles
  strangers
}

self_test() {
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  mkdir -p "$scratch/runtime/emulator"
  write() { printf '%s\n' "$2" >"$scratch/runtime/$1"; }
  include() { echo "#include \"runtime/$1\""; }
  must_catch() {
    (violations "$scratch") | grep -q "$1" || { echo "not caught: $1"; exit 1; }
  }
  must_accept() {
    [ -z "$(violations "$scratch")" ] || { echo "wrongly caught:"; (violations "$scratch"); exit 1; }
  }
  write a.h 'int ft_a(int x,'
  write a.c "$(include a.h; include b.h; include emulator/c.h)
int ft_a(int x,"
  write b.h 'void *ft_b(void);'
  write b.c "$(include b.h; include fatune.h)
void *ft_b(void) {"
  write fatune.h 'int fatune_defined_anywhere(void);'
  write emulator/c.h "$(include b.h)
static inline int ft_c(void) {"
  must_accept
  write b.c "$(include b.h; include a.h)
void *ft_b(void) {"
  must_catch '^runtime/a uses runtime/b   <- a circle of files$'
  must_catch '^runtime/b uses runtime/a   <- a circle of files$'
  write b.c "$(include b.h)
void *ft_b(void) {"
  write d.c "$(include a.h)"
  must_accept
  write b.h "$(include d.h)
void *ft_b(void);"
  must_catch '^runtime/b uses runtime/d '
  must_catch '^runtime/d uses runtime/a '
  write b.h 'void *ft_b(void);'
  write emulator/c.h 'const char *ft_elsewhere(int x);'
  must_catch '^runtime/emulator/c.h declares ft_elsewhere, which runtime/emulator/c.c does not define$'
}

if [ "$1" = --self-test ]; then
  self_test
else
  found=$(violations "$1")
  [ -z "$found" ] || { echo "$found"; exit 1; }
fi
