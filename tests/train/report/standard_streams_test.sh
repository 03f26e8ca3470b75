#!/usr/bin/env bash
# Standard streams that are closed, full, without a reader, or with one that does not read: they end no run, change no exit code,
# and no file of a run gets their number.      standard_streams_test.sh RIPSTOP LAUNCH
set -euo pipefail
ripstop=$1 launch=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
complain() {
  echo "FAILED: $*"
  tail -n 5 "$work/log" || true
  exit 1
}
# shellcheck source-path=SCRIPTDIR/..
source "$(dirname "$0")/../debug_run.sh"
debug_run 4 60

# Pipe 7 has no reader any more; pipe 8 is full and has one that never reads.
mkfifo "$work/gone" "$work/stuck"
exec 6<>"$work/gone"
exec 7>"$work/gone"
exec 6>&-
exec 9<>"$work/stuck"
exec 8>"$work/stuck"
head -c 65536 /dev/zero >&8

# The states of streams, as redirections of bash.
states=('<&-' '>&-' '2>&-' '<&- >&-' '<&- >&- 2>&-' '>/dev/full' '2>/dev/full' '>/dev/full 2>&1' '>&7' '2>&7' '>&7 2>&7' '>&8' '2>&8' '>&8 2>&8')
# gives CODE STATE COMMAND...: the exit code of COMMAND with its streams in STATE. What they do not hold goes to $work/log.
gives() {
  local expected=$1 state=$2 code=0
  shift 2
  (eval "exec >'$work/log' 2>&1 $state"; exec timeout 120 "$@" 6>&- 7>&- 8>&- 9>&-) || code=$?
  [[ $code == "$expected" ]] || complain "${*//"$work/"/} $state: exit code $code, expected $expected"
}
# is_whole STATE: the run has all its steps and a last checkpoint with every byte
is_whole() {
  (($(grep -c '"event":"step"' "$work/run/metrics.jsonl") == 4)) || complain "$1: not four steps"
  tail -n 1 "$work/run/metrics.jsonl" | grep -q '"event":"end".*"exit_code":0' || complain "$1: no good end"
  "$ripstop" checkpoint verify "$work/run" >"$work/verified" 2>&1 || complain "$1: $(cat "$work/verified")"
  [[ ! -e $work/run/LOCK ]] || complain "$1: the lock is left"
}
train=(train "$work/run.toml" log.every_steps=1)
for state in "${states[@]}"; do
  rm -rf "$work/run"
  gives 0 "$state" "$ripstop" "${train[@]}"
  is_whole "$state"
  gives 64 "$state" "$ripstop" train "$work/absent.toml"
done
for state in '<&- >&- 2>&-' '>/dev/full 2>&1' '>&7 2>&7' '>&8' '2>&8'; do
  rm -rf "$work/run"
  gives 0 "$state" "$launch" 2 "$ripstop" "${train[@]}"
  is_whole "launch.sh $state"
  gives 64 "$state" "$launch" 2 "$ripstop" train "$work/absent.toml"
done
echo "train: every stream in every state, alone and under launch.sh"

# Verbs whose work is in files do it. A result on standard output must not look whole if a part of it is missing.
for state in '<&- >&- 2>&-' '>/dev/full 2>&1' '>&7 2>&7'; do
  rm -rf "$work"/{made,exported,scores}
  gives 0 "$state" "$ripstop" prepare --source synthetic --examples 60 --seed 1 --vocab-size 400 --output "$work/made"
  gives 0 "$state" "$ripstop" checkpoint export "$work/run" "$work/exported"
  gives 0 "$state" "$ripstop" evaluate "$work/run" --split test --limit 1 --max-new-tokens 1 --output "$work/scores"
  [[ -e $work/scores/scores.json ]] || complain "evaluate $state: no scores"
done
for verb in "plan $work/run.toml" "status $work/run" "checkpoint inspect $work/run" "evaluate $work/run --output $work/scores --json \
  --split test --limit 1 --max-new-tokens 1"; do
  read -ra words <<<"$verb"
  gives 74 '>/dev/full' "$ripstop" "${words[@]}"
  grep -q 'the disk full' "$work/log" || complain "$verb: the full disk is not named"
  gives 141 '>&7' "$ripstop" "${words[@]}" # as every tool whose reader is gone
  gives 74 '>&-' "$ripstop" "${words[@]}"
done
echo "other verbs: results in files are made, a part of a result is never 0"

# A file that would outgrow `ulimit -f` fails with an error that is told.
rm -rf "$work/run"
(
  ulimit -f 100
  gives 74 '' "$ripstop" "${train[@]}" train.steps=1
)
grep -q 'FATAL code=74' "$work/log" || complain "a file beyond its limit is not named"
