#!/usr/bin/env bash
# Each answer of Slurm, and the end of the job that slurm/requeue.sh chooses. Stand-ins for Slurm's programs give the answers and note
# what they are asked; cluster_test.sh meets the real ones.      requeue_test.sh REQUEUE
set -euo pipefail
requeue=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/scontrol" <<'TOOL'
#!/usr/bin/env bash
echo "scontrol $*" >>"$NOTES"
if [[ $1 == requeue ]]; then
  [[ -z ${REFUSE:-} ]] || { echo "$REFUSE" >&2 && exit 1; }
elif [[ -n ${SILENT:-} ]]; then
  echo "slurm_load_jobs error: Unable to contact slurm controller" >&2
  exit 1
else
  echo "JobId=7 JobState=RUNNING BatchFlag=1 Restarts=0 RunTime=23:59:00 TimeLimit=1-00:00:00 $SHOWN" |
    awk '{ for (i = 1; i <= NF; ++i) { split($i, a, "="); v[a[1]] = $i } for (k in v) printf "%s ", v[k] }' # the last one counts
fi
TOOL
printf '#!/usr/bin/env bash\necho "scancel $*" >>"$NOTES"\n' >"$work/scancel"
printf '#!/usr/bin/env bash\nexit ${UNANSWERED:-0}\n' >"$work/srun"
chmod +x "$work"/{scontrol,scancel,srun}
export NOTES=$work/notes SHOWN='' RIPSTOP_REQUEUE_PAUSE=0 SLURM_JOB_ID=7 PATH=$work:$PATH
unset SLURM_RESTART_COUNT SLURM_JOB_END_TIME RIPSTOP_DEADLINE "${!SLURM_ARRAY@}" REFUSE UNANSWERED SILENT

fail() {
  echo "FAILED: $*"
  cat "$work/said" "$NOTES"
  exit 1
}
# expect requeued|left TEXT CODE [SIGNAL]: whether the job, $name, goes back into the queue, what is said, and that CODE is passed on
name=7
expect() {
  local what=$1 text=$2 code=0
  shift 2
  : >"$NOTES"
  "$requeue" "$@" >"$work/said" 2>&1 || code=$?
  [[ $code -eq $1 ]] || fail "requeue.sh $*: exit code $code"
  if [[ $what == requeued ]]; then
    [[ $(grep -cx "scontrol requeue $name" "$NOTES") -eq 1 ]] || fail "$* ($SHOWN): not requeued"
  elif grep -q 'scontrol requeue' "$NOTES"; then
    fail "$* ($SHOWN): requeued"
  fi
  [[ -z $text ]] || grep -q -- "$text" "$work/said" || fail "$* ($SHOWN): nobody says '$text'"
}
slurm() { SHOWN=$1; }

expect requeued 'its time was up' 75 USR1
expect requeued 'its time was up' 75 # by the run's own clock
for code in 0 64 65 70 74 77 78; do expect left '' "$code" USR1; done
expect left 'somebody asked it to end' 75 TERM
expect left 'somebody asked it to end' 75 HUP
expect left 'somebody asked it to end' 75 INT
# An end that the job was given by RIPSTOP_DEADLINE: another start would refuse it. One after the job's own does not count.
export RIPSTOP_DEADLINE=1800000000
expect left 'RIPSTOP_DEADLINE was up: job 7 is not requeued' 75
expect requeued 'its time was up' 75 USR1
SLURM_JOB_END_TIME=1800000001 expect left 'RIPSTOP_DEADLINE was up' 75
SLURM_JOB_END_TIME=1799999999 expect requeued 'its time was up' 75
unset RIPSTOP_DEADLINE

slurm PreemptTime=2026-11-23T04:00:00
expect requeued 'it was pre-empted' 75 TERM
expect requeued 'it was pre-empted' 75
expect requeued 'it was pre-empted' 143 TERM # killed before it could save
slurm "PreemptTime=2026-11-23T04:00:00 JobState=COMPLETING"
expect requeued 'it was pre-empted' 75 TERM
slurm JobState=PREEMPTED
expect requeued 'it was pre-empted' 75 TERM
slurm JobState=NODE_FAIL
expect requeued 'a node was lost' 75 TERM
slurm "JobState=COMPLETING RunTime=1-00:00:03"
expect requeued 'its time was up' 75 TERM
# Cancelled: Slurm shows no more than that the job is about to be over.
slurm JobState=COMPLETING
for signal in TERM USR1 ''; do expect left 'was cancelled: it is not requeued' 75 $signal; done
expect left '' 76 TERM
slurm JobState=CANCELLED
expect left 'was cancelled: it is not requeued' 75 USR1
# Slurm does it by itself.
for shown in JobState=PENDING "JobState=COMPLETING Restarts=1" Restarts=1; do
  slurm "$shown"
  for code in 75 76 137; do expect left 'back into the queue itself' "$code" TERM; done
done
slurm Restarts=1
SLURM_RESTART_COUNT=1 expect requeued 'its time was up' 75 USR1

