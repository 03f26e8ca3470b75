#!/usr/bin/env bash
# Sourced by each job file: reads env.sh, then puts these scripts and this repository's ripstop on PATH.
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
arguments=("$@")
# Site scripts (modules, conda, oneAPI) may fail under -euo pipefail, and would read the job's arguments.
set +euo pipefail
set --
source "$scripts/env.sh"
set -- "${arguments[@]}"
set -euo pipefail
source "$scripts/endings.sh"
export PATH=$PATH:$scripts:${scripts%/*}/build/cpu-release
