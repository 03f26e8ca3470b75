#!/usr/bin/env bash
# What each job file of this folder sources first: env.sh, then these scripts and the ripstop of this repository on PATH.
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
arguments=("$@")
# What sites load, as modules, conda and oneAPI, is written for none of these, and takes arguments of the job for its own.
set +euo pipefail
set --
source "$scripts/env.sh"
set -- "${arguments[@]}"
set -euo pipefail
PATH=$PATH:$scripts:${scripts%/*}/build/cpu-release
