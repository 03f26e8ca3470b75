#!/usr/bin/env bash
# A run whose ranks are killed, stopped or slowed down: the other ranks end soon and name the rank; a slow rank is named while
# the run goes on.
#   hang_test.sh RIPSTOP LAUNCH HANGING_DISK
set -uo pipefail
ripstop=$(realpath "$1") launch=$(realpath "$2") hanging_disk=$(realpath "$3")
work=$(mktemp -d)
throttle=
# shellcheck disable=SC2317  # called by the traps
end_run() {
  if [[ -n $throttle ]]; then kill "$throttle" 2>/dev/null; fi
  if [[ -n ${run:-} ]]; then kill -9 "$run" 2>/dev/null; fi
}
trap 'end_run; rm -rf "$work"' EXIT
failed=0
complain() {
  echo "FAILED: $*" >&2
  failed=1
}

. "$(dirname "$0")/../debug_run.sh"
debug_run 1000000000 300

# begin NAME WORDS...: starts a run on 3 ranks, data-parallel; its launcher's pid is in run
begin() {
  local name=$1
  shift
  "$launch" 3 "$ripstop" train "$work/run.toml" "run.directory=$work/$name" mesh.fsdp=3 train.global_batch_sequences=3 \
    train.micro_batch_sequences=1 "$@" >"$work/$name.log" 2>&1 &
  run=$!
}
# wait_for WHAT COMMAND...: waits until COMMAND succeeds
wait_for() {
  local what=$1
  shift
  for ((i = 0; i < 3000; i++)); do
    if "$@"; then return 0; fi
    sleep 0.1
  done
  complain "$what: not after five minutes: $(tail -n 3 "$work"/*.log)"
  return 1
}
has_step() { grep -q "\"event\":\"step\",\"step\":$2," "$work/$1/metrics.jsonl" 2>/dev/null; }
last_step() { grep -o '"event":"step","step":[0-9]*' "$work/$1/metrics.jsonl" | tail -1 | grep -o '[0-9]*$'; }
# pid_of NAME RANK: the pid of the rank
pid_of() {
  local pid
  for pid in $(pgrep -f "^$ripstop train .*run.directory=$work/$1 "); do
    if tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$2"; then echo "$pid"; fi
  done
}
# expect_end NAME CODES TEXT...: the run ends by itself with one of CODES, prints each TEXT and at most one FATAL line, and
# leaves no process
expect_end() {
  local name=$1 codes=$2 begun=$SECONDS code=0 text lines
  shift 2
  wait "$run" || code=$?
  run=
  [[ " $codes " == *" $code "* ]] || complain "$name: exit code $code, not $codes: $(tail -5 "$work/$name.log")"
  ((SECONDS - begun <= 120)) || complain "$name: took $((SECONDS - begun)) s"
  for text; do grep -qE -- "$text" "$work/$name.log" || complain "$name: no '$text' in: $(tail -5 "$work/$name.log")"; done
  lines=$(grep -c '^FATAL' "$work/$name.log")
  ((lines <= 1)) || complain "$name: $lines FATAL lines"
  for ((i = 0; i < 600; i++)); do
    pgrep -f "^$ripstop train .*run.directory=$work/$name " >/dev/null || break
    sleep 0.1
  done
  ((i < 600)) || complain "$name: processes are left"
  echo "$name: exit code $code, $((SECONDS - begun)) s: $(grep -E '^FATAL|was killed' "$work/$name.log" | cut -c 1-300 | head -1)"
}

lost_ranks() {
  # A stopped rank is named with its host, the operation, its axis and the step. mpirun then kills all ranks.
  begin stopped run.deadline_seconds=10
  if wait_for "stopped" has_step stopped 20; then
    kill -STOP "$(pid_of stopped 2)"
    expect_end stopped 76 '^FATAL code=76 rank=[01] step=[0-9]+ what="[a-z_]+ on [a-z]+ \(3 ranks\) at step [0-9]+ waited [0-9]+ s: rank 2 \(.+\) does not answer'
  fi

  # A killed rank: mpirun sees it and kills the others; its exit code is that rank's. launch.sh names the rank.
  begin killed run.deadline_seconds=10
  if wait_for "killed" has_step killed 20; then
    kill -9 "$(pid_of killed 1)"
    expect_end killed "137 76" 'rank 1 was killed by signal 9|FATAL code=76.*rank 1'
  fi

  # A rank whose disk does not answer in a save is named, though all ranks are alive.
  for asynchronous in true false; do
    LD_PRELOAD=$hanging_disk HANGING_DISK=$work/hanging begin "disk_$asynchronous" run.deadline_seconds=10 checkpoint.every_steps=5 \
      "checkpoint.asynchronous=$asynchronous"
    if wait_for "disk_$asynchronous" has_step "disk_$asynchronous" 5; then
      expect_end "disk_$asynchronous" 76 '^FATAL code=76 rank=[0-2] step=[0-9]+ what="rank 1 \(.+\) wrote nothing for 10 s in a save'
    fi
  done
}

