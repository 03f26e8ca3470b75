#!/usr/bin/env bash
# The scripts that plant faults in a copy of the source still find every line that they change.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for script in tests/emulated_device/can_tell.sh tests/train/commands/check_faults.sh; do
  mkdir "$work/tree"
  cp -r --parents model parallel train tests "$work/tree"
  "$script" --plant "$work/tree" >"$work/log" 2>&1 || {
    cat "$work/log"
    exit 1
  }
  diff -rq model "$work/tree/model" >/dev/null && diff -rq parallel "$work/tree/parallel" >/dev/null && {
    echo "$script: nothing was planted"
    exit 1
  }
  rm -r "$work/tree"
done
echo "all faults can be planted"
