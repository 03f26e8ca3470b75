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

signal='' signalled=false launcher='' reminder=''
# first SIGNAL: the one that came first says why the run ends. Slurm's SIGTERM at the time limit comes after its SIGUSR1.
first() {
  signalled=true
  if [[ -z $signal ]]; then signal=$1; fi
}
# srun loses a signal that comes before its ranks are there. So in the first minute it is sent again: to ranks it is the same
# request.
remind() {
  if [[ -n $reminder ]]; then return; fi
  (
    trap '' TSTP
    while ((SECONDS < patience)) && sleep 5 && kill -USR1 "$launcher"; do :; done
  ) </dev/null >/dev/null 2>&1 &
  reminder=$!
}
# Asks the ranks to save. srun would kill them on SIGTERM and SIGHUP; launch.sh and srun both pass SIGUSR1 on.
ask() {
  if [[ -z $launcher ]]; then return; fi # it will be asked when it has started
  kill -USR1 "$launcher" 2>/dev/null || true
  remind
}
trap 'first USR1; ask' USR1
trap 'first TERM; ask' TERM
trap 'first HUP; ask' HUP
trap 'signalled=true' TSTP # launch.sh answers Ctrl-Z
# A node that was cut off may come back while the job runs elsewhere. The srun that lives on there then ends its step, by job
# and number, which would be the step of this start if both were number 0. So this one gets another number.
if [[ -n ${SLURM_JOB_ID:-} ]] && command -v srun >/dev/null; then
  for ((step = 0; step < ${SLURM_RESTART_COUNT:-0} % 4; step++)); do
    srun --mpi=none --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=1 true || true
  done
fi

patience=$((SECONDS + 60))
# Without `trap`, a command in the background would be deaf to Ctrl-C. For launch.sh, a second one ends the run at once.
(
  trap - INT
  exec "$here/launch.sh" "$ranks" "${RIPSTOP_PROGRAM:-ripstop}" "$@"
) &
launcher=$!
trap 'first INT' INT # launch.sh answers Ctrl-C
# A signal that came before: the start is made all the same, as the run counts those that come to nothing.
if [[ -n $signal && $signal != INT ]]; then remind; fi
while # a signal ends `wait`, not the run: wait again
  signalled=false status=0
  wait $launcher || status=$?
  $signalled
do :; done
trap '' USR1 TERM HUP TSTP # what comes now must not end requeue.sh: it asks Slurm what becomes of the job
# A rank that had only just been started does not know the signal yet and ends by it.
if [[ -n $signal && $1 =~ ^(train|evaluate)$ ]] && ((status == 128 + $(kill -l USR1))); then status=75; fi
exec "$here/requeue.sh" "$status" ${signal:+"$signal"}
