#!/usr/bin/env bash
# kill -9 at random moments of saves beside training: committed checkpoints stay, and the resumed run has the same losses, bit
# for bit. Each start is on the other of two meshes that compute the same: fsdp, and a pipeline of two such stages.
#   save_kill_test.sh RIPSTOP LAUNCH [KILLS [FSDP]]       default 8 kills of runs on fsdp 2; 50 for a thorough look
set -euo pipefail
ripstop=$1 launch=$2 kills=${3:-8} fsdp=${4:-2}
source=$(cd "$(dirname "$0")/../../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
RANDOM=${SAVE_KILL_TEST_SEED:-11}
steps=60

fail() { echo "FAILED: $*" >&2; exit 1; }

# train NAME STAGES [OVERRIDE...]: one start of the run; output goes to NAME.log. The vocabulary makes checkpoints large, so that a
# save is under way most of the time.
train() (
  local name=$1 stages=$2
  shift 2
  exec "$launch" $((stages * fsdp)) "$ripstop" train "$source/configs/quickstart.toml" "data.directory=$work/data" \
    "run.directory=$work/$name" train.steps=$steps train.validate_every=0 checkpoint.every_steps=2 checkpoint.keep=3 \
    model.vocab_size=20000 model.num_hidden_layers=1 data.sequence_length=64 train.global_batch_sequences=2 \
    "mesh.pipeline=$stages" "mesh.fsdp=$fsdp" mesh.tensor=1 log.every_steps=10 "$@" >>"$work/$name.log" 2>&1
)
source "$source/tests/train/run/mesh_runs.sh"
# The step of the log's last `checkpoint` event, which is certainly committed.
acknowledged() {
  sed -n 's/.*"event":"checkpoint","step":\([0-9]*\),.*/\1/p' "$work/$1/metrics.jsonl" 2>/dev/null | sort -n | tail -1 || true
}
"$ripstop" prepare --source synthetic --examples 300 --seed 3 --vocab-size 400 --output "$work/data" >"$work/prepare.log" 2>&1 ||
  fail "prepare: $(cat "$work/prepare.log")"
train unbroken 1 checkpoint.asynchronous=false || fail "the unbroken run: $(tail -3 "$work/unbroken.log")"
losses unbroken >"$work/unbroken.losses"
[ "$(wc -l <"$work/unbroken.losses")" -eq $steps ] || fail "$(wc -l <"$work/unbroken.losses") steps in metrics.jsonl"

expect_unbroken() {
  losses killed >"$work/killed.losses"
  cmp "$work/unbroken.losses" "$work/killed.losses" || fail "the losses differ from the unbroken run's"
}

killed=0 in_save=0 starts=0 latest_ms=150
while ((killed < kills || in_save == 0)); do
  ((++starts <= 10 * kills)) || fail "no kill falls into a save, or the run is always done before"
  # Every third run keeps no copies.
  ((starts % 3)) && mode=() || mode=(checkpoint.snapshot_mib=0)
  train killed $((1 + starts % 2)) "${mode[@]}" &
  job=$!
  before=$(acknowledged killed)
  # Wait until a second save of this start has begun, and a moment longer.
  for ((wait = 0; wait < 3000; wait++)); do
    now=$(acknowledged killed)
    [[ $now != "$before" ]] && compgen -G "$work/killed/checkpoints/.tmp.step_*" >/dev/null && break
    kill -0 $job 2>/dev/null || break
    sleep 0.01
  done
  sleep "0.$(printf %03d $((RANDOM % latest_ms)))"
  victim=$(ranks_of killed | shuf -n 1 --random-source=<(yes "$RANDOM"))
  [ -z "$victim" ] || kill -9 "$victim" 2>/dev/null || true
  code=0
  wait $job || code=$?
  no_ranks killed
  last=$(acknowledged killed)
  # The newest checkpoint is the committed one, or a later one that the log does not have yet.
  newest=$("$ripstop" checkpoint inspect "$work/killed" --json 2>/dev/null | sed -n 's/^ *"step": \([0-9]*\),$/\1/p' | head -1 || true)
  [[ -z $last || ${newest:--1} -ge $last ]] || fail "step $last was committed, the newest checkpoint is of step ${newest:-none}"
  [[ -z $newest ]] || "$ripstop" checkpoint verify "$work/killed" >/dev/null || fail "the checkpoint of step $newest is damaged"
  if [ $code -eq 0 ]; then
    expect_unbroken
    rm -rf "$work/killed"
    latest_ms=$((latest_ms / 2 + 1)) # this machine is faster
    continue
  fi
  [ $code -ne 74 ] || fail "the run ended with 74: $(grep -a FATAL "$work/killed.log" | tail -1)"
  killed=$((killed + 1))
  compgen -G "$work/killed/checkpoints/.tmp.step_*" >/dev/null && in_save=$((in_save + 1))
done
train killed 2 || fail "the run after the kills: $(tail -3 "$work/killed.log")"
expect_unbroken
echo "killed $killed times, $in_save of them in a save: no committed step lost, $steps losses equal bit for bit"
