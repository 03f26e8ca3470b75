#!/usr/bin/env bash
# An interrupted run equals an unbroken one: killed ranks, a stop signal, another mesh.
#   resume_test.sh RIPSTOP LAUNCH [KILLS]       default 3 kills; 20 for a thorough look
set -euo pipefail
ripstop=$1 launch=$2 kills=${3:-3}
source=$(cd "$(dirname "$0")/../../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
steps=120
RANDOM=${RESUME_TEST_SEED:-7}

fail() { echo "FAILED: $*" >&2; exit 1; }

# train NAME RANKS MESH...: one start of the run; output goes to NAME.log
train() (
  local name=$1 ranks=$2
  shift 2
  exec "$launch" "$ranks" "$ripstop" train "$source/configs/quickstart.toml" "data.directory=$work/data" \
    "run.directory=$work/$name" train.steps=$steps train.validate_every=40 checkpoint.every_steps=5 checkpoint.keep=0 \
    model.num_hidden_layers=2 train.global_batch_sequences=4 log.every_steps=10 "$@" >>"$work/$name.log" 2>&1
)
four=(mesh.fsdp=2 mesh.tensor=2)

source "$source/tests/train/run/mesh_runs.sh"

# ended JOB NAME: waits for a launcher whose rank was killed. If a rank is killed before it has reported to mpirun, Open MPI
# 4.1 can wait for it for ever. Then no rank is left, and this ends the launcher.
ended() {
  local without_ranks=0
  while kill -0 "$1" 2>/dev/null; do
    sleep 0.5
    if [ -z "$(ranks_of "$2")" ]; then without_ranks=$((without_ranks + 1)); else without_ranks=0; fi
    [ $without_ranks -lt 40 ] || { echo "the launcher waits for nobody: ended"; kill -9 "$1"; }
  done
  code=0
  wait "$1" || code=$?
}

"$ripstop" prepare --source synthetic --examples 400 --seed 3 --vocab-size 400 --output "$work/data" >"$work/prepare.log" 2>&1 ||
  fail "prepare: $(cat "$work/prepare.log")"
begin=$(date +%s%N)
train unbroken 4 "${four[@]}" || fail "the unbroken run: $(tail -3 "$work/unbroken.log")"
took_ms=$((($(date +%s%N) - begin) / 1000000))
losses unbroken >"$work/unbroken.losses"
[ "$(wc -l <"$work/unbroken.losses")" -eq $steps ] || fail "$(wc -l <"$work/unbroken.losses") steps in metrics.jsonl, expected $steps"

# expect_unbroken NAME: the run is done, and its losses are those of the unbroken one
expect_unbroken() {
  losses "$1" >"$work/$1.losses"
  cmp "$work/unbroken.losses" "$work/$1.losses" || fail "the losses of $1 differ from the unbroken run's"
}

# ---- killed: bit for bit
# The moments of the kills lie anywhere in the time that the unbroken run took: in the start, in a step, in a save. If a run is
# done before its kill, it is compared, and the next run begins.
killed=0 done=0
while ((killed < kills)); do
  train killed 4 "${four[@]}" &
  job=$!
  moment=$((RANDOM * took_ms / 32768))
  sleep "$((moment / 1000)).$(printf %03d $((moment % 1000)))"
  victim=$(ranks_of killed | shuf -n 1 --random-source=<(yes "$RANDOM"))
  [ -z "$victim" ] || kill -9 "$victim" 2>/dev/null || true
  ended $job killed
  [ -z "$(ranks_of killed)" ] || fail "ranks live on after their launcher"
  [ $code -ne 74 ] || fail "the run is not given free: $(grep -a FATAL "$work/killed.log" | tail -1)"
  if [ $code -eq 0 ]; then
    expect_unbroken killed
    rm -rf "$work/killed"
    done=$((done + 1))
    ((done < 10 * kills)) || fail "the run is always done before it is killed"
    continue
  fi
  killed=$((killed + 1))
  echo "kill $killed, $moment ms after the start: exit $code, last step $(losses killed 2>/dev/null | tail -1 | cut -d' ' -f1)"
done
train killed 4 "${four[@]}" || fail "the run after the kills: $(tail -3 "$work/killed.log")"
expect_unbroken killed
echo "killed and resumed $kills times: $steps losses equal bit for bit"

# ---- stopped by a signal to one rank: bit for bit, exit code 75
for ((tries = 1; ; tries++)); do
  train stopped 4 "${four[@]}" &
  job=$!
  for ((wait = 0; wait < 600; wait++)); do
    [ "$(losses stopped 2>/dev/null | wc -l)" -ge 3 ] && break
    sleep 0.1
  done
  kill -USR1 "$(ranks_of stopped | head -1)" 2>/dev/null || true
  ended $job stopped
  [ $code -eq 0 ] || break # on a busy machine the run may be done before it is asked to stop
  ((tries < 5)) || fail "the run is always done before it is asked to stop"
  rm -rf "$work/stopped"
done
[ $code -eq 75 ] || fail "exit code $code after SIGUSR1, expected 75: $(tail -3 "$work/stopped.log")"
train stopped 4 "${four[@]}" || fail "the run after the signal"
expect_unbroken stopped
echo "stopped by SIGUSR1 with exit code 75 and resumed: $steps losses equal bit for bit"

# ---- another mesh from step 60 on: 1e-5
continue_on() {
  local name=$1 ranks=$2
  shift 2
  mkdir -p "$work/$name/checkpoints"
  cp "$work"/unbroken/{config.toml,tokenizer.model,metrics.jsonl} "$work/$name/"
  cp -r "$work/unbroken/checkpoints/step_00000060" "$work/$name/checkpoints/"
  train "$name" "$ranks" "$@" || fail "$name: $(tail -3 "$work/$name.log")"
  losses "$name" >"$work/$name.losses"
  paste -d' ' "$work/unbroken.losses" "$work/$name.losses" | awk -v name="$name" -v steps=$steps '
    $1 != $3 { print name ": step " $1 " beside step " $3; bad = 1 }
    { d = $2 - $4; if (d < 0) d = -d; if (d > 1e-5 * $2) { print name ": step " $1 ": " $2 " and " $4; bad = 1 } if (d / $2 > worst) worst = d / $2 }
    END { if (NR != steps) bad = 1; if (!bad) print name ": " NR " losses within " worst; exit bad }' ||
    fail "$name does not go on as the unbroken run did"
}
continue_on one_rank 1 mesh.fsdp=1 mesh.tensor=1
continue_on fsdp_4 4 mesh.fsdp=4 mesh.tensor=1
continue_on tensor_4 4 mesh.fsdp=1 mesh.tensor=4
continue_on replicate_2_fsdp_2 4 mesh.replicate=2 mesh.fsdp=2 mesh.tensor=1
