#!/usr/bin/env bash
# The tests of cuDNN's plans, which need no GPU, with another cuDNN than the installed one: from PyPI, kept in the user's cache.
#   second_cudnn.sh CUDA_LIBRARIES_TEST LIBRARY_PATH [VERSION [FILTER]]
# LIBRARY_PATH is that of the tests with the installed cuDNN. Ends with 77 if this version cannot be had.
set -euo pipefail
program=$1 libraries=$2
version=${3:-9.26.1.1} # the second cuDNN of the tests
# All shipped configs take minutes: the installed cuDNN alone is asked for them.
filter=${4:-Attention*:-*OfEveryShippedConfig*}
kept=${XDG_CACHE_HOME:-$HOME/.cache}/ripstop/cudnn-$version

if [ ! -d "$kept" ]; then
  mkdir -p "${kept%/*}"
  work=$(mktemp -d "$kept.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  if ! python3 -m pip download -q --no-deps -d "$work" "nvidia-cudnn-cu13==$version" >"$work/log" 2>&1; then
    echo "skipped: cuDNN $version cannot be had from PyPI: $(tail -1 "$work/log")"
    exit 77
  fi
  python3 -m zipfile -e "$work"/*.whl "$work/wheel"
  mv "$work/wheel/nvidia/cudnn/lib" "$kept" 2>/dev/null || [ -d "$kept" ] # another process may be first
fi
echo "cuDNN $version"
IFS=. read -r major minor patch _ <<<"$version"
LD_LIBRARY_PATH=$kept:$libraries RIPSTOP_EXPECTED_CUDNN=$((major * 10000 + minor * 100 + patch)) "$program" --gtest_filter="$filter"
