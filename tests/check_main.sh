#!/bin/sh
# check_main.sh: the test program itself must fail when it runs nothing.
# in -> out: path of fatune_tests -> exit 0 if an unknown suite and an empty run are failures.
set -eu
program=$1

if "$program" no-such-suite 2>/dev/null; then
  echo "$program accepts a suite that does not exist"
  exit 1
fi
if CK_RUN_CASE=no-such-case "$program" >/dev/null 2>&1; then
  echo "$program passes without having run a test"
  exit 1
fi
