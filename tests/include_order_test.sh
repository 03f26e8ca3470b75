#!/usr/bin/env bash
# Fails on an include against the arrows between folders (model <- parallel <- train, data <- train, and those inside
# model/, data/ and train/), on two folders that include each other, and on a third-party header outside the file that wraps it.
#      tests/include_order_test.sh [ROOT]
set -euo pipefail

# What a file may include: pattern of the file, then pattern of the root-relative headers.
arrows='
model/core/     model/core/
model/device/   model/(core|device)/
model/ops/      model/(core|device|ops)/
model/kernels/  model/(core|device|ops|kernels)/
model/          model/
parallel/       (model|parallel)/
'
# rooms FOLDER OTHERS ROOM...: the rooms of FOLDER from the ground up. Each may include itself, the rooms before it, and
# the folders OTHERS.
rooms() {
  local folder=$1 others=$2 reach='' room
  for room in "${@:3}"; do
    reach+="${reach:+|}$room"
    arrows+="$folder/$room/ ($others|$folder/($reach))/"$'\n'
  done
}
rooms data model/core files process text hdf5 tokenizer chat dataset corpus prepare
rooms train/exchange 'model|parallel|data|train/(config|machine|report|step|checkpoint)' hugging_face peft read write
rooms train 'model|parallel|data' config machine report step checkpoint exchange generate evaluate plan check run page commands
arrows+='train/ (model|parallel|data|train)/'

# Third-party headers, and where alone they may stand. Every <header.h> and <folder/header> must match here.
wrapped='
mpi\.h                        parallel/mpi_progress\.h
nccl\.h                       parallel/nccl_[a-z_]*\.(h|cpp)
cuda(_runtime(_api)?|_profiler_api|_bf16|_fp16)?\.h   model/(kernels/cuda/|device/cuda_)|parallel/nccl_
(cublasLt|cudnn[a-z_]*|nvrtc)\.h        model/kernels/cuda/
nvtx3/.*                      model/(kernels/cuda/|device/cuda_)
(oneapi/dnnl/)?dnnl.*         model/kernels/cpu/
immintrin\.h                  model/kernels/cpu/
omp\.h                        model/
(hdf5|H5.*)\.h                data/hdf5/.*
sentencepiece_.*\.h           data/tokenizer/(sentencepiece_tokenizer|tokenizer_training)\.cpp
pcre2\.h                      data/tokenizer/regex\.cpp
unicode/.*                    data/tokenizer/unicode\.cpp
archive(_entry)?\.h           data/text/tar_input\.cpp
zlib\.h                       data/(text/unpacked_input|files/hash)\.cpp
xxhash\.h                     (data|train)/.*\.cpp
toml\+\+/.*                   train/(config/config_entries|machine/version)\.cpp
CLI/.*                        train/commands/command_line\.cpp
nlohmann/json.*\.hpp          (data|train|parallel)/.*\.cpp|data/text/json_reader\.h
fmt/.*                        .*
(sys|net|netinet|arpa|linux)/.*   .*
(unistd|fcntl|signal|spawn|sched|pthread|poll|dirent|dlfcn|errno|netdb|ifaddrs|time|glob|cpuid|malloc|pwd|termios)\.h   .*
'

sources() {
  find model parallel data train -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' | sort
}

# Prints one line for every pair of folders below ROOT that include each other.
two_way_pairs() {
  (cd "$1" && sources | xargs -r grep -HoE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"[^"]*/' /dev/null | awk '
    {
      from = $0; sub(/\/[^\/]*:.*/, "", from)
      to = $0; sub(/.*"/, "", to); sub(/\/$/, "", to)
      if (from == to) next
      includes[from, to] = 1
      if ((to, from) in includes) print from " and " to " include each other"
    }' | sort -u)
}

# Prints one line for every wrong include below the folder ROOT.
violations() {
  (cd "$1" && sources | xargs -r grep -HnE '^[[:space:]]*#[[:space:]]*include' /dev/null | ARROWS=$arrows WRAPPED=$wrapped awk '
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
  mkdir -p "$tree"/{model/{core,device,ops,kernels},parallel,data/files,train/{config,run,commands,exchange/read}}
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
model/a.cpp|#include "data/tokenizer/tokenizer.h"
model/device/a.cpp|#include "model/ops/ops.h"
model/a.cpp|#include "error.h"
model/core/a.h|#include "model/device/tensor.h"
model/ops/a.h|#include "model/config.h"
train/config/a.h|#include "train/run/trainer.h"
train/run/a.cpp|#include "train/commands/commands.h"
parallel/a.cpp|#include "train/run/trainer.h"
parallel/a.cpp|  #  include "data/hdf5/hdf5.h"
data/files/a.h|#include "model/config.h"
data/files/a.h|#include "train/config/run_config.h"
data/files/a.h|#include "data/text/utf8.h"
data/a.h|#include "data/files/io.h"
train/exchange/read/a.h|#include "train/exchange/write/export_model.h"
model/a.cpp|#include <mpi.h>
train/a.cpp|#include <hdf5.h>
data/files/a.h|#include <nlohmann/json.hpp>
train/a.cpp|#include <unknown_library.h>
TEXT
if planted train/run/a.cpp '#include "train/config/run_config.h"' || planted data/files/a.cpp '#include <vector>'; then
  echo "include_order_test refuses what is right"
  status=1
fi

found=$(violations "$root")
if [[ -n $found ]]; then
  echo "$found"
  status=1
fi

tree=$(mktemp -d)
mkdir -p "$tree"/{model/device,parallel,data,train}
echo '#include "model/device/a.h"' >"$tree/model/a.h"
echo '#include "model/a.h"' >"$tree/model/device/a.h"
if [[ -z $(two_way_pairs "$tree") ]]; then
  echo "include_order_test is blind: model and model/device include each other"
  status=1
fi
rm -rf "$tree"
found=$(two_way_pairs "$root")
echo "two-way folder pairs: $(grep -c . <<<"$found")"
if [[ -n $found ]]; then
  echo "$found"
  status=1
fi
exit $status
