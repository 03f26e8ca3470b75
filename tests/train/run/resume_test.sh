#!/usr/bin/env bash
# An interrupted run equals an unbroken one: killed ranks, a stop signal, another mesh. The run is on a pipeline.
#   resume_test.sh RIPSTOP LAUNCH HANGING_DISK [KILLS [adapters]]       default 3 kills; 20 for a thorough look
# With "adapters" the run trains adapters of all matrices beside a frozen model, with dropout, on fsdp 2 x tensor 2.
set -euo pipefail
ripstop=$1 launch=$2 hanging_disk=$3 kills=${4:-3} trained=${5:-model}
source=$(cd "$(dirname "$0")/../../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
steps=60
RANDOM=${RESUME_TEST_SEED:-7}

fail() { echo "FAILED: $*" >&2; exit 1; }

# train NAME RANKS MESH...: one start of the run; output goes to NAME.log
train() (
  local name=$1 ranks=$2
  shift 2
  exec "$launch" "$ranks" "$ripstop" train "$source/configs/quickstart.toml" "data.directory=$work/data" \
    "run.directory=$work/$name" train.steps=$steps train.validate_every=20 checkpoint.every_steps=4 checkpoint.keep=0 \
    train.global_batch_sequences=4 log.every_steps=10 "${model[@]}" "$@" >>"$work/$name.log" 2>&1
)
four=(mesh.pipeline=2 mesh.fsdp=2 mesh.tensor=1 train.micro_batch_sequences=1)
model=() stages=4

source "$source/tests/train/run/mesh_runs.sh"

# ended JOB NAME: waits for a launcher whose rank was killed. Ends the launcher if no rank is left: Open MPI 4.1 can wait for
# ever for a rank that was killed before it had reported to mpirun.
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
if [ "$trained" = adapters ]; then
  four=(mesh.fsdp=2 mesh.tensor=2) stages=3
  train base 4 "${four[@]}" model.num_hidden_layers=2 train.validate_every=0 || fail "the base: $(tail -3 "$work/base.log")"
  model=("model.pretrained=$work/base" lora.rank=4 lora.alpha=8 lora.dropout=0.1
    'lora.targets=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]'
    generation.validate_examples=12 generation.max_new_tokens=16)
fi
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
# Kills come at any time of the unbroken run: in the start, in a step, in a save. A run that is done before its kill is compared,
# and its time is the limit for the next kills.
killed=0 done=0
while ((killed < kills)); do
  train killed 4 "${four[@]}" &
  job=$!
  moment=$((RANDOM * took_ms / 32768))
  sleep "$((moment / 1000)).$(printf %03d $((moment % 1000)))"
  victim=$(ranks_of killed | shuf -n 1 --random-source=<(yes "$RANDOM"))
  [ -z "$victim" ] || kill -9 "$victim" 2>/dev/null || true
  ended $job killed
  no_ranks killed
  [ $code -ne 74 ] || fail "the run is not given free: $(grep -a FATAL "$work/killed.log" | tail -1)"
  if [ $code -eq 0 ]; then
    expect_unbroken killed
    rm -rf "$work/killed"
    done=$((done + 1)) took_ms=$moment
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
# HANGING_DISK holds the run after step 3 until it is asked to stop.
mkdir "$work/stand"
echo '"event":"step","step":3,' >"$work/stand/metrics.jsonl"
LD_PRELOAD=$hanging_disk HANGING_DISK=$work/stand train stopped 4 "${four[@]}" &
job=$!
until [ "$(losses stopped 2>/dev/null | wc -l)" -ge 3 ]; do
  kill -0 $job || fail "the run ends by itself: $(tail -3 "$work/stopped.log")"
  sleep 0.1
done
kill -USR1 "$(ranks_of stopped | head -1)"
rm "$work/stand/metrics.jsonl"
ended $job stopped
[ $code -eq 75 ] || fail "exit code $code after SIGUSR1, expected 75: $(tail -3 "$work/stopped.log")"
train stopped 4 "${four[@]}" || fail "the run after the signal"
expect_unbroken stopped
echo "stopped by SIGUSR1 with exit code 75 and resumed: $steps losses equal bit for bit"

# ---- another mesh: 1e-5
# expect_near NAME: the run is done, and its losses are those of the unbroken one
expect_near() {
  losses "$1" >"$work/$1.losses"
  paste -d' ' "$work/unbroken.losses" "$work/$1.losses" | awk -v name="$1" -v steps=$steps '
    $1 != $3 { print name ": step " $1 " beside step " $3; bad = 1 }
    { d = $2 - $4; if (d < 0) d = -d; if (d > 1e-5 * $2) { print name ": step " $1 ": " $2 " and " $4; bad = 1 } if (d / $2 > worst) worst = d / $2 }
    END { if (NR != steps) bad = 1; if (!bad) print name ": " NR " losses within " worst + 0; exit bad }' ||
    fail "$1 does not go as the unbroken run did"
}
# go_on NAME RANKS MESH...: trains the run to its end, and compares
go_on() {
  train "$@" || fail "$1: $(tail -3 "$work/$1.log")"
  expect_near "$1"
}
# continue_on NAME FROM STEP RANKS MESH...: goes on from that step of the run FROM
continue_on() {
  local step
  step=$(printf 'step_%08d' "$3")
  mkdir -p "$work/$1/checkpoints"
  cp "$work/$2"/{config.toml,tokenizer.model,metrics.jsonl} "$work/$1/"
  cp -r "$work/$2/checkpoints/$step" "$work/$1/checkpoints/"
  go_on "$1" "${@:4}"
}
# Each goes on from the one before.
continue_on one_rank unbroken 28 1 mesh.fsdp=1 mesh.tensor=1
continue_on fsdp_4 one_rank 32 4 mesh.fsdp=4 mesh.tensor=1
continue_on tensor_2 fsdp_4 36 2 mesh.fsdp=1 mesh.tensor=2
continue_on deep tensor_2 40 $stages mesh.pipeline=$stages mesh.fsdp=1 mesh.tensor=1
continue_on replicate_2_fsdp_2 deep 44 4 mesh.replicate=2 mesh.fsdp=2 mesh.tensor=1
continue_on pipeline_2_tensor_2 replicate_2_fsdp_2 48 4 mesh.pipeline=2 mesh.fsdp=1 mesh.tensor=2
continue_on back pipeline_2_tensor_2 52 4 "${four[@]}"

# expect_same_exports FORMAT FILE RUN RUN: both runs have the same losses and give the same weights, bit for bit
expect_same_exports() {
  local run
  for run in "$3" "$4"; do
    losses "$run" >"$work/$run.losses"
    "$ripstop" checkpoint verify "$work/$run" >"$work/export.log" 2>&1 || fail "verify: $(tail -3 "$work/export.log")"
    "$ripstop" checkpoint export --format "$1" --checkpoint latest --dtype float32 "$work/$run" "$work/$run.$1" >"$work/export.log" 2>&1 ||
      fail "export: $(tail -3 "$work/export.log")"
  done
  cmp "$work/$3.losses" "$work/$4.losses" || fail "the losses of $3 and $4 differ"
  cmp "$work/$3.$1/$2" "$work/$4.$1/$2" || fail "$3 and $4 export other weights"
}
if [ "$trained" = model ]; then
  # The stages of a pipeline compute what their ranks would compute of the whole model.
  train fsdp_2 2 mesh.fsdp=2 mesh.tensor=1 train.micro_batch_sequences=1 || fail "fsdp_2: $(tail -3 "$work/fsdp_2.log")"
  expect_same_exports huggingface model.safetensors unbroken fsdp_2
  echo "a pipeline's $steps losses and its export equal those without one, bit for bit"
  exit
fi
# Whole runs on other meshes: the loader's order, the shards of the base, and the masks of dropout.
go_on one_rank_anew 1 mesh.fsdp=1 mesh.tensor=1 train.micro_batch_sequences=2
go_on pipeline_2_anew 2 mesh.pipeline=2 mesh.fsdp=1 mesh.tensor=1 train.micro_batch_sequences=2
expect_same_exports peft adapter_model.safetensors one_rank_anew pipeline_2_anew
expect_same_exports huggingface model.safetensors one_rank_anew pipeline_2_anew
go_on fsdp_3_anew 3 mesh.fsdp=3 mesh.tensor=1
go_on tensor_2_replicate_2_anew 4 mesh.replicate=2 mesh.fsdp=1 mesh.tensor=2

# ---- results from the adapters: the same by one rank and by four
of_last=(--checkpoint latest) few=(--split validation --limit 12 --max-new-tokens 16 --json)
value() { sed -n "s/^ *\"$1\": \([^,]*\),*\$/\1/p" | head -1; }
for ranks in 1 4; do
  "$launch" $ranks "$ripstop" evaluate "$work/unbroken" "${of_last[@]}" "${few[@]}" --output "$work/scores_$ranks" \
    >"$work/scores_$ranks.json" 2>"$work/evaluate.log" || fail "evaluate: $(tail -3 "$work/evaluate.log")"
  for format in huggingface peft; do
    "$launch" $ranks "$ripstop" checkpoint export --format $format "${of_last[@]}" --dtype float32 "$work/unbroken" \
      "$work/${format}_$ranks" >"$work/export.log" 2>&1 || fail "export: $(tail -3 "$work/export.log")"
  done
done
cmp "$work"/huggingface_{1,4}/model.safetensors || fail "merged by four ranks, weights are others"
cmp "$work"/peft_{1,4}/adapter_model.safetensors || fail "exported by four ranks, adapters are others"
grep '"summary"' "$work/scores_1/predictions.jsonl" | cmp - "$work/scores_4/predictions.jsonl" ||
  fail "four ranks write other summaries"
awk -v a="$(value loss <"$work/scores_1.json")" -v b="$(value loss <"$work/scores_4.json")" \
  'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a > 0 && d <= 1e-5 * a) }' || fail "evaluate on one and on four ranks: other losses"
# The run's own validation computes with the adapters beside the frozen weights; `evaluate` merges them.
scores=$(sed -n 's/.*"event":"validation".*"rouge1":\([^,}]*\).*"rougeL":\([^,}]*\).*/\1 \2/p' "$work/unbroken/metrics.jsonl" | tail -1)
again=$(awk '/"rouge1"/ {key = 1} /"rougeL"/ {key = 2} /"fmeasure"/ && key {gsub(/[^0-9.e-]/, "", $2); v[key] = $2; key = 0}
  END {print v[1], v[2]}' "$work/scores_1.json")
[ "$scores" = "$again" ] && [ "${scores%% *}" != 0.0 ] || fail "ROUGE of the validation is $scores, of evaluate $again"
# The merged export in Hugging Face's format, without adapters, writes the same.
"$ripstop" evaluate "$work/huggingface_1" --data "$work/data" "${few[@]}" --output "$work/scores_merged" \
  >"$work/scores_merged.json" 2>"$work/evaluate.log" || fail "evaluate: $(tail -3 "$work/evaluate.log")"
cmp "$work"/scores_{1,merged}/predictions.jsonl || fail "the merged model writes other summaries"
echo "one rank and four: the same weights, adapters and summaries, loss $(value loss <"$work/scores_1.json")"

# ---- without its base: one line and exit code 65, on any number of ranks
mv "$work/base" "$work/moved"
code=0
train unbroken 4 "${four[@]}" train.steps=$((steps + 1)) || code=$?
[ $code -eq 65 ] || fail "without its base: exit code $code, expected 65"
[ "$(grep -c "^FATAL.*that the adapters were trained with is not there" "$work/unbroken.log")" -eq 1 ] ||
  fail "without its base: $(grep -a FATAL "$work/unbroken.log")"
train unbroken 4 "${four[@]}" || fail "a run that is done needs its base: $(tail -3 "$work/unbroken.log")"
train unbroken 4 "${four[@]}" train.steps=$((steps + 1)) "model.pretrained=$work/moved" ||
  fail "with the base at another place: $(tail -3 "$work/unbroken.log")"
echo "without its base: one line and exit code 65; found again by model.pretrained"
