#!/usr/bin/env bash
# What is wrong with GPUs is named at the start: two ranks on one, parts of one card, what NVML tells, and an NCCL that is too
# old for a pipeline.
#   gpus_test.sh RIPSTOP_ON_EMULATED_DEVICE LAUNCH FOLDER_OF_NVML
set -euo pipefail
ripstop=$1 launch=$2
export LD_LIBRARY_PATH=$3${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export RIPSTOP_CACHE=$work/cache
fail() { echo "FAILED: $*" >&2; exit 1; }

"$ripstop" prepare --source synthetic --examples 200 --seed 3 --vocab-size 400 --output "$work/data" >"$work/prepare.log" 2>&1 ||
  fail "prepare: $(cat "$work/prepare.log")"

# train NAME CODE [VARIABLE=VALUE...]: two ranks on the mesh `mesh`, one step; output goes to NAME.log
mesh=(mesh.fsdp=2 mesh.pipeline=1)
train() {
  local name=$1 expected=$2 code=0
  shift 2
  env "$@" "$launch" 2 "$ripstop" train "$source/configs/quickstart.toml" "data.directory=$work/data" "run.directory=$work/$name" \
    run.device=cuda "${mesh[@]}" mesh.tensor=1 train.steps=1 schedule.warmup_steps=0 model.hidden_size=32 model.intermediate_size=88 \
    model.num_hidden_layers=2 data.sequence_length=128 train.global_batch_sequences=2 generation.max_new_tokens=2 >"$work/$name.log" 2>&1 || code=$?
  [ "$code" -eq "$expected" ] || fail "$name ends with $code, not $expected: $(tail -5 "$work/$name.log")"
}
says() { grep -q "$2" "$work/$1.log" || fail "$1 does not say '$2': $(cat "$work/$1.log")"; }

train one_gpu 78 RIPSTOP_EMULATED_GPUS=3
says one_gpu "ranks 0 and 1 on .* would share the GPU at 0000:03:00.0"
says one_gpu "RIPSTOP_SHARE_GPU=1"
train parts 78 RIPSTOP_EMULATED_GPUS="3 3"
says parts "parts of one card, MIG, count as one"
train shared 0 RIPSTOP_EMULATED_GPUS=3 RIPSTOP_SHARE_GPU=1
train multicast 76 RIPSTOP_EMULATED_NCCL_WINDOWS=broken
says multicast "NCCL_NVLS_ENABLE=0 does without multicast"
train without_multicast 0 RIPSTOP_EMULATED_NCCL_WINDOWS=broken NCCL_NVLS_ENABLE=0
train ill 0 RIPSTOP_EMULATED_NVML="2 3 4711 1048576"
says ill "emulated GPU at 0000:01:00.0 is in a compute mode that keeps programs out"
says ill "has had 3 uncorrected memory errors"
says ill "is also used by process 4711, which holds 1 MiB"
train well 0
! grep -q "emulated GPU at" "$work/well.log" || fail "a healthy GPU is complained of: $(grep "GPU at" "$work/well.log")"
RIPSTOP_EMULATED_NVML="0 5" "$ripstop" doctor >"$work/doctor.log" 2>&1 || true
says doctor "emulated GPU at 0000:07:00.0 has had 5 uncorrected memory errors"
# Each GPU counts once, however many ranks share it. Joules that stand still are no energy, but known.
energy() { grep '"event":"end"' "$work/$1/metrics.jsonl" | grep -o "\"$2\":[^,}]*" | cut -d: -f2; }
train still 0 RIPSTOP_EMULATED_NVML="0 0 0 0 5000"
[ "$(energy still gpu_kwh)" = 0.0 ] || fail "gpu_kwh of GPUs that stand still is $(energy still gpu_kwh)"
train old 0 RIPSTOP_EMULATED_NVML="0 0 0 0 -1"
[ "$(energy old gpu_kwh)" = null ] || fail "gpu_kwh of GPUs from before Volta is $(energy old gpu_kwh)"
# NVML's stand-in takes 300 W a GPU.
watts() { awk "BEGIN { print $(energy "$1" gpu_kwh) * 1000 / $(energy "$1" node_hours) / 300 }"; }
awk "BEGIN { exit !($(watts well) > 1.5 && $(watts well) < 2.1) }" || fail "two GPUs take $(watts well) times the power of one"
awk "BEGIN { exit !($(watts shared) > 0.75 && $(watts shared) < 1.05) }" || fail "a shared GPU takes $(watts shared) times its power"
"$ripstop" doctor >"$work/power.log" 2>&1 || true
says power "power .* W of GPUs over .*GPU 0000:01:00.0"
mesh=(mesh.fsdp=1 mesh.pipeline=2)
train old_nccl 78 RIPSTOP_EMULATED_NCCL=2.21
says old_nccl "a pipeline on GPUs needs NCCL 2.26, rank 0 has 2.21.5: older ones do not keep the order"
train pipeline 0 RIPSTOP_EMULATED_NCCL=2.27
train old_nccl_unused 0 RIPSTOP_EMULATED_NCCL=2.21 RIPSTOP_EMULATED_GPUS=3 RIPSTOP_SHARE_GPU=1
echo "shared GPUs, parts of cards, ill GPUs and an NCCL that is too old are named"
