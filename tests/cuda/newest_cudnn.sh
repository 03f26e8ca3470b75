#!/usr/bin/env bash
# The tests of cuDNN's plans with the newest cuDNN on PyPI. Not a part of .ci/run, whose result must not depend on the day: run it
# now and then in a tree with the preset cuda built, and write into docs/gpus.md what it prints last.
#   newest_cudnn.sh [BUILD]
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$source/build/cuda}
newest=$(python3 -m pip index versions nvidia-cudnn-cu13 2>/dev/null | sed -n '1s/.*(\(.*\)).*/\1/p')
[ -n "$newest" ] || { echo "PyPI does not tell its newest cuDNN" >&2; exit 77; }
folder=$(sed -n 's/^cudnn_LIBRARY:FILEPATH=\(.*\)\/[^/]*$/\1/p' "$build/CMakeCache.txt")
code=0
"$source/tests/cuda/second_cudnn.sh" "$build/tests/cuda/cuda_libraries_test" "$build/driver:$folder:${LD_LIBRARY_PATH:-}" "$newest" ||
  code=$?
case $code in
  0) echo "$(date +%F): cuDNN $newest: the tests pass" ;;
  77) echo "$(date +%F): cuDNN $newest: not tried" ;;
  *) echo "$(date +%F): cuDNN $newest: the tests fail, see above" ;;
esac
exit "$code"
