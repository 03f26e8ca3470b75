#!/usr/bin/env bash
# shellcheck disable=SC2154
# Decides whether a Slurm job is requeued when its ranks have ended. Ends with CODE.
#   slurm/requeue.sh CODE [SIGNAL]      CODE: exit code of the ranks. SIGNAL: USR1, TERM, HUP or INT, if the job's script got one
# The job goes back into the queue, where the same command goes on from the checkpoint, if
#   - CODE is 75 and the time was up: after SIGUSR1, without a signal (but not at RIPSTOP_DEADLINE), or if Slurm says so;
#   - CODE is 75, 76 or the code of a signal, and Slurm says that the job was pre-empted or lost a node;
#   - CODE is 76 or the code of a signal, not after Ctrl-C or SIGHUP, and a node of the job does not answer.
# A job that was cancelled, that Slurm requeues itself, or that is under salloc is not requeued. An array of
# one task at a time (--array=1-10%1) is for sites that refuse requeue: its next task goes on. Later tasks
# that would have nothing to do or fail alike are cancelled. In other arrays only the task itself is requeued.
set -euo pipefail
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/endings.sh"
if [[ ${1:-} == --help || ${1:-} == -h ]]; then usage && exit; fi
code=${1:-} signal=${2:-none}
if [[ ! $code =~ ^[0-9]+$ ]]; then usage >&2 || true && exit 64; fi
if [[ -z $job ]] || ! command -v scontrol >/dev/null; then exit "$code"; fi

# patiently COMMAND...: tries up to five times, because a busy controller may not answer at first.
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
# field NAME DEFAULT: prints the value of NAME in $shown.
field() { if [[ " $shown " =~ [[:space:]]$1=([^[:space:]]*) ]]; then echo "${BASH_REMATCH[1]}"; else echo "$2"; fi; }
# seconds NAME: prints the field NAME, [days-]hours:minutes:seconds, in seconds.
seconds() {
  [[ $(field "$1" '') =~ ^(([0-9]+)-)?([0-9]+):([0-9]+):([0-9]+)$ ]] || return 1
  echo $((((10#0${BASH_REMATCH[2]} * 24 + 10#${BASH_REMATCH[3]}) * 60 + 10#${BASH_REMATCH[4]}) * 60 + 10#${BASH_REMATCH[5]}))
}
# nodes_answer: whether every node of the job still starts a process.
nodes_answer() {
  local nodes=${SLURM_JOB_NUM_NODES:-1}
  timeout --kill-after=5 60 srun --overlap --mpi=none --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --cpus-per-task=1 \
    --immediate=50 true </dev/null >/dev/null 2>&1
}

patiently show_job || { say "Slurm does not answer: $shown" && shown=; }
if [[ $(field BatchFlag 1) == 0 ]]; then exit "$code"; fi # under salloc, a person decides
state=$(field JobState unknown)
pre_empted=$(field PreemptTime None)
left=1 # seconds until the time limit; 1 if unknown
if run=$(seconds RunTime) && limit=$(seconds TimeLimit); then left=$((limit - run)); fi
if [[ $(field TimeLimit '') == UNLIMITED ]]; then left=$((1 << 40)); fi
# SLURM_JOB_END_TIME dates from the job's start; the limit may have been raised since.
if [[ $signal == none && ${RIPSTOP_DEADLINE:-} =~ ^[0-9]+$ ]] &&
  ((RIPSTOP_DEADLINE <= ${SLURM_JOB_END_TIME:-RIPSTOP_DEADLINE} || RIPSTOP_DEADLINE <= $(date +%s) + (left < 600 ? left : 600))); then signal=own; fi
named=$state
if (($(field Restarts 0) > ${SLURM_RESTART_COUNT:-0})); then named=queued; fi
case $named in
  PENDING | REQUEUED | REQUEUE_HOLD | SPECIAL_EXIT) named=queued ;;
  COMPLETING) # while Slurm ends the job, it no longer shows the cause
    named=cancelled
    if [[ $pre_empted != None ]]; then named=preempted; elif ((left <= 0)); then named=timeout; fi
    ;;
  CANCELLED*) named=cancelled ;;
  *) if [[ $pre_empted != None && $named != queued ]]; then named=preempted; fi ;;
esac

# Finds the first row of job_endings that fits. The nodes are asked only if a row needs their answer.
class=$code verdict=end text=
if ((code == 76 || code > 128)); then class=lost; fi
fits() { [[ $2 == '*' || "|$2|" == *"|$1|"* ]]; }
while read -r codes signals states row_verdict row_text; do
  if ! fits "$class" "$codes" || ! fits "$signal" "$signals"; then continue; fi
  if [[ $states == silent ]]; then
    if nodes_answer; then continue; fi
  elif ! fits "${named,,}" "$states"; then
    continue
  fi
  verdict=$row_verdict text=$row_text
  break
done <<<"${job_endings#*TEXT}"
text=${text//JOB/"$job"} text=${text//SIGNAL/"SIG$signal"} text=${text//STATE/"$state"}
# If the limit was raised or somebody sent the signal, the job's time was not up.
if [[ $text == "its time was up" ]] && ((left > 1 << 32)); then text="it was asked to stop, and has no time limit"; fi
if [[ $text == "its time was up" ]] && ((left > 600)); then text="it stopped $left s before its time limit"; fi

if [[ -n ${SLURM_ARRAY_TASK_ID:-} && $(field ArrayTaskThrottle 0) == 1 && ${named,,} != queued ]] &&
  ((SLURM_ARRAY_TASK_ID < ${SLURM_ARRAY_TASK_MAX:-0})); then
  if [[ $verdict == requeue ]]; then
    say "job $job: $text; the next task of the array goes on"
  elif [[ $named != cancelled ]]; then
    if ((code == 0)); then say "done: the tasks behind this one are cancelled"; fi
    if ((code != 0)); then say "exit code $code: the tasks behind this one would end in the same way, and are cancelled"; fi
    scancel --state=PENDING "$SLURM_ARRAY_JOB_ID" || true
  fi
  exit "$code"
fi
if [[ $verdict == end ]]; then
  if [[ -n $text ]]; then say "$text"; fi
  exit "$code"
fi
answer=
requeue() { answer=$(scontrol requeue "$job" 2>&1); }
say "job $job: $text; it goes back into the queue"
if ! requeue && ! { [[ $answer != *disabled* && $answer != *denied* && $answer != *nvalid* ]] && patiently requeue; }; then
  say "scontrol requeue $job: ${answer:-no answer}"
  say "the checkpoint is there: submit the same job again; if this site refuses requeue, as --array=1-10%1 (docs/slurm.md)"
fi
exit "$code"
