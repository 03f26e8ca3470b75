#!/usr/bin/env bash
# The files of a run's directory may be links, copies, damaged or strange: the run goes on, or is refused at once, and loses
# nothing that took long to make.
#   run_files_test.sh RIPSTOP
set -uo pipefail
ripstop=$1
work=$(mktemp -d)
trainer=
trap '[[ -z $trainer ]] || kill -9 "$trainer" 2>/dev/null; rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
failed=0

complain() {
  echo "FAILED: $case: $*" >&2
  failed=1
}

# train RUN [OVERRIDE...]: one start; its output goes to RUN.log, its exit code into `code`. Nothing here takes minutes.
train() {
  local run=$1
  shift
  code=0
  timeout -k 5 600 "$ripstop" train "$work/run.toml" "run.directory=$run" "$@" >"$run.log" 2>&1 || code=$?
}
said() { grep -qF -- "$2" "$1.log" || complain "no '$2' in: $(tail -3 "$1.log")"; }
begins_at() { grep -qE "(begins|resumes) .* at step $2 of" "$1.log" || complain "does not go on from step $2: $(grep -E 'begins|resumes|FATAL|error' "$1.log")"; }
steps() { sed -n 's/.*"event":"step".*"step":\([0-9]*\),.*/\1/p' "$1/metrics.jsonl" | tr '\n' ' '; }
has_steps() { [[ $(steps "$1") == "$2" ]] || complain "metrics.jsonl has the steps $(steps "$1"), $2 was expected"; }
is_whole() { "$ripstop" checkpoint verify "$1" >/dev/null 2>&1 || complain "$1 is damaged or gone"; }
# fresh NAME: a copy of the run of 6 steps, in `run`
fresh() {
  case=$1
  run=$work/$1
  cp -r "$work/made" "$run"
}

case="the run" run=$work/made
. "$(dirname "$0")/../debug_run.sh"
debug_run 6 200
printf '%s\n' '[checkpoint]' 'every_steps = 2' 'keep = 0' >>"$work/run.toml"
train "$run"
[[ $code == 0 ]] || complain "exit code $code: $(tail -3 "$run.log")"
has_steps "$run" "1 2 3 4 5 6 "

# ---- checkpoints in an archive, and links to them

fresh all_linked
mkdir "$work/archive"
mv "$run"/checkpoints/step_* "$work/archive/"
ln -s "$work"/archive/step_* "$run/checkpoints/"
train "$run" train.steps=8 checkpoint.keep=1
[[ $code == 0 ]] || complain "exit code $code"
begins_at "$run" 6
said "$run" "is a symbolic link"
has_steps "$run" "1 2 3 4 5 6 7 8 "
for step in 2 4 6; do is_whole "$work/archive/step_0000000$step"; done

fresh one_linked
mv "$run/checkpoints/step_00000006" "$work/moved_step_6"
ln -s "$work/moved_step_6" "$run/checkpoints/step_00000006"
train "$run" train.steps=8 checkpoint.keep=1
begins_at "$run" 6
has_steps "$run" "1 2 3 4 5 6 7 8 "
[[ -s $work/moved_step_6/manifest.json && -s $work/moved_step_6/rank_00000.h5 ]] || complain "the archive was emptied"

for name in .old.foo .trash.foo .tmp.foo .old.step_00000006.1.2 step_00000009.damaged; do
  fresh "link_$name"
  mkdir -p "$work/victim/inside"
  echo mine >"$work/victim/inside/file"
  ln -s "$work/victim" "$run/checkpoints/$name"
  train "$run" train.steps=10 checkpoint.keep=1
  [[ $code == 0 ]] || complain "exit code $code"
  [[ $(cat "$work/victim/inside/file" 2>&1) == mine ]] || complain "what the link pointed to was erased"
  rm -rf "$work/victim" "$run"
done

# ---- a damaged metrics.jsonl

damaged() { # damaged NAME LINE: LINE (with printf's escapes) becomes line 4 of metrics.jsonl
  fresh "$1"
  sed -n '1,3p' "$work/made/metrics.jsonl" >"$run/metrics.jsonl"
  printf "$2\\n" >>"$run/metrics.jsonl"
  sed -n '4,$p' "$work/made/metrics.jsonl" >>"$run/metrics.jsonl"
  cp "$run/metrics.jsonl" "$run.before"
  "$ripstop" status "$run" >"$run.status" 2>&1 || complain "status: $(cat "$run.status")"
  grep -qE ' done +6/6 ' "$run.status" || complain "status shows: $(cat "$run.status")"
  train "$run" train.steps=8
  [[ $code == 0 ]] || complain "exit code $code: $(tail -1 "$run.log")"
  begins_at "$run" 6
  has_steps "$run" "1 2 3 4 5 6 7 8 "
  said "$run" "metrics.jsonl.damaged"
  cmp -s "$run.before" "$run/metrics.jsonl.damaged" || complain "metrics.jsonl.damaged is not what metrics.jsonl was"
  grep -q '"event":"warning".*line 4' "$run/metrics.jsonl" || complain "no warning names the line"
}
damaged nul_block "$(printf '\\0%.0s' {1..512})"
damaged blank_line ''
damaged garbage garbage
damaged array '[1]'
damaged text_as_step '{"event":"step","step":"4","loss":1}'

