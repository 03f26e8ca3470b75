#!/usr/bin/env bash
# Compares training speed with PyTorch: same model, batch, precision and cores, in turns, for several rounds.
#   tests/bench/against_pytorch.sh RIPSTOP TORCH_PROGRAMS [ROUNDS]
# TORCH_PROGRAMS is a folder with torch_llama.py (one process, torch.compile) and torch_fsdp_tp.py (FSDP2 x DTensor under
# torchrun). python3 on PATH must have PyTorch. Prints the GFLOP/s of the model (6 N + causal attention) in the median
# step and the ratio. Each side counts with its best round.
set -euo pipefail
ripstop=$(realpath "$1") programs=$(realpath "$2") rounds=${3:-2}
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cores=$(nproc)
"$ripstop" prepare --source synthetic --examples 3000 --seed 1 --vocab-size 512 --output "$work/data" >/dev/null 2>&1

# ours PRESET SEQUENCES POSITIONS DTYPE RANKS THREADS MESH...: tokens per second of the median step
ours() {
  local preset=$1 sequences=$2 positions=$3 dtype=$4 ranks=$5 threads=$6
  shift 6
  rm -rf "$work/run"
  OMP_NUM_THREADS=$threads "$source/slurm/launch.sh" "$ranks" "$ripstop" train "$source/configs/quickstart.toml" \
    run.directory="$work/run" data.directory="$work/data" data.sequence_length="$positions" data.loss_on=all \
    model.preset="$preset" model.vocab_size=32000 model.tie_word_embeddings=false \
    model.hidden_size="$(size "$preset" 1)" model.intermediate_size="$(size "$preset" 2)" \
    model.num_hidden_layers="$(size "$preset" 3)" model.num_attention_heads="$(size "$preset" 4)" \
    model.num_key_value_heads="$(size "$preset" 4)" model.max_position_embeddings="$positions" \
    train.steps=16 train.global_batch_sequences="$sequences" train.validate_every=0 checkpoint.every_steps=0 schedule.warmup_steps=4 \
    precision.compute="$dtype" "$@" >"$work/log" 2>&1 || { grep -a FATAL "$work/log" >&2; return 1; }
  sed -n 's/.*"event":"step".*"step":\([0-9]*\),.*"step_seconds":\([^,}]*\).*/\1 \2/p' "$work/run/metrics.jsonl" |
    awk '$1 > 4 {print $2}' | sort -g | awk -v tokens=$((sequences * positions)) '{s[NR]=$1} END {print tokens / s[int((NR + 1) / 2)]}'
}
size() {
  case $1 in
    15m) echo "288 768 6 6" ;;
    110m) echo "768 2048 12 12" ;;
  esac | cut -d' ' -f"$2"
}

# theirs COMMAND...: tokens per second, from the JSON line
theirs() { "$@" 2>/dev/null | sed -n 's/.*"tokens_per_second": *\([0-9.]*\).*/\1/p' | tail -1; }

# flops PRESET POSITIONS: the FLOPs of one token
flops() {
  local c f l
  read -r c f l _ <<<"$(size "$1" 1) $(size "$1" 2) $(size "$1" 3)"
  echo $((6 * (l * (4 * c * c + 3 * c * f + 2 * c) + c + 32000 * c) + 6 * l * c * $2))
}

best() { sort -g | tail -1; }

# onednn DTYPE: the FLOP/s of a large product
onednn() {
  OMP_NUM_THREADS=$cores "$(dirname "$ripstop")/tests/bench/kernels_bench" --ceilings --dtypes "$1" --json "$work/ceilings" >/dev/null
  sed -n "s/.*\"$1\": *\([0-9.e+]*\).*/\1/p" "$work/ceilings"
}

row() {
  local label=$1 preset=$2 positions=$3 a b
  a=$(best <"$work/ours") b=$(best <"$work/theirs")
  awk -v label="$label" -v a="$a" -v b="$b" -v f="$(flops "$preset" "$positions")" -v rate="${rate:-0}" \
    'BEGIN {printf "%-34s ripstop %7.1f  PyTorch %7.1f GFLOP/s  ratio %.2f  of oneDNN %s\n",
            label, a * f / 1e9, b * f / 1e9, a / b, rate > 0 ? sprintf("%.0f %%", 100 * a * f / rate) : "-"}'
}

one_process() {
  local preset=$1 sequences=$2 positions=$3 dtype=$4
  rm -f "$work/ours" "$work/theirs"
  for ((round = 0; round < rounds; round++)); do
    ours "$preset" "$sequences" "$positions" "$dtype" 1 "$cores" mesh.fsdp=1 mesh.tensor=1 >>"$work/ours"
    theirs python3 "$programs/torch_llama.py" --preset "$preset" --batch "$sequences" --sequence "$positions" --steps 12 \
      --dtype "$dtype" --compile >>"$work/theirs"
  done
  row "$preset $dtype, 1 rank x $cores threads" "$preset" "$positions"
}

mesh() {
  local fsdp=$1 tensor=$2 dtype=$3 ranks=$(($1 * $2))
  rm -f "$work/ours" "$work/theirs"
  for ((round = 0; round < rounds; round++)); do
    ours 15m 8 256 "$dtype" "$ranks" 1 mesh.fsdp="$fsdp" mesh.tensor="$tensor" >>"$work/ours"
    theirs torchrun --standalone --nproc-per-node "$ranks" "$programs/torch_fsdp_tp.py" --tensor "$tensor" --preset 15m \
      --batch $((8 / fsdp)) --sequence 256 --threads 1 --dtype "$dtype" >>"$work/theirs"
  done
  row "15m $dtype, fsdp $fsdp x tensor $tensor" 15m 256
}

for dtype in float32 bfloat16; do
  rate=$(onednn "$dtype")
  one_process 15m 8 256 "$dtype"
  one_process 110m 4 512 "$dtype"
  mesh 2 2 "$dtype"
  mesh 2 1 "$dtype"
  mesh 1 2 "$dtype"
done
