#!/bin/sh
# check_exports.sh: libfatune exports what fatune.h declares, all of it and nothing else.
# in -> out: path of libfatune.so -> the difference, exit 1 if there is any.
set -eu
library=$1
header=$(dirname "$0")/../runtime/fatune.h
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

nm -D --defined-only "$library" | awk '$2 ~ /[BCDGRSTVW]/ { sub(/@.*/, "", $3); print $3 }' | sort >"$scratch/exported"
grep '^FATUNE_API' "$header" | grep -oE 'fatune_[a-z_]+\(' | tr -d '(' | sort >"$scratch/declared"
diff "$scratch/declared" "$scratch/exported" >"$scratch/difference" || {
  echo "< declared in fatune.h, > exported by $library:"
  grep '^[<>]' "$scratch/difference"
  exit 1
}
# Programs that were linked against an older version find its symbols under that version.
for symbol in fatune_plan_run@@FATUNE_0.1 fatune_merge@@FATUNE_0.2; do
  nm -D --defined-only --with-symbol-versions "$library" | grep -q " $symbol\$" || { echo "no $symbol"; exit 1; }
done
[ -s "$scratch/declared" ] || { echo "no declaration found in $header"; exit 1; }
