#!/bin/sh
# check_install.sh: `make install` as a user meets it: README's example through pkg-config and CMake.
# in -> out: build folder, source folder, C compiler -> exit 0 if both build against the installed files.
set -eu
build=$1 source=$2 compiler=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/prefix

cmake --install "$build" --prefix "$prefix" >/dev/null
library=$(dirname "$(find "$prefix" -name libfatune.so)")

# The first ```c block of the README, as typed in by a new user.
awk '/^```c$/ { on = 1; next } /^```/ { if (on) exit } on' "$source/README.md" >"$scratch/example.c"
[ -s "$scratch/example.c" ] || { echo "README.md has no C example"; exit 1; }

# The tree may be moved: fatune.pc and the CMake files say where the rest is from where they are.
mv "$prefix" "$scratch/moved"
prefix=$scratch/moved library=$(dirname "$(find "$scratch/moved" -name libfatune.so)")
# What the library is made of may have no pkg-config files there: it need not be installed for those who use the library.
flags=$(PKG_CONFIG_LIBDIR=$library/pkgconfig pkg-config --cflags --libs fatune)
# shellcheck disable=SC2086 # flags are many words
"$compiler" -std=c11 -Wall -Wextra -Werror -fPIC -shared -Wl,--no-undefined "$scratch/example.c" \
  -o "$scratch/example.so" $flags

mkdir "$scratch/user"
cat >"$scratch/user/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(user C)
find_package(fatune 0.2 REQUIRED)
add_library(example SHARED ../example.c)
target_link_libraries(example PRIVATE fatune::fatune)
END
cmake -S "$scratch/user" -B "$scratch/user/build" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_C_COMPILER="$compiler" >/dev/null
cmake --build "$scratch/user/build" >/dev/null

# It must load with nothing but its own prefix; a header that C++ cannot read is no public header.
if LD_LIBRARY_PATH=$library ldd "$scratch/example.so" | grep 'not found'; then exit 1; fi
if command -v c++ >/dev/null; then
  cat >"$scratch/values.cc" <<'END'
#include <fatune.h>
fatune_session_options session = FATUNE_SESSION_OPTIONS_INIT;
fatune_request request = FATUNE_REQUEST_INIT;
fatune_mask_options mask = FATUNE_MASK_OPTIONS_INIT;
fatune_arguments arguments = FATUNE_ARGUMENTS_INIT;
fatune_tune_options tune = FATUNE_TUNE_OPTIONS_INIT;
int main() {
  const fatune_request local = FATUNE_REQUEST_INIT;
  return session.size != sizeof session || request.dtype != FATUNE_BF16 || mask.size != sizeof mask ||
         arguments.size != sizeof arguments || tune.size != sizeof tune || local.size != sizeof local;
}
END
  for standard in c++11 c++20; do
    c++ -std=$standard -Wall -Wextra -Wpedantic -Werror -I"$prefix/include" "$scratch/values.cc" -o "$scratch/values"
    "$scratch/values"
  done
fi
"$prefix"/bin/fatune --version >/dev/null

# Examples, built as by a user and run on an emulated GPU; a graph of CUDA needs a real one.
if command -v c++ >/dev/null; then
  mkdir "$scratch/bundles"
  export LD_LIBRARY_PATH="$library" FATUNE_CACHE_DIR="$scratch/cache"
  for example in smallest_call training_step block_sparse continuous_batching graph_from_bundle; do
    # shellcheck disable=SC2086 # flags are many words
    "$compiler" -std=gnu11 -O2 -Wall -Wextra -Werror "-I$source/tests/installed" "$source/tests/installed/$example.c" \
      -o "$scratch/$example" $flags -ldl -lm
    folder=$([ $example != graph_from_bundle ] || echo "$scratch/bundles")
    # shellcheck disable=SC2086 # no folder is no argument
    "$scratch/$example" $folder a100 || { echo "$example fails"; exit 1; }
  done
fi

# The example over several processes, where there is an MPI with its headers.
printf '#include <mpi.h>\nint main(void) { return MPI_SUCCESS; }\n' >"$scratch/mpi.c"
if command -v c++ >/dev/null && mpicc "$scratch/mpi.c" -o "$scratch/mpi" 2>/dev/null; then
  # shellcheck disable=SC2086 # flags are many words
  mpicc -std=gnu11 -O2 -Wall -Wextra -Werror "-I$source/tests/installed" "$source/tests/installed/several_ranks.c" \
    -o "$scratch/several_ranks" $flags -ldl -lm
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    mpirun -n 3 "$scratch/several_ranks" a100 || { echo "several_ranks fails"; exit 1; }
else
  echo "no MPI to compile with: tests/installed/several_ranks.c is left out"
fi

# The manual page has every command and is sound troff; the completion completes.
page=$prefix/share/man/man1/fatune.1
for command in tune emit compile bench verify quantise explain cache gpus doctor; do
  grep -qi "^\.SH FATUNE $command\$" "$page" || { echo "$page has no $command"; exit 1; }
done
if command -v groff >/dev/null; then
  complaints=$(groff -man -ww -z "$page" 2>&1)
  [ -z "$complaints" ] || { echo "$complaints"; exit 1; }
fi
completed=$(bash -uc '. "$1"; shift; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); compopt() { :; }; _fatune; echo "${COMPREPLY[@]}"' \
  - "$prefix/share/bash-completion/completions/fatune" fatune emit --head-)
[ "$completed" = "--head-dim=" ] || { echo "--head- is completed as $completed"; exit 1; }
completed=$(bash -uc '. "$1"; shift; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); compopt() { :; }; _fatune; echo "${COMPREPLY[@]}"' \
  - "$prefix/share/bash-completion/completions/fatune" fatune tune --gpu = h200)
[ "$completed" = h200 ] || { echo "--gpu=h200 is completed as $completed"; exit 1; }
grep -q "$("$prefix"/bin/fatune --version | cut -d' ' -f2 | cut -d. -f1-2)" "$(find "$prefix" -path '*fatune/changelog')"
