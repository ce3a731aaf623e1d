#!/bin/sh
# check_layers.sh: includes point one way: generator <- cache <- runtime <- tuner, in tuner/ verify <- search <- cli,
# and in generator/ the model is above the rest: what is emitted cannot depend on it.
# in -> out: source root -> one line per violation, exit 1 if there is any.
# --self-test plants violations in a copy of nothing and fails if one goes unseen.
set -eu

violations() {
  root=$1
  report() { # folder, extended regex of forbidden lines, reason
    [ -d "$root/$1" ] || return 0
    grep -rnE --include='*.[ch]' --include='*.def' "$2" "$root/$1" | sed "s|^$root/||; s|\$|   <- $3|" || true
  }
  report_here() { # the same of a folder without those inside it
    [ -d "$root/$1" ] || return 0
    find "$root/$1" -maxdepth 1 -type f \( -name '*.[ch]' -o -name '*.def' \) -exec grep -nHE "$2" {} + |
      sed "s|^$root/||; s|\$|   <- $3|" || true
  }
  include='^[[:space:]]*#[[:space:]]*include[[:space:]]*'

  report generator "$include\"(cache|runtime|tuner|tests)/" "generator/ includes upwards"
  report cache "$include\"(runtime|tuner|tests)/" "cache/ includes upwards"
  report runtime "$include\"(tuner|tests)/" "runtime/ includes upwards"
  report tuner "$include\"tests/" "tuner/ includes upwards"
  for folder in generator generator/families generator/score; do
    report_here $folder "$include\"generator/model/" "only the model and what is above generator/ knows the model"
  done
  report tuner/verify "$include\"tuner/(search|cli)/" "tuner/verify/ includes upwards"
  report tuner/search "$include\"tuner/cli/" "tuner/search/ includes upwards"

  report generator "$include<(pthread|threads|dlfcn|sqlite3)" "generator/ knows no threads, no dlopen, no SQLite"
  report cache "$include<dlfcn" "cache/ knows no CUDA and loads no library"
  for folder in runtime tuner; do
    report $folder "$include<sqlite3" "only cache/ talks to SQLite"
  done
  for folder in generator cache runtime tuner tests; do
    report $folder "${include}[<\"](cuda|nvrtc|nvml|driver_types|vector_types)[a-z_]*\.h" "no CUDA header is needed"
    # From the root, so that the layer shows in the line; "suites.def" is made by the build, and the files of
    # emulator/device are read where kernels are compiled, side by side.
    report $folder "$include\"(([^/\"]*|\.\.?/[^\"]*)\")" "write includes from the root: \"folder/file.h\"" |
      grep -vE 'include "suites\.def"|^runtime/emulator/device/' || true
  done

  if [ -d "$root/python" ]; then # the C ABI of fatune.h is all that Python knows
    grep -rnE --include='*.py' '\b(generator|cache|tuner)/[a-z_]+\.h|\bruntime/(driver|session|compiler|params)\.h|\bft_[a-z]+_[a-z]+' \
      "$root/python" | sed "s|^$root/||; s|\$|   <- python/ uses runtime/fatune.h only|" || true
  fi
  if [ -d "$root/templates" ]; then
    grep -rnE --include='*.cu.in' "$include" "$root/templates" |
      sed "s|^$root/||; s|\$|   <- emitted text needs no header|" || true
    grep -rnwE --include='*.cu.in' 'asm|__asm__' "$root/templates" |
      grep -v "^$root/templates/parts/ptx" | grep -vE ':[0-9]+: *//' |
      sed "s|^$root/||; s|\$|   <- asm belongs to templates/parts/ptx*|" || true
  fi
}

self_test() {
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  plant() { # file, line; with no line the tree must be clean
    rm -rf "$scratch/tree"
    mkdir -p "$scratch/tree/$(dirname "$1")" "$scratch/tree/cache"
    printf '#include "generator/text.h"\n#include <stdio.h>\n' >"$scratch/tree/cache/sound.c"
    printf '%s\n' "$2" >"$scratch/tree/$1"
    violations "$scratch/tree"
  }
  must_catch() {
    [ -n "$(plant "$1" "$2")" ] || { echo "not caught in $1: $2"; exit 1; }
  }
  must_accept() {
    [ -z "$(plant "$1" "$2")" ] || { echo "wrongly caught in $1: $2"; plant "$1" "$2"; exit 1; }
  }
  must_catch generator/a.c '#include "cache/store.h"'
  must_catch generator/a.h '  #  include "tuner/search/tune.h"'
  must_catch generator/a.c '#include <sqlite3.h>'
  must_catch generator/a.c '#include <pthread.h>'
  must_catch cache/a.c '#include "runtime/session.h"'
  must_catch runtime/a.h '#include "tuner/search/measure.h"'
  must_catch tuner/a.c '#include "tests/suites.h"'
  must_catch tuner/a.c '#include <sqlite3.h>'
  must_catch generator/model/a.c '#include "tuner/verify/reference.h"'
  must_catch generator/model/a.h '#include "cache/trial.h"'
  must_catch generator/a.c '#include "generator/model/model.h"'
  must_catch generator/families/a.c '#include "generator/model/choice.h"'
  must_accept generator/model/a.c '#include "generator/model/model.h"'
  must_accept runtime/a.c '#include "generator/model/choice.h"'
  must_catch tuner/verify/a.c '#include "tuner/search/measure.h"'
  must_catch tuner/search/a.c '#include "tuner/cli/command.h"'
  must_accept tuner/search/a.c '#include "tuner/verify/reference.h"'
  must_catch runtime/a.c '#include <cuda.h>'
  must_catch runtime/a.c '#include "nvrtc.h"'
  must_catch runtime/a.c '#include "session.h"'
  must_catch cache/a.c '#include "../generator/text.h"'
  must_catch python/a.py 'header = "generator/config.h"'
  must_catch python/a.py 'library.ft_session_kernel'
  must_catch templates/a.cu.in '#include <cuda_fp16.h>'
  must_catch templates/a.cu.in '  asm volatile("bar.sync 0;");'
  must_accept generator/a.c '#include "generator/text.h"'
  must_accept tuner/a.c '#include "runtime/session.h"'
  must_accept tests/suites.h '#include "suites.def"'
  must_accept runtime/emulator/device/a.h '#include "machine.h"'
  must_catch runtime/emulator/a.c '#include "machine.h"'
  must_accept python/a.py '"""Binds runtime/fatune.h."""'
  must_accept templates/parts/ptx.cu.in '  asm volatile("bar.sync 0;");'
}

if [ "$1" = --self-test ]; then
  self_test
else
  found=$(violations "$1")
  [ -z "$found" ] || { echo "$found"; exit 1; }
fi
