#!/usr/bin/env bash
# Fails on an include against the arrows model <- parallel <- train, data <- train, and on a third-party header outside
# the file that wraps it.      tests/include_order_test.sh [ROOT]
set -euo pipefail

# What a file may include: pattern of the file, then pattern of the root-relative headers.
arrows='
model/device/   model/(device/|error\.h|function_ref\.h|rounding\.h)
model/ops/      model/
model/kernels/  model/
model/          model/
parallel/       (model|parallel)/
data/           (data/|model/error\.h)
train/          (model|parallel|data|train)/
'

# Third-party headers, and where alone they may stand. Every <header.h> and <folder/header> must match here.
wrapped='
mpi\.h                        parallel/mpi_transfer\.h
nccl\.h                       parallel/nccl_[a-z_]*\.(h|cpp)
cuda(_runtime(_api)?|_profiler_api|_bf16|_fp16)?\.h   model/(kernels/cuda/|device/cuda_)|parallel/nccl_
(cublasLt|cudnn[a-z_]*|nvrtc)\.h        model/kernels/cuda/
nvtx3/.*                      model/(kernels/cuda/|device/cuda_)
(oneapi/dnnl/)?dnnl.*         model/kernels/cpu/
immintrin\.h                  model/kernels/cpu/
omp\.h                        model/
(hdf5|H5.*)\.h                data/hdf5[a-z_]*\.cpp
sentencepiece_.*\.h           data/tokenizer[a-z_]*\.cpp
archive(_entry)?\.h           data/
xxhash\.h                     (data|train)/.*\.cpp
toml\+\+/.*                   train/(run_config|version)[a-z_]*\.cpp
CLI/.*                        train/(main\.cpp|commands/)
nlohmann/json.*\.hpp          (data|train|parallel)/.*\.cpp
fmt/.*                        .*
(sys|net|netinet|arpa|linux)/.*   .*
(unistd|fcntl|signal|sched|pthread|poll|dirent|dlfcn|errno|netdb|ifaddrs|time|glob|cpuid|malloc|termios)\.h   .*
'

# Prints one line for every wrong include below the folder ROOT.
violations() {
  (cd "$1" && find model parallel data train -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' | sort |
    xargs -r grep -HnE '^[[:space:]]*#[[:space:]]*include' /dev/null | ARROWS=$arrows WRAPPED=$wrapped awk '
    function table(text, keys, values,   lines, parts, i, n, count) {
      n = split(text, lines, "\n")
      for (i = 1; i <= n; i++) if (split(lines[i], parts, " ") == 2) { keys[++count] = parts[1]; values[count] = parts[2] }
      return count
    }
    BEGIN {
      arrow_count = table(ENVIRON["ARROWS"], folder, reach)
      wrapped_count = table(ENVIRON["WRAPPED"], library, place)
    }
    {
      file = $0; sub(/:.*/, "", file)
      where = $0; sub(/^[^:]*:/, "", where); sub(/:.*/, "", where)
      header = $0; sub(/.*#[ \t]*include[ \t]*/, "", header)
      if (header ~ /^"/) {
        sub(/^"/, "", header); sub(/".*/, "", header)
        for (i = 1; i <= arrow_count; i++) if (file ~ "^" folder[i]) break
        if (i > arrow_count || header !~ "^" reach[i]) print file ":" where ": may not include \"" header "\""
      } else {
        sub(/^</, "", header); sub(/>.*/, "", header)
        if (header !~ /[.\/]/) next
        known = 0
        for (i = 1; i <= wrapped_count; i++) if (header ~ "^" library[i] "$") {
          known = 1
          if (file ~ "^" place[i]) next
        }
        print file ":" where ": <" header "> " (known ? "belongs in the file that wraps it" : "is not in the table of this test")
      }
    }')
}

# The test can fail: each of these lines in an empty tree must be seen.
planted() {
  local file=$1 line=$2 tree found
  tree=$(mktemp -d)
  mkdir -p "$tree"/{model/device,parallel,data,train}
  echo "$line" >"$tree/$file"
  found=$(violations "$tree")
  rm -rf "$tree"
  [[ -n $found ]]
}

root=${1:-$(dirname "$0")/..}
status=0
while IFS='|' read -r file line; do
  if ! planted "$file" "$line"; then
    echo "include_order_test is blind: $line in $file was not seen"
    status=1
  fi
done <<'TEXT'
model/a.h|#include "parallel/communicator.h"
model/a.cpp|#include "data/tokenizer.h"
model/device/a.cpp|#include "model/ops/ops.h"
model/a.cpp|#include "error.h"
parallel/a.cpp|#include "train/trainer.h"
parallel/a.cpp|  #  include "data/hdf5.h"
data/a.h|#include "model/config.h"
data/a.h|#include "train/run_config.h"
model/a.cpp|#include <mpi.h>
train/a.cpp|#include <hdf5.h>
data/a.h|#include <nlohmann/json.hpp>
train/a.cpp|#include <unknown_library.h>
TEXT
if planted train/a.cpp '#include "model/config.h"' || planted data/a.cpp '#include <vector>'; then
  echo "include_order_test refuses what is right"
  status=1
fi

found=$(violations "$root")
if [[ -n $found ]]; then
  echo "$found"
  status=1
fi
exit $status
