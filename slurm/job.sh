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

# If --nodes was a range, SLURM_NTASKS is that of the least nodes, and not of those that Slurm granted.
ranks=${SLURM_NTASKS:-${RIPSTOP_RANKS:-1}}
if [[ ${SLURM_NTASKS_PER_NODE:-} =~ ^[0-9]+$ && -n ${SLURM_JOB_NUM_NODES:-} ]]; then
  ranks=$((SLURM_JOB_NUM_NODES * SLURM_NTASKS_PER_NODE))
fi
if [[ -n ${SLURM_CPUS_PER_TASK:-} ]]; then export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$SLURM_CPUS_PER_TASK}; fi

signal='' signalled=false
# first SIGNAL: the one that came first says why the run ends. Slurm's SIGTERM at the time limit comes after its SIGUSR1.
first() {
  signalled=true
  if [[ -z $signal ]]; then signal=$1; fi
}
# Without `trap`, a command in the background would be deaf to Ctrl-C. For launch.sh, a second one ends the run at once.
(
  trap - INT
  exec "$here/launch.sh" "$ranks" "${RIPSTOP_PROGRAM:-ripstop}" "$@"
) &
launcher=$!
# srun would kill the ranks on SIGTERM and SIGHUP. launch.sh and srun both pass SIGUSR1 on, and the ranks save.
trap 'first USR1; kill -USR1 $launcher 2>/dev/null || true' USR1
trap 'first TERM; kill -USR1 $launcher 2>/dev/null || true' TERM
trap 'first HUP; kill -USR1 $launcher 2>/dev/null || true' HUP
trap 'first INT' INT # launch.sh answers Ctrl-C
trap 'signalled=true' TSTP # and Ctrl-Z
while # a signal ends `wait`, not the run: wait again
  signalled=false status=0
  wait $launcher || status=$?
  $signalled
do :; done
trap '' TSTP
exec "$here/requeue.sh" "$status" ${signal:+"$signal"}
