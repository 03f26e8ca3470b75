#!/usr/bin/env bash
# slurm/train.sbatch without Slurm, with the README's own config. SIGUSR1 must reach the ranks, which save and end with 75.
# The same command must then go on to the last step.      train_sbatch_test.sh RIPSTOP HANGING_DISK
set -euo pipefail
cd "$(dirname "$0")/../.."
export RIPSTOP_PROGRAM=$1 RIPSTOP_RANKS=2
hanging_disk=$2
unset "${!SLURM_@}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "FAILED: $*"
  tail -n 5 "$work/log"
  exit 1
}

awk '/^```toml$/ { inside = 1; next } /^```/ { inside = 0 } inside' README.md >"$work/config.toml"
"$RIPSTOP_PROGRAM" prepare --source synthetic --examples 2000 --seed 3 --vocab-size 400 --output "$work/data" >"$work/log" 2>&1 ||
  fail "prepare"
train() {
  exec slurm/train.sbatch "$work/config.toml" "run.directory=$work/run" "data.directory=$work/data" model.preset=debug \
    train.global_batch_sequences=8 train.steps=30 >>"$work/log" 2>&1
}
steps() { { grep -c '"event": *"step"' "$work/run/metrics.jsonl" 2>/dev/null || true; } | grep . || echo 0; }

# The run stands still after three steps until it is asked to stop.
mkdir "$work/stand"
echo '"event":"step","step":3,' >"$work/stand/metrics.jsonl"
printf '#!/bin/sh\nLD_PRELOAD=%s HANGING_DISK=%s exec %s "$@"\n' "$hanging_disk" "$work/stand" "$RIPSTOP_PROGRAM" >"$work/ripstop"
chmod +x "$work/ripstop"
(RIPSTOP_PROGRAM=$work/ripstop train) &
job=$!
until (($(steps) >= 3)); do
  kill -0 $job || fail "the run ends by itself"
  sleep 0.1
done
kill -USR1 $job
code=0
wait $job || code=$?
[[ $code -eq 75 ]] || fail "exit code $code after SIGUSR1, expected 75"
stopped=$(steps)
(train) || fail "the same command again: exit code $?"
(($(steps) == 30)) || fail "it did not go on from step $stopped"
tail -n 1 "$work/run/metrics.jsonl" | grep -q '"event": *"end".*"exit_code": *0' || fail "the run has no good end"
echo "stopped after step $stopped with exit code 75, done after step $(steps)"

code=0
slurm/train.sbatch >"$work/log" 2>&1 || code=$?
[[ $code -eq 64 ]] || fail "exit code $code without a config, expected 64"
code=0
slurm/train.sbatch "$work/absent.toml" >"$work/log" 2>&1 || code=$?
[[ $code -eq 64 ]] || fail "exit code $code for a config that is not there, expected 64"
