#!/usr/bin/env bash
# The memory of a rank's process grows by its plan, within 3 % and 16 MiB. The 16 MiB are for memory outside the plan: oneDNN's
# compiled kernels, MPI's buffers, sequences that are read ahead, one block of a checkpoint. In a pipeline, so does the memory of the
# last stage, which has the most here.
#   memory_test.sh RIPSTOP LAUNCH
set -euo pipefail
ripstop=$1 launch=$2
source=$(cd "$(dirname "$0")/../../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
positions=256 sequences=4
"$ripstop" prepare --source synthetic --examples 600 --seed 3 --vocab-size 400 --output "$work/data" >"$work/prepare.log" 2>&1 ||
  { cat "$work/prepare.log"; exit 1; }

number() { sed -n "s/.*\"event\":\"end\".*$1\([0-9]*\).*/\1/p" "$2"; }
. "$source/tests/train/run/mesh_runs.sh"
# peak_of RANK JOB: the highest resident memory of the rank that JOB launches, in bytes, read until it ends
peak_of() {
  local pid of='' kib=0 key value
  while [[ -z $of ]] && kill -0 "$2" 2>/dev/null; do
    for pid in $(ranks_of run); do
      if tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$1"; then of=$pid; fi
    done
  done
  while [[ -n $of && -r /proc/$of/status ]]; do
    while read -r key value _; do [[ $key != VmHWM: ]] || kib=$value; done 2>/dev/null <"/proc/$of/status" || true
    sleep 0.02
  done
  echo $((kib * 1024))
}

status=0 mib=1048576
printf '%-48s %9s %9s %9s\n' "MiB of rank 0, or of the last stage" planned grown allowed
small=(model.preset=15m model.vocab_size=32000 model.hidden_size=288 model.intermediate_size=768 model.num_hidden_layers=6
  model.num_attention_heads=8 model.num_key_value_heads=8 "model.max_position_embeddings=$positions"
  "data.sequence_length=$positions" "train.global_batch_sequences=$sequences")
model=("${small[@]}")
# compare NAME PLANNED GROWN: in bytes
compare() {
  local planned=$2 grown=$3 allowed=$(($2 + $2 * 3 / 100 + 16 * mib))
  printf '%-48s %s' "$1" "$(awk -v m=$mib '{for (i = 1; i <= NF; i++) printf "%s%9.1f", i == 1 ? "" : " ", $i / m}' <<<"$planned $grown $allowed")"
  if ((grown <= allowed)); then echo; else echo "  too much"; status=1; fi
  if ((grown < planned - planned * 3 / 100 - 16 * mib)); then echo "  less than planned: is all of it used?"; status=1; fi
}
# row RANKS PRECISION MESH...: checks a run of the model in $model
row() {
  local ranks=$1 precision=$2 job name before peak=0
  shift 2
  local words=("$source/configs/quickstart.toml" "data.directory=$work/data" "run.directory=$work/run" "${model[@]}" train.steps=3
    schedule.warmup_steps=1 train.validate_every=0 checkpoint.every_steps=2 "precision.compute=$precision" "$@")
  rm -rf "$work/run"
  "$launch" "$ranks" "$ripstop" train "${words[@]}" >"$work/log" 2>&1 &
  job=$!
  if [[ $* == *pipeline* ]]; then peak=$(peak_of $((ranks - 1)) $job); fi
  wait $job || { cat "$work/log"; exit 1; }
  local metrics=$work/run/metrics.jsonl
  name="$(sed -E 's/ train.validate.*/ with summaries/; s/ train.micro.*//; s/mesh\.//g; s/=/ /g; s/ (fsdp|tensor)/ x \1/g' <<<"$*") $precision"
  before=$(number '"resident":{"before":' "$metrics")
  compare "$name" "$(number '"planned":{"memory":{[^}]*"total":' "$metrics")" \
    $(($(number '"resident":{"before":[0-9]*,"peak":' "$metrics") - before))
  if ((peak > 0)); then
    compare "  the last stage" "$("$ripstop" plan "${words[@]}" --json | sed -n '/"total"/{s/[^0-9]//g;p;q}')" $((peak - before))
  fi
}
row 1 float32 mesh.fsdp=1 mesh.tensor=1
row 4 float32 mesh.fsdp=4 mesh.tensor=1
row 4 float32 mesh.fsdp=1 mesh.tensor=4
row 4 float32 mesh.fsdp=2 mesh.tensor=2
row 4 float32 mesh.replicate=2 mesh.fsdp=2 mesh.tensor=1
row 4 float32 mesh.replicate=2 mesh.fsdp=1 mesh.tensor=2
row 2 float32 mesh.pipeline=2 mesh.fsdp=1 mesh.tensor=1 train.micro_batch_sequences=2 train.global_batch_sequences=8 checkpoint.snapshot_mib=0
row 3 float32 mesh.fsdp=3 mesh.tensor=1
row 1 bfloat16 mesh.fsdp=1 mesh.tensor=1
row 4 bfloat16 mesh.fsdp=2 mesh.tensor=2
row 4 bfloat16 mesh.pipeline=2 mesh.fsdp=2 mesh.tensor=1 train.micro_batch_sequences=1 train.global_batch_sequences=8 checkpoint.snapshot_mib=0
row 4 bfloat16 mesh.fsdp=2 mesh.tensor=2 train.validate_every=2 generation.validate_examples=24
# Adapters beside a model of one table, which is read in pieces: a whole copy in float32 would double the memory.
model=(model.preset=debug model.vocab_size=100000 model.hidden_size=256 model.intermediate_size=256 model.num_hidden_layers=1
  model.num_attention_heads=4 model.num_key_value_heads=4 model.max_position_embeddings=64 model.tie_word_embeddings=true
  data.sequence_length=64 train.global_batch_sequences=2)
"$ripstop" train "$source/configs/quickstart.toml" "data.directory=$work/data" "run.directory=$work/base" mesh.fsdp=1 mesh.tensor=1 \
  "${model[@]}" train.steps=1 schedule.warmup_steps=0 train.validate_every=0 checkpoint.every_steps=1 >"$work/log" 2>&1 ||
  { cat "$work/log"; exit 1; }
model=("model.pretrained=$work/base" data.sequence_length=64 train.global_batch_sequences=2 lora.rank=4 lora.alpha=8)
row 1 float32 mesh.fsdp=1 mesh.tensor=1
row 2 bfloat16 mesh.fsdp=2 mesh.tensor=1
exit $status
