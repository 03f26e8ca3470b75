#!/usr/bin/env bash
# What fits where: prints the table of docs/pretrained.md, made by `ripstop plan --search` without a GPU.
#   tests/bench/what_fits.sh build/cpu-release/ripstop [SECTION.KEY=VALUE...]
# Each cell is the best mesh of the job (fsdp x tensor), its micro-batch and recomputation, and the memory of a rank.
set -euo pipefail
program=$(realpath "$1")
overrides=("${@:2}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat >"$scratch/c.toml" <<'TOML'
[run]
directory = "run"
[model]
preset = "llama2-7b"
[data]
directory = "data"
sequence_length = 2048
[train]
steps = 1
global_batch_sequences = 64
[optimizer]
learning_rate = 1e-5
TOML

# The first value of a key in the JSON of plan, which has one key a line.
value() { sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}$/\1/p" "$scratch/plan.json" | head -n 1; }

cell() {  # PRESET GPUS MEMORY_GIB
  local nodes=$(($2 > 8 ? $2 / 8 : 1)) tasks=$(($2 > 8 ? 8 : $2))
  if ! OMP_NUM_THREADS=1 "$program" plan "$scratch/c.toml" "model.preset=$1" "${overrides[@]}" --search --limit 1 --nodes "$nodes" \
    --ntasks-per-node "$tasks" --device cuda --device-memory "$3GiB" --json >"$scratch/plan.json" 2>/dev/null; then
    printf -- '-'
    return
  fi
  local replicate mesh
  replicate=$(value replicate)
  mesh="$(value fsdp) x $(value tensor)"
  [[ $replicate == 1 ]] || mesh="$replicate x $mesh"
  printf '%s, %s, %s, %.0f GiB' "$mesh" "$(value micro_batch_sequences)" "$(value recompute)" \
    "$(awk -v bytes="$(value total)" 'BEGIN { print bytes / 2^30 }')"
}

echo "| model | GPUs | 24 GB | 40 GB | 80 GB | 141 GB |"
echo "|---|---|---|---|---|---|"
for preset in llama2-7b llama2-13b llama2-70b; do
  for gpus in 1 4 8 32; do
    printf '| %s | %s ' "$preset" "$gpus"
    # What drivers report of cards of this size.
    for memory in 23.5 39.4 79.1 139.8; do printf '| %s ' "$(cell "$preset" "$gpus" "$memory")"; done
    echo "|"
  done
done
