#!/usr/bin/env bash
# shellcheck disable=SC2034
# Sourced by begin.sh, launch.sh, job.sh, requeue.sh: how these scripts end, and what all of them need.

# Closed standard streams become /dev/null, because files opened later would get their numbers.
[[ -e /dev/fd/0 ]] || exec </dev/null
[[ -e /dev/fd/1 ]] || exec >/dev/null
[[ -e /dev/fd/2 ]] || exec 2>/dev/null
trap '' PIPE XFSZ # no signal of a failed write ends a script

# Endings of launch.sh: state, exit code, message. Else: the exit code of the ranks, 128 + N for signal N.
launch_endings='
usage        64  give the number of ranks, then the program, not "%s"
no_launcher  78  no %s on PATH; Debian and Ubuntu: apt-get install openmpi-bin, clusters: module load openmpi
no_program   64  no program %s here
stopped_INT  130 stopped by Ctrl-C%s
stopped_TERM 143 stopped by SIGTERM%s
stopped_HUP  129 stopped by SIGHUP%s
stopped_USR1 138 stopped by SIGUSR1%s
again_INT    130 killed%s
hangs        76  mpirun did not end, though none of its ranks lives: killed
'
# Rows by which requeue.sh decides on a job whose ranks have ended. The first row that fits decides.
#   CODE     the exit code of the ranks. lost: 76, or above 128, as after a signal
#   SIGNAL   the first signal that the job's script got; none; own: none, but RIPSTOP_DEADLINE is the limit
#   STATE    the job's state in Slurm. queued: Slurm has requeued the job. silent: a node does not answer
#   JOB      requeue: the job goes on later, for the reason in TEXT. end: it does not; TEXT, if any, says why
job_endings='
CODE     SIGNAL   STATE     JOB     TEXT
*        *        queued    end     Slurm has put job JOB back into the queue itself
*        *        cancelled end     job JOB was cancelled: it is not requeued
75|lost  *        preempted requeue it was pre-empted
75|lost  *        node_fail requeue a node was lost
lost     INT|HUP  *         end
lost     *        silent    requeue a node does not answer
75       *        timeout   requeue its time was up
75       USR1     *         requeue its time was up
75       none     *         requeue its time was up
75       own      *         end     RIPSTOP_DEADLINE was up: job JOB is not requeued; the same command goes on, with a later one
75       *        *         end     SIGNAL, and Slurm calls job JOB STATE: somebody asked it to end, so it is not requeued
*        *        *         end
'

# usage: prints the first comment of the script.
usage() { sed -n '2,/^set -/{/^set -/d;/^# shellcheck/d;s/^# \?//p}' "$0"; }
# say TEXT...: prints TEXT. At a terminal, first clears the line, because a rank may be rewriting it.
clear_line=
if [[ -t 2 && ${TERM:-dumb} != dumb ]]; then clear_line=$'\r\e[K'; fi
say() { printf '%s%s: %s\n' "$clear_line" "${0##*/}" "$*" >&2 2>/dev/null || true; }

# Ranks must get the whole environment of the job file, but sbatch sets SLURM_EXPORT_ENV to its --export, which srun would obey.
if [[ -n ${SLURM_EXPORT_ENV:-}${SRUN_EXPORT_ENV:-} ]]; then export {SLURM,SRUN}_EXPORT_ENV=ALL; fi
# Since Slurm 22.05 srun does not inherit the job's --cpus-per-task.
if [[ -n ${SLURM_CPUS_PER_TASK:-} ]]; then export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK; fi
# The name of the job for Slurm's programs. A task of an array is ARRAY_TASK, because its job id may stand for the whole array.
job=${SLURM_JOB_ID:-}
if [[ -n ${SLURM_ARRAY_JOB_ID:-} && -n ${SLURM_ARRAY_TASK_ID:-} ]]; then job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID; fi
