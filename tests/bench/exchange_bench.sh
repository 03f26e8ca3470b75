#!/usr/bin/env bash
# How fast `checkpoint import` and `checkpoint export` are beside the disk: wall time of dd for the same bytes, and of the
# command, in turns.
#   tests/bench/exchange_bench.sh build/cpu-release/ripstop MODEL [SCRATCH [ROUNDS [RANKS]]]
# MODEL is a directory with config.json and safetensors, SCRATCH a folder on the disk under test (default: here), RANKS the
# processes that export (default 1; more need mpirun). dd reads what the command reads and writes as many zeros, with
# conv=fsync. The page cache is emptied before each if this user may write /proc/sys/vm/drop_caches; else, and with
# CACHE=warm, the inputs are read once before, and both find them there. What the commands read again to compare it is not counted.
set -euo pipefail
program=$(realpath "$1")
model=$(realpath "$2")
rounds=${4:-3} ranks=${5:-1}
scratch=$(mktemp -d -p "${3:-.}" exchange_bench.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
export TIMEFORMAT='%R %U %S' OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
dense=()
cache=${CACHE:-cold}
[[ -w /proc/sys/vm/drop_caches ]] || cache=warm

# INPUT...: the same cache state before each measurement.
same_cache() {
  sync
  if [[ $cache == cold ]]; then echo 3 >/proc/sys/vm/drop_caches; else cat "$@" >/dev/null; fi
}

# Bytes of the files, without holes.
bytes() { du -c -B1 "$@" | awk 'END { print $1 }'; }

# WRITTEN_BYTES INPUT...: seconds, user and system seconds of dd.
dd_time() {
  local written=$1
  shift
  same_cache "$@"
  {
    time {
      for input in "$@"; do dd if="$input" of=/dev/null bs=1M 2>/dev/null; done
      dd if=/dev/zero of="$scratch/zeros" bs=1M count=$((written >> 20)) conv=fsync 2>/dev/null
    }
  } 2>&1
  rm "$scratch/zeros"
}

# OUTPUT INPUTS... -- COMMAND...
command_time() {
  local output=$1 inputs=()
  shift
  while [[ $1 != -- ]]; do inputs+=("$1"); shift; done
  shift
  rm -rf "$output"
  same_cache "${inputs[@]}"
  { time "$@" >"$scratch/out" 2>"$scratch/err"; } 2>&1
}

# NAME OUTPUT INPUTS... -- COMMAND...
measure() {
  local name=$1 output=$2 inputs=()
  local given=("${@:2}")
  shift 2
  while [[ $1 != -- ]]; do inputs+=("$1"); shift; done
  shift
  rm -rf "$output"
  "$@" >/dev/null 2>&1 || { "$@" || true; exit 1; }  # once before, to know the bytes; a failure speaks for itself
  local read written
  read=$(bytes "${inputs[@]}")
  written=$(bytes "$output")
  for ((round = 1; round <= rounds; ++round)); do
    local plain own
    plain=$(dd_time "$written" "${dense[@]:-${inputs[@]}}")
    own=$(command_time "${given[@]}")
    echo "$plain $own" | awk -v name="$name" -v read="$read" -v written="$written" '{
      printf "| %s | %.2f + %.2f | %.1f | %.1f | %.2f | %.2f |\n", name, read / 1e9, written / 1e9, $1, $4, $1 / $4,
             ($5 + $6) / ((read + written) / 1e9) }'
  done
}

echo "page cache: $cache"
echo "| command | GB read + written | dd, s | command, s | dd / command | CPU seconds a GB |"
echo "|---|---|---|---|---|---|"
weights=("$model"/*.safetensors)
measure import "$scratch/imported" "${weights[@]}" -- "$program" checkpoint import "$model" "$scratch/imported"
launch=()
((ranks > 1)) && launch=(mpirun -n "$ranks" --oversubscribe)
[[ $(id -u) == 0 && $ranks -gt 1 ]] && launch+=(--allow-run-as-root)
# The moments of an import are holes, which nobody reads and dd would: dd gets a file of as many bytes without them.
stored=("$scratch"/imported/checkpoints/step_00000000/rank_*.h5)
dense=("$scratch/dense")
: >"$scratch/dense"
while (($(bytes "$scratch/dense") < $(bytes "${stored[@]}"))); do cat "${weights[@]}" >>"$scratch/dense"; done
truncate -s "$(bytes "${stored[@]}")" "$scratch/dense"
measure "export, $ranks rank(s)" "$scratch/exported" "${stored[@]}" -- \
  "${launch[@]}" "$program" checkpoint export --dtype bfloat16 "$scratch/imported" "$scratch/exported"