one_rank() {
  # A disk that does not answer in a save of one rank, whose own thread is in the write.
  mkdir "$work/hanging_alone"
  touch "$work/hanging_alone/rank_00000.h5"
  LD_PRELOAD=$hanging_disk HANGING_DISK=$work/hanging_alone "$ripstop" train "$work/run.toml" "run.directory=$work/alone" \
    run.deadline_seconds=10 checkpoint.every_steps=5 >"$work/alone.log" 2>&1 &
  run=$!
  expect_end alone 76 '^FATAL code=76 rank=0 step=[0-9]+ what="rank 0 \(.+\) wrote nothing for 10 s in a save'

  # A LOCK that cannot be written, in a run of one rank.
  mkdir "$work/hanging_alone_lock"
  LD_PRELOAD=$hanging_disk HANGING_DISK=$work/hanging_alone_lock "$ripstop" train "$work/run.toml" "run.directory=$work/alone_lock" \
    run.deadline_seconds=10 checkpoint.every_steps=100 >"$work/alone_lock.log" 2>&1 &
  run=$!
  wait_for "alone_lock" has_step alone_lock 5 && touch "$work/hanging_alone_lock/LOCK"
  expect_end alone_lock 76 '^FATAL code=76 rank=0 step=[0-9]+ what=".*alone_lock does not answer: this process waited 9 s'
}

