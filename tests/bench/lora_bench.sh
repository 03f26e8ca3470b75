#!/usr/bin/env bash
# Compares the speed of LoRA with full fine-tuning and, where python3 on PATH has torch, transformers and peft, with peft
# under torch.compile: same model, batch, precision and cores, in turns, for several rounds.
#   tests/bench/lora_bench.sh TRAINING_BENCH [ROUNDS] [PRESET [SEQUENCES [POSITIONS]]]
# Prints the tokens per second of the median step of each round and the ratios of the medians of the rounds.
set -euo pipefail
bench=$(realpath "$1") rounds=${2:-3} preset=${3:-110m} sequences=${4:-4} positions=${5:-512}
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
OMP_NUM_THREADS=$(nproc)
export OMP_NUM_THREADS

rate() { sed -n 's/.*"tokens_per_second": *\([0-9.]*\).*/\1/p' | tail -1; }
ours() {
  "$source/slurm/launch.sh" 1 "$bench" --model "$preset" --positions "$positions" --sequences "$sequences" --dtype "$dtype" \
    --device cpu --recompute none --steps 4 --warmup 1 "$@" 2>/dev/null | rate
}
theirs() {
  python3 "$source/tests/bench/peft_steps.py" --preset "$preset" --batch "$sequences" --sequence "$positions" --dtype "$dtype" \
    --steps 4 --warmup 1 --compile "$@" 2>/dev/null | rate
}
has_peft() { python3 -c 'import torch, transformers, peft' 2>/dev/null; }
median() { sort -g "$work/$1" | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
rounds_of() { paste -s -d ' ' "$work/$1"; }
ratio() { awk -v a="$(median "$1")" -v b="$(median "$2")" 'BEGIN {printf "%.2f", a / b}'; }

names=(full attention all)
if has_peft; then names+=(peft_attention peft_all); else echo "no peft here: not compared with it"; fi
dtypes=(float32)
if grep -q -m 1 avx512_bf16 /proc/cpuinfo; then dtypes+=(bfloat16); else echo "no bfloat16 products here: float32 alone"; fi
for dtype in "${dtypes[@]}"; do
  rm -f "$work"/*
  for ((round = 0; round < rounds; round++)); do
    ours >>"$work/full"
    ours --lora-rank 16 >>"$work/attention"
    ours --lora-rank 16 --lora-all >>"$work/all"
    if [[ -n ${names[3]:-} ]]; then
      theirs --rank 16 >>"$work/peft_attention"
      theirs --rank 16 --all >>"$work/peft_all"
    fi
  done
  for name in "${names[@]}"; do printf '%s %s %-15s tokens/s %s\n' "$preset" "$dtype" "$name" "$(rounds_of "$name")"; done
  printf '%s %s LoRA over full: attention %s, all %s\n' "$preset" "$dtype" "$(ratio attention full)" "$(ratio all full)"
  if [[ -n ${names[3]:-} ]]; then
    printf '%s %s LoRA over compiled peft: attention %s, all %s\n' "$preset" "$dtype" "$(ratio attention peft_attention)" \
      "$(ratio all peft_all)"
  fi
done
