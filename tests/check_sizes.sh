#!/bin/sh
# check_sizes.sh: no file over 500 lines, no function over 80; CMakeLists.txt 200, README.md 250; runtime/fatune.h, which
# is the manual of the whole library, 600.
# in -> out: source root -> one line per violation, exit 1 if there is any.
# --self-test writes a file and a function that are too long and fails if one goes unseen.
set -eu

too_long() {
  root=$1
  limit_lines() { # limit, files
    limit=$1
    shift
    for file in "$@"; do
      [ -f "$file" ] || continue
      lines=$(wc -l <"$file")
      [ "$lines" -le "$limit" ] || echo "${file#"$root"/}: $lines lines, at most $limit"
    done
  }
  sources() {
    for folder in generator cache runtime tuner tests templates python bench; do
      [ ! -d "$root/$folder" ] || find "$root/$folder" -type d -name golden -prune -o -type f "$@" -print
    done
  }
  # shellcheck disable=SC2046 # no source file has a blank in its name
  limit_lines 500 $(sources ! -path "$root/runtime/fatune.h" \( -name '*.[ch]' -o -name '*.def' -o -name '*.lua' -o -name '*.cu.in' \
    -o -name '*.py' -o -name '*.sh' -o -name '*.cmake' \))
  limit_lines 200 "$root/CMakeLists.txt"
  limit_lines 250 "$root/README.md"
  limit_lines 600 "$root/runtime/fatune.h"

  # A function: text in column 0 with a parenthesis up to a line that ends in "{", then up to "}" in
  # column 0. clang-format makes this true of every function; initialisers have a "=".
  sources \( -name '*.[ch]' -o -name '*.cu.in' \) | sort | while read -r file; do
    awk -v limit=80 -v name="${file#"$root"/}" '
      inside && /^}/ {
        if (NR - start + 1 > limit)
          printf "%s:%d: function of %d lines, at most %d\n", name, start, NR - start + 1, limit
        inside = 0; head = ""; next
      }
      inside { next }
      /^[#\/}]/ || /^ \*/ || /;[ \t]*(\/\*.*)?$/ || /^$/ { head = ""; next }
      { if (head == "") start = NR; head = head $0 }
      /\{$/ { if (head ~ /\(/ && head !~ /=/) inside = 1; head = "" }
    ' "$file"
  done
}

self_test() {
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  mkdir -p "$scratch/generator" "$scratch/tuner"
  function_of() { # lines in all, file
    { echo 'static int f(int a,'; echo '             int b) {'
      yes '  a++;' | head -n $(($1 - 3)); echo '}'; } >"$2"
  }
  function_of 80 "$scratch/generator/a.c"
  yes '/* line */' | head -n 500 >"$scratch/tuner/b.c"
  [ -z "$(too_long "$scratch")" ] || { echo "wrongly caught:"; too_long "$scratch"; exit 1; }
  function_of 81 "$scratch/generator/a.c"
  too_long "$scratch" | grep -q 'a\.c:1: function of 81' || { echo "a long function goes unseen"; exit 1; }
  function_of 80 "$scratch/generator/a.c"
  echo '/* line */' >>"$scratch/tuner/b.c"
  too_long "$scratch" | grep -q 'b\.c: 501 lines' || { echo "a long file goes unseen"; exit 1; }
}

if [ "$1" = --self-test ]; then
  self_test
else
  found=$(too_long "$1")
  [ -z "$found" ] || { echo "$found"; exit 1; }
fi
