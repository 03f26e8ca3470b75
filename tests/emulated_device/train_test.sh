#!/usr/bin/env bash
# A whole run of the program on four emulated GPUs, fsdp 2 x tensor 2: it trains as on the CPU, it is the same bit for bit in
# another order of work, and stopped and resumed it is the same bit for bit.
#   train_test.sh RIPSTOP_ON_EMULATED_DEVICE LAUNCH [PRECISION [STEPS]]
set -euo pipefail
ripstop=$1 launch=$2 precision=${3:-float32} steps=${4:-12}
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export RIPSTOP_CACHE=$work/cache

fail() { echo "FAILED: $*" >&2; exit 1; }

# train NAME DEVICE SEED [KEY=VALUE...]: one run; output goes to NAME.log
train() {
  local name=$1 device=$2 seed=$3
  shift 3
  RIPSTOP_EMULATED_SEED=$seed "$launch" 4 "$ripstop" train "$source/configs/quickstart.toml" "data.directory=$work/data" \
    "run.directory=$work/$name" "run.device=$device" "precision.compute=$precision" "train.steps=$steps" \
    train.validate_every=6 checkpoint.every_steps=4 checkpoint.keep=0 model.hidden_size=64 model.intermediate_size=176 model.num_hidden_layers=2 \
    train.global_batch_sequences=4 train.micro_batch_sequences=1 data.sequence_length=128 generation.max_new_tokens=4 \
    run.deterministic=true schedule.warmup_steps=2 log.every_steps=4 "$@" >>"$work/$name.log" 2>&1 || fail "$name: $(tail -5 "$work/$name.log")"
}
# Of steps and of validations.
losses() {
  sed -n 's/.*"event":"\(step\|validation\)".*"step":\([0-9]*\),.*"loss":\([^,}]*\).*/\1 \2 \3/p' "$work/$1/metrics.jsonl"
}
expect_equal() {
  cmp <(losses "$1") <(losses "$2") || fail "the losses of $1 and $2 differ"
}

"$ripstop" prepare --source synthetic --examples 200 --seed 3 --vocab-size 400 --output "$work/data" >"$work/prepare.log" 2>&1 ||
  fail "prepare: $(cat "$work/prepare.log")"
train cpu cpu 1
train cuda cuda 1
found=$(losses cuda | grep -c '^step' || true) validated=$(losses cuda | grep -c '^validation' || true)
[ "$found" -eq "$steps" ] && [ "$validated" -ge $((steps / 6)) ] || fail "$found steps and $validated validations, expected $steps and $((steps / 6))"
tolerance=$([ "$precision" = float32 ] && echo 1e-5 || echo 2e-2)
paste <(losses cpu) <(losses cuda) | awk -v most="$tolerance" '
  function off(a, b) { return a > b ? a - b : b - a }
  off($3, $6) > most * $3 { print $1 ", step " $2 ": " $6 " on emulated GPUs, " $3 " on the CPU"; bad = 1 }
  END { exit bad }' || fail "the losses differ from the CPU's"
train other cuda 2
expect_equal cuda other
mkdir -p "$work/resumed/checkpoints"
cp "$work"/cuda/{config.toml,tokenizer.model,metrics.jsonl} "$work/resumed/"
cp -r "$work/cuda/checkpoints/step_00000004" "$work/resumed/checkpoints/"
train resumed cuda 3
expect_equal cuda resumed
# A system that refuses pinned memory: 32 MiB are two streams' own, and what is left holds a part of a rank's shards.
RIPSTOP_EMULATED_PINNED=$((32 * 1024 + 200)) train pinned cuda 1
grep -q 'warning: the system refuses a rank .* of pinned host memory for copies of a save: it has [1-9]' "$work/pinned.log" ||
  fail "no pinned memory is refused: $(grep warning "$work/pinned.log")"
expect_equal cuda pinned
for file in "$work"/cuda/checkpoints/step_*/rank_*.h5; do
  cmp "$file" "$work/pinned/${file#"$work/cuda/"}" || fail "saved with fewer copies, ${file##*/} is another"
done
if (RIPSTOP_EMULATED_PINNED=$((32 * 1024 + 200)) train limit cuda 1 checkpoint.snapshot_mib=100) 2>/dev/null; then
  fail "copies that the config asks for are refused, and the run goes on"
fi
echo "$steps steps and $validated validations in $precision: as on the CPU; equal bits in another order, and stopped and resumed"
