#!/usr/bin/env bash
# Runs a verb of ripstop on the ranks of this job, hands on what Slurm signals, and ends as requeue.sh says.
#   slurm/job.sh VERB [ARGUMENT...]      on the ranks of the Slurm job, else on RIPSTOP_RANKS here (default 1)
# train.sbatch and evaluate.sbatch become this script, so it gets their signals.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [[ $# -lt 1 || $1 == --help || $1 == -h ]]; then
  sed -n '2,4s/^# \?//p' "${BASH_SOURCE[0]}"
  exit
fi

ranks=${SLURM_NTASKS:-${RIPSTOP_RANKS:-1}}
per_node=${SLURM_NTASKS_PER_NODE:-}
if [[ -z $per_node && -n ${RIPSTOP_RANKS_PER_NODE:-} && -n ${SLURM_JOB_NUM_NODES:-} ]]; then
  per_node=$RIPSTOP_RANKS_PER_NODE
  if [[ $per_node == auto ]]; then # a rank for each GPU, else for each eight processors
    per_node=${SLURM_GPUS_ON_NODE:-$((${SLURM_CPUS_ON_NODE:-1} / ${SLURM_CPUS_PER_TASK:-8}))}
    if ((per_node < 1)); then per_node=1; fi
  fi
  export SLURM_NTASKS_PER_NODE=$per_node
  if [[ -z ${SLURM_CPUS_PER_TASK:-} ]]; then
    export SLURM_CPUS_PER_TASK=$((${SLURM_CPUS_ON_NODE:-1} > per_node ? SLURM_CPUS_ON_NODE / per_node : 1))
  fi
fi
# Of the nodes that Slurm granted, which may be others each time. Slurm's number of tasks is smaller if --ntasks asked for less.
if [[ $per_node =~ ^[0-9]+$ && -n ${SLURM_JOB_NUM_NODES:-} ]]; then
  on_all_nodes=$((SLURM_JOB_NUM_NODES * per_node))
  if ((${SLURM_NTASKS:-on_all_nodes} >= on_all_nodes)); then ranks=$on_all_nodes; fi
fi
if [[ -n ${SLURM_CPUS_PER_TASK:-} ]]; then export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$SLURM_CPUS_PER_TASK}; fi

signal='' signalled=false
# first SIGNAL: the one that came first says why the run ends. Slurm's SIGTERM at the time limit comes after its SIGUSR1.
first() {
  signalled=true
  if [[ -z $signal ]]; then signal=$1; fi
}
launcher=
# srun would kill the ranks on SIGTERM and SIGHUP. launch.sh and srun both pass SIGUSR1 on, and the ranks save.
trap 'first USR1; kill -USR1 $launcher 2>/dev/null || true' USR1
trap 'first TERM; kill -USR1 $launcher 2>/dev/null || true' TERM
trap 'first HUP; kill -USR1 $launcher 2>/dev/null || true' HUP
trap 'signalled=true' TSTP # launch.sh answers Ctrl-Z
# A node that was cut off may come back while the job runs elsewhere. The srun that lives on there then ends its step, by job
# and number, which would be the step of this start if both were number 0. So this one gets another number.
if [[ -n ${SLURM_JOB_ID:-} ]] && command -v srun >/dev/null; then
  for ((step = 0; step < ${SLURM_RESTART_COUNT:-0} % 4; step++)); do
    srun --mpi=none --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=1 true || true
  done
fi
if [[ -n $signal ]]; then exec "$here/requeue.sh" 75 "$signal"; fi # nothing has begun

# Without `trap`, a command in the background would be deaf to Ctrl-C. For launch.sh, a second one ends the run at once.
(
  trap - INT
  exec "$here/launch.sh" "$ranks" "${RIPSTOP_PROGRAM:-ripstop}" "$@"
) &
launcher=$!
trap 'first INT' INT # launch.sh answers Ctrl-C
while # a signal ends `wait`, not the run: wait again
  signalled=false status=0
  wait $launcher || status=$?
  $signalled
do :; done
trap '' TSTP
exec "$here/requeue.sh" "$status" ${signal:+"$signal"}
