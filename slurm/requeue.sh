#!/usr/bin/env bash
# Decides whether a Slurm job is requeued when its ranks have ended. The job files call it last; it ends with CODE.
#   slurm/requeue.sh CODE [SIGNAL]      CODE: exit code of the ranks. SIGNAL: USR1, TERM, HUP or INT, if the job's script got one
# The job goes back into the queue, where the same command goes on from the checkpoint, if
#   - CODE is 75 and the time was up: after SIGUSR1, or without a signal at the job's end (not at RIPSTOP_DEADLINE);
#   - CODE is 75 after SIGTERM, and Slurm says that the job was pre-empted, lost a node or reached its time limit;
#   - CODE is 76 or the code of a signal, and a node of the job does not answer.
# The job is not requeued if it was cancelled, or if Slurm requeues it by itself. An array of one task at a time
# (--array=1-10%1) is for sites that refuse requeue: its next task goes on instead. If there is nothing to go on with, the
# tasks that are left are cancelled.
set -euo pipefail
if [[ ${1:-} == --help || ${1:-} == -h ]]; then
  sed -n '2,10s/^# \?//p' "${BASH_SOURCE[0]}"
  exit
fi
code=${1:-} signal=${2:-}
if [[ ! $code =~ ^[0-9]+$ ]]; then
  sed -n '2,10s/^# \?//p' "${BASH_SOURCE[0]}" >&2
  exit 64
fi
job=${SLURM_JOB_ID:-}
if [[ -z $job ]] || ! command -v scontrol >/dev/null; then exit "$code"; fi
say() { echo "requeue.sh: $*" >&2; }
# Whether the run ended at RIPSTOP_DEADLINE, before the job's time was up. Another start would refuse a deadline in the past.
own_end=false
if [[ -z $signal && ${RIPSTOP_DEADLINE:-} =~ ^[0-9]+$ ]]; then
  if ((RIPSTOP_DEADLINE <= ${SLURM_JOB_END_TIME:-RIPSTOP_DEADLINE})); then own_end=true; fi
fi

# patiently COMMAND...: five tries, because a busy controller may not answer the first time.
patiently() {
  local try
  for try in 1 2 3 4 5; do
    if "$@"; then return; fi
    if [[ $try -lt 5 ]]; then sleep "${RIPSTOP_REQUEUE_PAUSE:-5}"; fi
  done
  return 1
}
# show_job: writes Slurm's description of this job, one line, to $shown.
show_job() { shown=$(scontrol -o show job "$job" 2>&1); }
# field NAME: prints the value of NAME in $shown.
field() { [[ " $shown " =~ [[:space:]]$1=([^[:space:]]*) ]] && echo "${BASH_REMATCH[1]}"; }

# Whether every node of the job still starts a process.
nodes_answer() {
  local nodes=${SLURM_JOB_NUM_NODES:-1}
  timeout --kill-after=5 60 srun --overlap --mpi=none --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --cpus-per-task=1 \
    --immediate=50 true >/dev/null 2>&1
}

shown=
if ! patiently show_job; then
  say "Slurm does not answer: $shown"
  shown=
fi
if [[ $(field BatchFlag) == 0 ]]; then exit "$code"; fi # salloc: a person is there
state=$(field JobState) || state=unknown
pre_empted=$(field PreemptTime) || pre_empted=None
# Whether an array of one task at a time has tasks behind this one.
behind=false
if [[ -n ${SLURM_ARRAY_TASK_ID:-} && $(field ArrayTaskThrottle) == 1 ]]; then
  if ((SLURM_ARRAY_TASK_ID < ${SLURM_ARRAY_TASK_MAX:-0})); then behind=true; fi
fi

# seconds TIME: prints the seconds of [days-]hours:minutes:seconds.
seconds() {
  [[ $1 =~ ^(([0-9]+)-)?([0-9]+):([0-9]+):([0-9]+)$ ]] || return 1
  echo $((((10#0${BASH_REMATCH[2]} * 24 + 10#${BASH_REMATCH[3]}) * 60 + 10#${BASH_REMATCH[4]}) * 60 + 10#${BASH_REMATCH[5]}))
}
time_is_up() {
  local run limit
  run=$(seconds "$(field RunTime)") && limit=$(seconds "$(field TimeLimit)") && ((run >= limit))
}

if (($(field Restarts || echo 0) > ${SLURM_RESTART_COUNT:-0})); then state=PENDING; fi
# While Slurm ends the job, it no longer shows the cause.
if [[ $state == COMPLETING ]]; then
  state=CANCELLED
  if [[ $pre_empted != None ]]; then
    state=PREEMPTED
  elif time_is_up; then
    state=TIMEOUT
  fi
fi
# Why the job should go on, or nothing.
reason=
case $state in
  CANCELLED*) ;;
  PENDING | REQUEUED | REQUEUE_HOLD | SPECIAL_EXIT)
    say "Slurm has put job $job back into the queue itself"
    exit "$code"
    ;;
  PREEMPTED) reason="it was pre-empted" ;;
  NODE_FAIL) reason="a node was lost" ;;
  TIMEOUT) reason="its time was up" ;;
  *)
    if [[ $pre_empted != None ]]; then
      reason="it was pre-empted"
    elif [[ $signal == USR1 ]] || { [[ -z $signal ]] && ! $own_end; }; then
      reason="its time was up"
    fi
    ;;
esac
if ((code == 76 || code > 128)); then
  if [[ $state != CANCELLED* && $signal != INT && $signal != HUP ]] && ! nodes_answer; then
    reason="a node does not answer"
  elif [[ $state != PREEMPTED && $state != NODE_FAIL && $pre_empted == None ]]; then
    reason=
  fi
elif ((code != 75)); then
  reason=
fi

if $behind; then
  if [[ -n $reason ]]; then
    say "job $job: $reason; the next task of the array goes on"
  elif [[ $state != CANCELLED* ]]; then
    if ((code == 0)); then say "done: the tasks behind this one are cancelled"; fi
    if ((code != 0)); then say "exit code $code: the tasks behind this one would end in the same way, and are cancelled"; fi
    scancel --state=PENDING "${SLURM_ARRAY_JOB_ID:-$job}" || true
  fi
  exit "$code"
fi
if [[ -z $reason ]]; then
  if [[ $state == CANCELLED* ]]; then
    say "job $job was cancelled: it is not requeued"
  elif ((code == 75)) && $own_end; then
    say "RIPSTOP_DEADLINE was up: job $job is not requeued; the same command goes on, with a later one"
  elif ((code == 75)); then
    say "SIG$signal, and Slurm calls job $job $state: somebody asked it to end, so it is not requeued"
  fi
  exit "$code"
fi
answer=
requeue() { answer=$(scontrol requeue "$job" 2>&1); }
say "job $job: $reason; it goes back into the queue"
if ! requeue && ! { [[ $answer != *disabled* && $answer != *denied* && $answer != *nvalid* ]] && patiently requeue; }; then
  say "scontrol requeue $job: ${answer:-no answer}"
  say "the checkpoint is there: submit the same job again; if this site refuses requeue, as --array=1-10%1 (docs/slurm.md)"
fi
exit "$code"
