#!/usr/bin/env bash
# Starts COMMAND on N ranks: with srun inside a Slurm allocation, else with mpirun on this node.
#   slurm/launch.sh N COMMAND [ARGUMENT...]
# This process becomes the launcher (exec). A signal sent to it (SIGUSR1, SIGTERM) reaches the ranks, and it ends with
# their exit code.
# RIPSTOP_LAUNCHER=mpirun|srun overrides the choice. RIPSTOP_LAUNCHER_OPTIONS adds options, as in "--mpi=pmix".
# RIPSTOP_LAUNCHER_QUIET=1 silences the paragraph that Open MPI 4 prints after a rank failed or was killed.
# For several machines without Slurm, call mpirun yourself with your host file.
set -euo pipefail
usage() { sed -n '2,8s/^# \?//p' "$0"; }
if [[ ${1:-} == --help || ${1:-} == -h ]]; then
  usage
  exit
fi
if [[ $# -lt 2 || ! $1 =~ ^[1-9][0-9]*$ ]]; then
  usage >&2
  exit 64
fi
ranks=$1
shift
read -ra options <<<"${RIPSTOP_LAUNCHER_OPTIONS:-}"

launcher=${RIPSTOP_LAUNCHER:-}
if [[ -z $launcher ]]; then
  launcher=mpirun
  if [[ -n ${SLURM_JOB_ID:-} ]] && command -v srun >/dev/null; then launcher=srun; fi
fi
if ! command -v "$launcher" >/dev/null; then
  echo "slurm/launch.sh: no $launcher on PATH; Debian and Ubuntu: apt-get install openmpi-bin, clusters: module load openmpi" >&2
  exit 78
fi

if [[ $launcher == srun ]]; then
  # Since Slurm 22.05 srun does not inherit the job's --cpus-per-task.
  if [[ -n ${SLURM_CPUS_PER_TASK:-} ]]; then export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK; fi
  exec srun --ntasks="$ranks" --kill-on-bad-exit=1 "${options[@]}" "$@"
fi

if ! command -v -- "$1" >/dev/null; then
  echo "slurm/launch.sh: no program '$1' here" >&2
  exit 64
fi
# mpirun gives its ranks a pseudo-terminal. If no real terminal is behind it, tell them.
if [[ ! -t 1 ]]; then export TERM=dumb; fi
cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) # otherwise nproc would repeat these variables
if [[ -z ${OMP_NUM_THREADS:-} ]]; then
  export OMP_NUM_THREADS=$((cores > ranks ? cores / ranks : 1))
fi
# Threads spin while they wait for each other. If others need the core, that is slow: 40 steps of 4 ranks x 2 threads on
# 2 busy cores took 130 to 190 s, and 6 to 8 s with passive waiting.
if ((ranks * OMP_NUM_THREADS > cores)); then export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}; fi
# Processes in containers often run as root. These ranks touch this node only.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
version=$(mpirun --version 2>/dev/null || true)
case $version in
  *"Open MPI"*" 4."*) shared_memory=vader quiet=${RIPSTOP_LAUNCHER_QUIET:+--quiet} ;;
  *"Open MPI"*) shared_memory=sm quiet= ;;
  *) exec mpirun -n "$ranks" "${options[@]}" "$@" ;; # MPICH and its relatives need none of the options below
esac
# Ranks of one machine use shared memory. Without a probe of the network, no network can be misread.
# A waiting rank yields its core, as there may be more ranks than cores.
exec mpirun -n "$ranks" $quiet --oversubscribe --bind-to none --mca pml ob1 --mca btl "self,$shared_memory" \
  --mca mpi_yield_when_idle 1 "${options[@]}" "$@"
