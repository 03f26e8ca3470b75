#!/usr/bin/env bash
# shellcheck disable=SC2064
# Runs a verb of ripstop on the ranks of this job, passes Slurm's signals on, and ends with requeue.sh.
#   slurm/job.sh VERB [ARGUMENT...]      on the ranks of the Slurm job, else on RIPSTOP_RANKS here (default 1)
# The job files for train and evaluate exec this script, so it gets their signals.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
source "$here/endings.sh"
if [[ $# -lt 1 || $1 == --help || $1 == -h ]]; then usage && exit; fi

ranks=${SLURM_NTASKS:-${RIPSTOP_RANKS:-1}}
per_node=${SLURM_NTASKS_PER_NODE:-}
if [[ -z $per_node && -n ${RIPSTOP_RANKS_PER_NODE:-} && -n ${SLURM_JOB_NUM_NODES:-} ]]; then
  per_node=$RIPSTOP_RANKS_PER_NODE
  if [[ $per_node == auto ]]; then # a rank for each GPU; without GPUs, for --cpus-per-task (or 8) processors
    per_node=${SLURM_GPUS_ON_NODE:-$((${SLURM_CPUS_ON_NODE:-1} / ${SLURM_CPUS_PER_TASK:-8}))}
    if ((per_node < 1)); then per_node=1; fi
  fi
  export SLURM_NTASKS_PER_NODE=$per_node
  if [[ -z ${SLURM_CPUS_PER_TASK:-} ]]; then
    export SLURM_CPUS_PER_TASK=$((${SLURM_CPUS_ON_NODE:-1} > per_node ? SLURM_CPUS_ON_NODE / per_node : 1))
  fi
fi
# Fills the nodes that Slurm granted this time, unless --ntasks asked for fewer ranks.
if [[ $per_node =~ ^[0-9]+$ && -n ${SLURM_JOB_NUM_NODES:-} ]]; then
  on_all_nodes=$((SLURM_JOB_NUM_NODES * per_node))
  if ((${SLURM_NTASKS:-on_all_nodes} >= on_all_nodes)); then ranks=$on_all_nodes; fi
fi
if ((${SLURM_HET_SIZE:-1} > 1)); then say "a heterogeneous job: the ranks are on its first part, the other parts stay idle"; fi
if [[ -n ${SLURM_CPUS_PER_TASK:-} ]]; then export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$SLURM_CPUS_PER_TASK}; fi

signal='' signalled=false launcher='' reminder=''
# first SIGNAL: records the first signal, the reason why the run ends. At the time limit Slurm sends SIGTERM after SIGUSR1.
first() { signalled=true signal=${signal:-$1}; }
# remind: repeats SIGUSR1 during the first minute, because srun loses a signal that comes before its ranks are
# there. Ranks take several signals as one request.
remind() {
  if [[ -n $reminder ]]; then return; fi
  (
    trap '' TSTP
    while ((SECONDS < patience)) && sleep 5 && kill -USR1 "$launcher"; do :; done
  ) </dev/null >/dev/null 2>&1 &
  reminder=$!
}
# ask SIGNAL: asks the ranks to save, by SIGUSR1, which launch.sh and srun pass on. srun would kill the ranks on SIGTERM and
# SIGHUP. Before the launcher has started, the signal is only recorded.
ask() {
  first "$1"
  if [[ -z $launcher ]]; then return; fi
  kill -USR1 "$launcher" 2>/dev/null || true
  remind
}
for each in USR1 TERM HUP; do trap "ask $each" "$each"; done
trap 'signalled=true' TSTP # launch.sh answers Ctrl-Z
# A lost node may come back while the job runs elsewhere. Its srun then ends its step by job and step number,
# and would end a new step of the same number, too. So a restart runs empty steps first.
if [[ -n ${SLURM_JOB_ID:-} ]] && command -v srun >/dev/null; then
  for ((step = 0; step < ${SLURM_RESTART_COUNT:-0} % 4; step++)); do
    srun --mpi=none --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=1 true || true
  done
fi

patience=$((SECONDS + 60))
# Without `trap`, a background command ignores Ctrl-C. But launch.sh must get Ctrl-C, because a second one ends the run at once.
(
  trap - INT
  exec "$here/launch.sh" "$ranks" "${RIPSTOP_PROGRAM:-ripstop}" "$@"
) &
launcher=$!
trap 'first INT' INT # only recorded: launch.sh itself answers Ctrl-C
# The run starts even after an early signal, so that ripstop counts starts without progress.
if [[ -n $signal && $signal != INT ]]; then remind; fi
while # a signal ends `wait` but not the run
  signalled=false status=0
  wait $launcher || status=$?
  $signalled
do :; done
trap '' INT USR1 TERM HUP TSTP # these must not end requeue.sh, which asks Slurm about the job
# A rank that has only just started has no handler for the signal yet, so the signal ends it.
if [[ -n $signal && $1 =~ ^(train|evaluate)$ ]] && ((status == 128 + $(kill -l USR1))); then status=75; fi
exec "$here/requeue.sh" "$status" ${signal:+"$signal"}