# Damaged for the second time: the copy of the first time stays.
fresh twice
for text in first second; do
  echo "$text" >>"$run/metrics.jsonl"
  train "$run"
  [[ $code == 0 ]] || complain "exit code $code: $(tail -1 "$run.log")"
done
tail -n 1 "$run/metrics.jsonl.damaged" 2>/dev/null | grep -q first || complain "the first copy is not there"
tail -n 1 "$run/metrics.jsonl.damaged.2" 2>/dev/null | grep -q second || complain "the second copy is not there"

# ---- lost checkpoints: the log of their steps stays

fresh no_checkpoints
rm -r "$run"/checkpoints/step_*
cp "$run/metrics.jsonl" "$run.before"
train "$run" train.steps=6
begins_at "$run" 0
has_steps "$run" "1 2 3 4 5 6 "
cmp -s "$run.before" "$run/metrics.jsonl.uncut" || complain "the log of the steps before is gone"
said "$run" "metrics.jsonl.uncut"

# ---- a pipe in place of a file

fresh pipe
rm "$run/metrics.jsonl"
mkfifo "$run/metrics.jsonl"
train "$run" train.steps=8
[[ $code == 74 ]] || complain "exit code $code, 74 was expected: $(tail -1 "$run.log")"
said "$run" "metrics.jsonl: is not a plain file"
timeout -k 5 300 "$ripstop" status "$run" >"$run.status" 2>&1 || complain "status: $(cat "$run.status")"
grep -q 'not a plain file' "$run.status" || complain "status shows: $(cat "$run.status")"

# ---- copies

fresh hard_linked
cp -al "$run" "$work/hard_copy"
train "$work/hard_copy" train.steps=8
[[ $code == 0 ]] || complain "exit code $code"
has_steps "$work/hard_copy" "1 2 3 4 5 6 7 8 "
has_steps "$run" "1 2 3 4 5 6 "

# A copy of a live run is another run, even if its LOCK is a hard link, which shows the heartbeats of the original.
case=live_copy run=$work/live
"$ripstop" train "$work/run.toml" run.directory="$run" train.steps=1000000000 >"$run.log" 2>&1 &
trainer=$!
for ((i = 0; i < 3000; i++)); do
  [[ -e $run/checkpoints/step_00000004 ]] && break
  sleep 0.1
done
cp -al "$run" "$work/live_copy" 2>/dev/null # a file may go while it is copied
rm -rf "$work"/live_copy/checkpoints/.tmp.*
train "$work/live_copy" train.steps=1000000000 run.profile_steps= & # in its own shell: `wait` tells
copier=$!
for ((i = 0; i < 3000; i++)); do
  grep -qE 'resumes|FATAL|error' "$work/live_copy.log" 2>/dev/null && break
  sleep 0.1
done
grep -q resumes "$work/live_copy.log" || complain "a copy of a live run is refused: $(tail -1 "$work/live_copy.log")"
grep -q 'this directory is a copy of' "$work/live_copy.log" || complain "nothing says that it is a copy"
for name in live_copy live; do # USR1: save and end
  pid=$(sed -n 's/^pid //p' "$work/$name/LOCK")
  [[ -z $pid ]] || kill -USR1 "$pid"
done
wait "$copier"
code=0
wait "$trainer" || code=$?
trainer=
[[ $code == 75 ]] || complain "the original ended with $code: $(tail -1 "$run.log")"

# A live run that was moved is still protected.
case=moved run=$work/moving
"$ripstop" train "$work/run.toml" run.directory="$run" train.steps=1000000000 >"$run.log" 2>&1 &
trainer=$!
for ((i = 0; i < 3000; i++)); do
  [[ -e $run/checkpoints/step_00000002 ]] && break
  sleep 0.1
done
kill -STOP "$trainer" # else it saves by its old path meanwhile
mv "$run" "$work/moved"
train "$work/moved" train.steps=1000000000
[[ $code == 74 ]] || complain "exit code $code, 74 was expected: $(tail -1 "$work/moved.log")"
said "$work/moved" "owned by process $trainer"
kill -9 "$trainer"
wait "$trainer" 2>/dev/null
trainer=

if [[ $failed == 0 ]]; then echo "links, damaged logs, pipes, copies and moves: all as they should be"; fi
exit $failed