# Lost ranks: only if a node is lost.
slurm ''
expect left '' 76
expect left '' 137
UNANSWERED=1 expect requeued 'a node does not answer' 76
UNANSWERED=1 expect requeued 'a node does not answer' 137
UNANSWERED=1 expect left '' 76 INT

# Requeue is refused, Slurm does not answer, nobody can ask for a requeue.
REFUSE='Requested operation is presently disabled for job 7' expect requeued '--array=1-10%1' 75 USR1
: >"$NOTES"
REFUSE='Unable to contact slurm controller' "$requeue" 75 USR1 >"$work/said" 2>&1 || true
[[ $(grep -c 'scontrol requeue' "$NOTES") -eq 6 ]] || fail "a controller that is busy is not asked again"
SILENT=1 expect requeued 'Slurm does not answer' 75 USR1
slurm BatchFlag=0
expect left '' 75 USR1
slurm ''
SLURM_JOB_ID='' expect left '' 75 USR1

# One task after another.
export SLURM_ARRAY_JOB_ID=5 SLURM_ARRAY_TASK_ID=2 SLURM_ARRAY_TASK_MAX=4
slurm ArrayTaskThrottle=1
expect left 'the next task of the array goes on' 75 USR1
if grep -q scancel "$NOTES"; then fail "the tasks that go on are cancelled"; fi
expect left 'the tasks behind this one are cancelled' 0
grep -qx 'scancel --state=PENDING 5' "$NOTES" || fail "the tasks behind a run that is done wait on"
expect left 'would end in the same way' 64
grep -qx 'scancel --state=PENDING 5' "$NOTES" || fail "the tasks behind a wrong config wait on"
slurm "ArrayTaskThrottle=1 JobState=COMPLETING"
expect left '' 75 TERM
SLURM_ARRAY_TASK_ID=4 name=5_4
slurm ArrayTaskThrottle=1
expect requeued 'its time was up' 75 USR1 # the last one has none behind it
# Tasks side by side are runs of their own. The last task to start has the number of the whole array as its own.
SLURM_ARRAY_TASK_ID=2 name=5_2 SLURM_JOB_ID=5
for shown in '' ArrayTaskThrottle=2; do
  slurm "$shown"
  expect requeued 'job 5_2: its time was up' 75 USR1
  expect left '' 0
  if grep -qv '^scontrol -o show job 5_2$' "$NOTES"; then fail "Slurm is asked about more than one task"; fi
done
unset "${!SLURM_ARRAY@}"
SLURM_JOB_ID=7 name=7

# The limit was raised, or somebody sent the signal.
slurm "RunTime=00:02:00 TimeLimit=00:15:00"
for signal in USR1 ''; do
  expect requeued 'job 7: it stopped 780 s before its time limit; it goes back' 75 $signal
done
slurm "RunTime=00:02:00 TimeLimit=UNLIMITED"
expect requeued 'job 7: it was asked to stop, and has no time limit; it goes back' 75 USR1
now=$(date +%s)
RIPSTOP_DEADLINE=$((now + 60)) SLURM_JOB_END_TIME=$((now + 30)) expect left 'RIPSTOP_DEADLINE was up' 75
RIPSTOP_DEADLINE=$((now + 7200)) SLURM_JOB_END_TIME=$((now + 30)) expect requeued 'it goes back' 75
slurm "JobState=COMPLETING RunTime=00:02:00 TimeLimit=UNLIMITED"
expect left 'was cancelled' 75 TERM

# Streams that are closed, full or without a reader change neither the code nor what becomes of the job.
slurm ''
exec 8> >(true)
wait $!
for streams in '<&- >&- 2>&-' '>/dev/full 2>&1' '>&8 2>&8'; do
  : >"$NOTES"
  code=0
  (eval "exec $streams" && exec "$requeue" 75 USR1) || code=$?
  [[ $code -eq 75 ]] && grep -qx 'scontrol requeue 7' "$NOTES" || fail "streams $streams: exit code $code"
done

# Each row of the table decides for a job of its own: none is hidden by a row above.
table=$(bash -c 'source "$1"; echo "$job_endings"' _ "$(dirname "$requeue")/endings.sh")
rows=0
while read -r codes signals states verdict text; do
  code=${codes%%|*} signal=${signals%%|*} state=${states%%|*} unanswered=0
  case $code in '*') code=65 ;; lost) code=137 ;; esac
  case $signal in '*') signal=TERM ;; none | own) signal='' ;; esac
  case $state in '*') state=RUNNING ;; queued) state=PENDING ;; silent) state=RUNNING unanswered=1 ;; esac
  slurm "JobState=${state^^}"
  text=${text//JOB/7} text=${text//SIGNAL/SIG$signal} text=${text//STATE/$state}
  what=left
  if [[ $verdict == requeue ]]; then what=requeued; fi
  if [[ $signals == own ]]; then export RIPSTOP_DEADLINE=1800000000; fi
  UNANSWERED=$unanswered expect $what "$text" "$code" $signal
  unset RIPSTOP_DEADLINE
  rows=$((rows + 1))
done <<<"${table#*TEXT?}"
((rows >= 10)) || fail "the table of endings has $rows rows"
echo "requeue.sh does what each answer asks for, and what each of $rows rows says"
