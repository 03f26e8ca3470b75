#!/usr/bin/env bash
# slurm/launch.sh as a user sees it: help, exit codes, and no more text than the ranks print themselves.
#   launch_test.sh LAUNCH
set -euo pipefail
launch=$1
export RIPSTOP_LAUNCHER=mpirun OMP_NUM_THREADS=1
out=$(mktemp)
trap 'rm -f "$out"' EXIT
fail() {
  echo "FAILED: $*"
  cat "$out"
  exit 1
}
# expect CODE ARGUMENTS...: checks the exit code; $out gets both streams
expect() {
  local expected=$1 code=0
  shift
  "$launch" "$@" >"$out" 2>&1 || code=$?
  [[ $code -eq $expected ]] || fail "launch.sh $*: exit code $code, expected $expected"
}

"$launch" --help 2>/dev/null | grep -q 'launch.sh N COMMAND' || fail "no help on standard output"
expect 0 --help
expect 64
expect 64 two true
expect 0 2 true

expect 64 2 no-such-program
grep -q "no program 'no-such-program'" "$out" || fail "the program that is missing is not named"

# Ranks that share cores must not spin. Others wait as OpenMP does by default.
cores=$(env -u OMP_NUM_THREADS nproc)
expect 0 1 bash -c 'echo "${OMP_WAIT_POLICY:-none}"'
[[ $(cat "$out") == none ]] || fail "one rank of one thread is passive"
OMP_NUM_THREADS=$((cores + 1)) expect 0 1 bash -c 'echo "${OMP_WAIT_POLICY:-none}"'
[[ $(cat "$out") == passive ]] || fail "more threads than cores spin"

export RIPSTOP_LAUNCHER_QUIET=1
expect 75 2 bash -c 'echo "a rank says why" >&2; exit 75'
[[ $(mpirun --version 2>&1) != *"Open MPI"*" 4."* || $(sort -u "$out") == "a rank says why" ]] || fail "the launcher adds to what the ranks say"