# A file system that stands still for longer than the deadline does not end a run, and changes no loss. (The fake hangs every
# call for a file of the run.)
stand() { # RANKS NAME: a run with a deadline of 10 s; its launcher's pid is in run
  LD_PRELOAD=$hanging_disk HANGING_DISK=$work/standing_$1 "$launch" "$1" "$ripstop" train "$work/run.toml" "run.directory=$work/$2" \
    "mesh.fsdp=$1" train.micro_batch_sequences=1 run.deadline_seconds=10 checkpoint.every_steps=0 log.every_steps=1000 "${@:3}" \
    >"$work/$2.log" 2>&1 &
  run=$!
}
losses() { grep '"event":"step"' "$work/$1/metrics.jsonl" | sed 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/'; }
still_file_system() { # RANKS
  local ranks=$1 count
  mkdir "$work/standing_$ranks"
  printf '%s\n"event":"step","step":50,\n' "$work/still_$ranks/" >"$work/standing_$ranks/everything"
  stand $ranks still_$ranks
  wait_for "still_$ranks" has_step still_$ranks 49
  wait_for "the warning" grep -q "warning: $work/still_$ranks does not answer; training goes on" "$work/still_$ranks.log"
  sleep 5 # longer than the deadline, with the 10 s until the warning
  has_step still_$ranks 50 && complain "still_$ranks: the disk does not hang"
  rm "$work/standing_$ranks/everything"
  wait_for "the log" grep -q 'metrics.jsonl is written again and lacks no line' "$work/still_$ranks.log"
  kill -USR1 "$run"
  expect_end still_$ranks 75 'stopped on a signal'
  count=$(last_step still_$ranks)
  losses still_$ranks | awk -v count="$count" '$1 != NR { exit 1 } END { exit NR != count || count < 100 }' ||
    complain "still_$ranks: the log lacks steps: $(losses still_$ranks | wc -l) of $count"
  stand $ranks calm_$ranks
  wait_for "calm_$ranks" has_step calm_$ranks "$count"
  kill -USR1 "$run"
  expect_end calm_$ranks 75 'stopped on a signal'
  cmp <(losses still_$ranks) <(losses calm_$ranks | head -n "$count") || complain "still_$ranks: a loss differs"
  # At the end the run waits for the lines as long as the deadline says. The next start tells of what is missing.
  printf '%s\n"event":"checkpoint","step":60,\n' "$work/end_$ranks/" >"$work/standing_$ranks/everything"
  stand $ranks end_$ranks train.steps=60
  expect_end end_$ranks 74 '^FATAL code=74 rank=[01] .*end_[12]/metrics.jsonl does not answer: this process waited 9 s for the storage'
  rm "$work/standing_$ranks/everything"
  stand $ranks end_$ranks train.steps=60
  expect_end end_$ranks 0 'metrics.jsonl lacks at least 1 line of the start before: the checkpoint of step 60' 'was done already'
}

still_lock_and_disk() {
  # A LOCK that cannot be written for a minute: the run writes nothing, as others may have taken over; then it goes on.
  mkdir "$work/hanging_lock"
  LD_PRELOAD=$hanging_disk HANGING_DISK=$work/hanging_lock begin lock checkpoint.every_steps=0
  if wait_for "lock" has_step lock 5; then
    touch "$work/hanging_lock/LOCK"
    sleep 65
    size=$(stat -c %s "$work/lock/metrics.jsonl")
    sleep 2
    [[ $(stat -c %s "$work/lock/metrics.jsonl") == "$size" ]] || complain "lock: metrics.jsonl grows"
    rm "$work/hanging_lock/LOCK"
    wait_for "the log" grep -q 'metrics.jsonl is written again and lacks no line' "$work/lock.log"
    kill -USR1 "$run"
    expect_end lock 75 "warning: $work/lock does not answer; training goes on" 'stopped on a signal'
  fi

  # A disk that hangs in a save beside training: a warning names the rank, and the run ends when it must wait for the save, here
  # because of a stop. The run is the one of a minute from above, so that no other save is due within the deadline.
  saved=$(last_step lock)
  LD_PRELOAD=$hanging_disk HANGING_DISK=$work/hanging begin lock run.deadline_seconds=10 checkpoint.every_steps=$((saved + 20))
  if wait_for "the warning" grep -qE "^warning: rank 1 \(.+\) wrote nothing for 10 s in the save of step $((saved + 20)): .* goes on" \
    "$work/lock.log"; then
    told=$(last_step lock)
    ((told > saved + 20)) || complain "there is no step after the save that hangs"
    wait_for "training" has_step lock $((told + 10))
    kill -USR1 "$run"
    expect_end lock 76 '^FATAL code=76 rank=[0-2] step=[0-9]+ what="rank 1 \(.+\) wrote nothing for 10 s in a save'
    (($(grep -c 'wrote nothing' "$work/lock/metrics.jsonl") == 1)) || complain "lock: the warning is not in the log once"
  fi
}

# These mostly wait, so they wait together.
mkdir "$work/hanging"
touch "$work/hanging/rank_00001.h5"
waiting=()
for part in still_lock_and_disk lost_ranks one_rank "still_file_system 1" "still_file_system 2"; do
  (
    trap end_run EXIT
    $part
    exit $failed
  ) &
  waiting+=($!)
done
for part in "${waiting[@]}"; do wait "$part" || failed=1; done

# A rank that is stopped three quarters of the time is named while the run goes on, with the option that leaves its node out, and
# then is slow no more. It is stopped many times in each window of steps, which takes half a second or more. The rank is the middle
# stage of a pipeline, so the others wait for its messages, and it for theirs. The stage is a light one, which is not slow for that.
begin slow train.global_batch_sequences=36 log.every_steps=1 mesh.fsdp=1 mesh.pipeline=3 model.num_hidden_layers=10 \
  "mesh.pipeline_layers=[4,2,4]"
slow_rank_is_named() { grep -q 'warning: rank 1 (.*) is slow: .*--exclude=' "$work/slow.log"; }
status_names_it() { # noise may end it for a while
  "$ripstop" status "$work/slow" | grep -q 'slow: rank 1 (.*) at 0\.[0-9]* of the median speed.*--exclude='
}
is_slow_no_more() { grep -q 'warning: rank 1 (.*) is slow no more' "$work/slow.log"; }
# The log on rank 1 agrees with SlowWindows: slow after three slow windows in a row, normal after three normal ones. Noise may
# change any window.
follows_the_rule() {
  grep '"event":"hosts"' "$work/slow/metrics.jsonl" | awk '
    { listed = match($0, /\{"rank":1,[^}]*"speed":[0-9.]+/); windows++ }
    listed { text = substr($0, RSTART, RLENGTH); sub(/.*:/, "", text); speed = text + 0 }
    listed && !named && (windows < 3 || speed >= 0.8) { print "named in window " windows " at " speed; exit 1 }
    listed { quick = named && speed >= 0.8 ? quick + 1 : 0; named = 1; times++ }
    listed && quick > 2 { print "three windows in a row that are not slow, and window " windows " names it"; exit 1 }
    !listed && named && quick != 2 { print "forgotten in window " windows " after " quick " that were not slow"; exit 1 }
    !listed { named = 0 }
    END { if (!times) { print "no window names it"; exit 1 } }'
}
if wait_for "slow" has_step slow 6; then
  pid=$(pid_of slow 1)
  first=$(last_step slow)
  (
    trap 'kill -CONT "$pid"; exit' TERM
    while kill -STOP "$pid" && sleep 0.06 && kill -CONT "$pid"; do sleep 0.02; done
  ) &
  throttle=$!
  wait_for "the slow rank" slow_rank_is_named
  named=$(last_step slow)
  wait_for "status" status_names_it
  grep -q '"event":"hosts".*"slow":\[{"rank":1,' "$work/slow/metrics.jsonl" || complain "no hosts event names rank 1"
  kill "$throttle"
  wait "$throttle"
  throttle=
  wait_for "the rank that recovers" is_slow_no_more
  follows_the_rule >"$work/rule" || complain "rank 1 in the log: $(cat "$work/rule")"
  echo "slow: named after $((named - first)) steps: $(grep -m 1 'is slow:' "$work/slow.log")"
  kill -USR1 "$run"
  expect_end slow 75 'stopped on a signal'
fi

if [[ $failed == 0 ]]; then echo "lost and slow ranks are named"; fi
exit $failed
