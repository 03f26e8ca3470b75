#!/usr/bin/env bash
# A run whose owner was stopped while another process took it over: the old owner ends and writes nothing any more, and its late
# commits are never used.
#   taken_over_test.sh RIPSTOP
set -uo pipefail
ripstop=$1
work=$(mktemp -d)
pids=()
cleanup() {
  local pid
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null; done
  rm -rf "$work"
}
trap cleanup EXIT
export OMP_NUM_THREADS=1
unset "${!SLURM_@}"
failed=0
complain() {
  echo "FAILED: $*" >&2
  failed=1
}
give_up() {
  complain "$@"
  exit 1
}
. "$(dirname "$0")/../debug_run.sh"
debug_run 100000000 200
printf '%s\n' '[checkpoint]' 'every_steps = 20' 'keep = 3' '[log]' 'every_steps = 1000' >>"$work/run.toml"
run=$work/run

last_step() { sed -n 's/.*"event":"step".*"step":\([0-9]*\),.*/\1/p' "$run/metrics.jsonl" 2>/dev/null | tail -n 1 | grep . || echo 0; }
# within SECONDS COMMAND...: waits until COMMAND succeeds
within() {
  local end=$((SECONDS + $1))
  shift
  until "$@" 2>/dev/null; do
    ((SECONDS < end)) || return 1
    sleep 0.1
  done
}
has_checkpoint_after() { (($(ls "$run/checkpoints" | sed -n 's/^step_0*\([0-9]\)/\1/p' | sort -n | tail -n 1) > $1)); }
start() { # start NAME: in the background; its number is `pid`
  "$ripstop" train "$work/run.toml" >"$work/$1.log" 2>&1 &
  pid=$!
  pids+=("$pid")
}
takeover_of() { sed -n 's/^ "takeover": \([0-9]*\),/\1/p' "$1/manifest.json"; }

start old
old=$pid
within 300 has_checkpoint_after 0 || give_up "no checkpoint: $(tail -n 2 "$work/old.log")"
kill -STOP "$old"
# Pretends that the owner is on another machine: on this machine a stopped process is alive.
at=$(grep -abo 'boot ' "$run/LOCK" | head -n 1 | cut -d : -f 1)
printf elsewher | dd of="$run/LOCK" bs=1 seek=$((at + 5)) conv=notrunc status=none
cp "$run/metrics.jsonl" "$work/before"
stopped_at=$(last_step)

start new
new=$pid
within 300 grep -q ' resumes\|resumes ' "$work/new.log" || give_up "the run was not taken over: $(tail -n 2 "$work/new.log")"
grep -q "took over from process $old" "$work/new.log" || complain "nothing says who was taken over"
resumed_at=$(sed -n 's/.*resumes .* at step \([0-9]*\) of.*/\1/p' "$work/new.log")
within 300 has_checkpoint_after "$resumed_at" || give_up "the new owner commits nothing: $(tail -n 2 "$work/new.log")"

kill -CONT "$old"
code=0
wait "$old" || code=$?
[[ $code == 74 ]] || complain "the old owner ended with $code, 74 was expected: $(tail -n 2 "$work/old.log")"
[[ $(grep -c '^FATAL ' "$work/old.log") == 1 ]] || complain "not one FATAL line: $(cat "$work/old.log")"
grep -q "^FATAL .*was taken over by process $new" "$work/old.log" || complain "who took over is not said: $(tail -n 1 "$work/old.log")"
kill -0 "$new" || complain "the new owner has ended, too: $(tail -n 2 "$work/new.log")"
kill -USR1 "$new"
code=0
wait "$new" || code=$?
[[ $code == 75 ]] || complain "the new owner ended with $code: $(tail -n 2 "$work/new.log")"

# The log has every step once, in order, and one `end`, the new owner's; later checkpoints are the new owner's.
sed -n 's/.*"event":"step".*"step":\([0-9]*\),.*/\1/p' "$run/metrics.jsonl" >"$work/steps"
cmp -s "$work/steps" <(seq 1 "$(last_step)") || complain "the steps of metrics.jsonl are not 1 to $(last_step), each once"
[[ $(grep -c '"event":"end"' "$run/metrics.jsonl") == 1 ]] || complain "metrics.jsonl has another number of ends than 1"
for step in "$run"/checkpoints/step_*; do
  number=$((10#${step##*_}))
  ((number <= resumed_at || $(takeover_of "$step") == 2)) || complain "$step is of takeover $(takeover_of "$step")"
done
# The old owner may have ended in the middle of a save: the next start removes what it left.
[[ -z $(find "$run/checkpoints" -mindepth 1 -name ".*" ! -name ".tmp.step_*.$old.*") ]] || complain "remains: $(ls -A "$run/checkpoints")"

# A late commit: takeover 3 goes on from an earlier step, then a checkpoint of takeover 2 appears.
late=$(ls -d "$run"/checkpoints/step_* | tail -n 1)
mv "$late" "$work/late"
start third
within 300 grep -q 'resumes ' "$work/third.log" || give_up "no third start: $(tail -n 2 "$work/third.log")"
kill -USR1 "$pid"
code=0
wait "$pid" || code=$?
[[ $code == 75 ]] || complain "the third start ended with $code: $(tail -n 2 "$work/third.log")"
[[ -z $(find "$run/checkpoints" -mindepth 1 -name ".*") ]] || complain "remains after the third start: $(ls -A "$run/checkpoints")"
rm -rf "$late"
mv "$work/late" "$late"
step=$((10#${late##*_}))
refuses() { # refuses COMMAND...: it ends with 74 and names both numbers
  local code=0 output
  output=$("$@" 2>&1) || code=$?
  [[ $code == 74 ]] || complain "$2 $3 ended with $code, 74 was expected: $output"
  [[ $output == *"by takeover 2, but takeover 3 "* ]] || complain "$2 $3 does not name both takeovers: $output"
}
refuses "$ripstop" evaluate "$run" --checkpoint "$step" --limit 1
refuses "$ripstop" summarize "$run" --checkpoint "$step" --input /dev/null
refuses "$ripstop" checkpoint export "$run" "$work/export" --checkpoint "$step"
refuses "$ripstop" checkpoint inspect "$run" --checkpoint "$step"
refuses "$ripstop" checkpoint verify "$late"
"$ripstop" checkpoint list "$run" | grep -q "^step $step .*superseded" || complain "list does not show it: $("$ripstop" checkpoint list "$run")"
"$ripstop" checkpoint verify "$run" >/dev/null 2>&1 || complain "the newest that counts is not whole"

if [[ $failed == 0 ]]; then echo "stopped at step $stopped_at, taken over from step $resumed_at: the old owner wrote nothing and ended with 74"; fi
exit $failed
