#!/usr/bin/env bash
# Starts COMMAND on N ranks: with srun inside a Slurm allocation, else with mpirun on this node.
#   slurm/launch.sh N COMMAND [ARGUMENT...]
# Ends with the exit code of the ranks. Ctrl-Z does nothing. Under mpirun, Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 reach the
# ranks as SIGUSR1, which makes `ripstop train` save, however long that takes, and end with 75, and ends any other
# command. A second Ctrl-C, more than a second later, kills the ranks. srun has its own rules, but passes SIGUSR1 on.
# RIPSTOP_LAUNCHER=mpirun|srun overrides the choice. RIPSTOP_LAUNCHER_OPTIONS adds options, as in "--mpi=pmix".
# RIPSTOP_LAUNCHER_VERBOSE=1 shows Open MPI's own message for a rank that ends with an exit code other than 0.
# In a job of several nodes, mpirun asks Slurm for them. For several machines without Slurm, call mpirun yourself with your
# host file.
set -euo pipefail
usage() { sed -n '2,11s/^# \?//p' "$0"; }
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

# At a terminal, messages first clear the rest of a line that a rank rewrites in place.
clear_line=""
if [[ -t 2 && ${TERM:-dumb} != dumb ]]; then clear_line=$'\r\e[K'; fi
say() { printf '%slaunch.sh: %s\n' "$clear_line" "$*" >&2 2>/dev/null || true; }

# Verbs without MPI: N processes would do the same work N times, and write one data set N times.
if [[ ${1##*/} == ripstop* && ${2:-} =~ ^(prepare|plan|checkpoint|rouge|status)$ && "${2:-} ${3:-}" != "checkpoint export" ]] &&
  command -v -- "$1" >/dev/null; then
  say "ripstop $2 is one process: started once, without a launcher"
  exec "$@"
fi

launcher=${RIPSTOP_LAUNCHER:-}
if [[ -z $launcher ]]; then
  launcher=mpirun
  if [[ -n ${SLURM_JOB_ID:-} ]] && command -v srun >/dev/null; then launcher=srun; fi
fi
if ! command -v "$launcher" >/dev/null; then
  say "no $launcher on PATH; Debian and Ubuntu: apt-get install openmpi-bin, clusters: module load openmpi"
  exit 78
fi

# Ctrl-Z is ignored: stopped ranks would miss the deadlines of their messages. Ignored and not trapped, so that srun inherits it.
trap '' TSTP
if [[ $launcher == srun ]]; then
  # Since Slurm 22.05 srun does not inherit the job's --cpus-per-task.
  if [[ -n ${SLURM_CPUS_PER_TASK:-} ]]; then export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK; fi
  exec srun --ntasks="$ranks" --kill-on-bad-exit=1 ${options[@]+"${options[@]}"} "$@"
fi

if ! command -v -- "$1" >/dev/null; then
  say "no program '$1' here"
  exit 64
fi
# Tells the ranks which of their streams end at a real terminal, and its width, because mpirun gives them pipes and a
# pseudo-terminal.
RIPSTOP_TERMINAL=""
for stream in 0 1 2; do
  if [[ -t $stream ]]; then
    RIPSTOP_TERMINAL+=$stream
    COLUMNS=$(stty size <&$stream 2>/dev/null | cut -d ' ' -f 2) || true
  fi
done
export RIPSTOP_TERMINAL
if [[ -n $RIPSTOP_TERMINAL ]]; then export COLUMNS; fi

cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) # nproc would print these variables
nodes=1
if [[ -n ${SLURM_JOB_ID:-} && ${SLURM_JOB_NUM_NODES:-1} -gt 1 ]]; then nodes=$SLURM_JOB_NUM_NODES; fi
ranks_here=$(((ranks + nodes - 1) / nodes))
if [[ -z ${OMP_NUM_THREADS:-} ]]; then
  export OMP_NUM_THREADS=$((cores > ranks_here ? cores / ranks_here : 1))
fi
# Threads spin while they wait for each other, which is slow if other threads need the core: 40 steps of 4 ranks x 2 threads
# on 2 busy cores took 130 to 190 s, and 6 to 8 s with passive waiting.
if ((ranks_here * OMP_NUM_THREADS > cores)); then export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}; fi
# Containers often run as root.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
version=$(mpirun --version 2>/dev/null || true)
# Ranks of one machine use shared memory, without a probe of networks, which may go wrong. Ranks of several nodes use the
# networks that the site's Open MPI prefers, and the slots that Slurm gives.
# A waiting rank yields its core, because there may be more ranks than cores.
# Without `raw`, Open MPI 5 holds back a line without an end, such as a line that is rewritten in place.
open_mpi=()
if [[ " ${options[*]-}" != *" --bind-to"* ]]; then open_mpi+=(--bind-to none); fi
shared_memory=sm
if [[ $version == *"Open MPI"*" 4."* ]]; then
  shared_memory=vader
elif [[ $RIPSTOP_TERMINAL == *[12]* ]]; then
  open_mpi+=(--output :raw)
fi
if ((nodes > 1)) && [[ " ${options[*]-}" != *" --map-by"* ]]; then
  open_mpi+=(--oversubscribe --map-by "ppr:$ranks_here:node")
elif ((nodes == 1)); then
  open_mpi+=(--oversubscribe --mca pml ob1 --mca mpi_yield_when_idle 1 --mca btl "self,$shared_memory")
  # Launches of a user that begin or end together would race for one session directory of Open MPI.
  base=${PRTE_MCA_prte_tmpdir_base:-${OMPI_MCA_orte_tmpdir_base:-${TMPDIR:-/tmp}}}
  if sessions=$(mktemp -d "$base/ripstop-XXXXXX" 2>/dev/null); then
    trap 'rm -rf "$sessions"' EXIT
    export OMPI_MCA_orte_tmpdir_base=$sessions PRTE_MCA_prte_tmpdir_base=$sessions
  fi
fi
# MPICH and its relatives need no such options.
if [[ $version == *"Open MPI"* ]]; then
  options=(${open_mpi[@]+"${open_mpi[@]}"} ${options[@]+"${options[@]}"})
fi

# mpirun kills its ranks a second after Ctrl-C or SIGTERM. So it runs in a session of its own, which the terminal's signals do
# not reach, and this script passes signals on. If this script is killed, mpirun must end too.
detached=(setsid)
if setpriv --help 2>&1 | grep -q -- --pdeathsig; then detached+=(setpriv --pdeathsig TERM); fi
# mpirun cannot read the terminal of another session, so `cat` reads it. In the background `cat` reads an end of file.
typed=""
if [[ -t 0 ]]; then
  exec < <(trap '' INT TSTP TTIN && exec cat 2>/dev/null)
  typed=$!
elif ! { true <&0; } 2>/dev/null; then
  exec </dev/null
fi

# say_killed WHO SIGNAL
say_killed() {
  local hint=
  if (($2 == 9)); then hint=': often lack of memory, and dmesg then names it'; fi
  say "$1 was killed by signal $2 (SIG$(kill -l "$2"))$hint"
}
# Copies standard error of mpirun and the ranks, without the page between two rules that Open MPI adds if a rank ends with a
# code other than 0: the rank has said why. Names a rank that was killed, and then ends with $named_a_rank.
named_a_rank=3
without_pages() {
  trap '' INT TERM HUP USR1 TSTP PIPE
  set +e # on a full disk or a closed terminal this must go on: mpirun would write into a broken pipe
  local byte code rest text patience page="" line_begins=true named=0 LC_ALL=C
  local rule=$'^-{70,}\n$' killed='rank ([0-9]+) .*signal[[:space:]]([0-9]+) \('
  while true; do
    # Waits only briefly for the rest of a line, because a rank may rewrite the line in place.
    code=0
    IFS= read -r -N 1 ${page:+-t 5} byte || code=$?
    if ((code > 128)); then # not a page, which comes at once: a rank printed this rule
      printf '%s' "$page"
      page=
      continue
    elif ((code > 0)); then
      break
    fi
    patience=0.1
    if [[ -n $page ]]; then patience=5; fi # a page has whole lines
    if [[ $byte == $'\n' ]]; then
      text=$byte
    elif IFS= read -r -t "$patience" rest; then
      text=$byte$rest$'\n'
    else
      text=$byte$rest
    fi
    if [[ -n $page && $text =~ $rule ]]; then
      if [[ $page == *"exited with non-zero status"* || $page == *"non-zero exit code"* ]]; then
        :
      elif [[ $page == *"exited on"*signal* && $page =~ $killed ]]; then
        if [[ ${BASH_REMATCH[2]} != "$(kill -l USR1)" ]]; then
          say_killed "rank ${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
          named=1
        fi
      else
        printf '%s%s' "$page" "$text"
      fi
      page=
    elif [[ -n $page ]] || { $line_begins && [[ $text =~ $rule ]]; }; then
      page+=$text
    elif ! $line_begins || [[ $text != *": Forwarding signal "*" to job"$'\n' ]]; then
      printf '%s' "$text"
    fi
    line_begins=false
    if [[ $text == *$'\n' ]]; then line_begins=true; fi
  done
  printf '%s' "$page"
  if ((named)); then exit "$named_a_rank"; fi
  exit 0
}

# Requests are kept from here on, and passed on once mpirun has started.
asked_by="" interrupts=0 first_interrupt_us=0 signalled=false mpirun=""
# Signals this close together are one request. Bash 4 knows only whole seconds, and two signals a tenth of a second apart may
# lie in different seconds.
one_request_us=1000000
if [[ -z ${EPOCHREALTIME:-} ]]; then one_request_us=1000001; fi
# The time in microseconds, to now_us.
read_clock() {
  now_us=${EPOCHREALTIME:-$SECONDS.000000}
  now_us=${now_us//[.,]/}
}
# ask SIGNAL: asks the ranks to stop. Waits until mpirun has started them, because an earlier signal would end mpirun or get lost.
# In large jobs other threads of mpirun start the ranks, so the children of all threads count.
ask() {
  signalled=true
  asked_by=${asked_by:-$1}
  if [[ -z $mpirun ]]; then return 0; fi
  # The traps let children ignore Ctrl-Z: this script would wait forever for a stopped child.
  local tries
  for ((tries = 0; tries < 100; tries++)); do
    if [[ ! -r /proc/$mpirun/task/$mpirun/children ]]; then break; fi
    if [[ -n $(trap '' TSTP && exec cat /proc/$mpirun/task/*/children 2>/dev/null) ]]; then break; fi
    (trap '' TSTP && exec sleep 0.1) || true
  done
  kill -USR1 "$mpirun" 2>/dev/null || true
}
interrupt() {
  signalled=true
  read_clock
  # `timeout` and others signal a process and then its group, which is one request.
  if ((interrupts > 0 && now_us - first_interrupt_us < one_request_us)); then return 0; fi
  interrupts=$((interrupts + 1))
  if ((interrupts == 1)); then
    first_interrupt_us=$now_us
    if $is_train; then
      say "stopping, train saves first; Ctrl-C again ends it without saving"
    else
      say "stopping; Ctrl-C again kills the ranks"
    fi
    ask INT
  elif [[ -n $mpirun ]]; then
    local signal=TERM
    if ((interrupts > 2)); then signal=KILL; fi
    kill -$signal "$mpirun" 2>/dev/null || true
  fi
}
is_train=false again="" word_before=--
for word in "$@"; do
  if [[ $word == train && $word_before != -* ]]; then is_train=true; fi
  if [[ $word == evaluate && $word_before == *ripstop ]]; then again="; the same command goes on"; fi
  word_before=$word
done
trap interrupt INT
trap 'ask TERM' TERM
trap 'ask HUP' HUP
trap 'ask USR1' USR1
trap 'signalled=true; say "Ctrl-Z does nothing here: the ranks go on; Ctrl-C stops them"' TSTP

filter=""
exec {errors}>&2
if [[ -z ${RIPSTOP_LAUNCHER_VERBOSE:-} ]]; then
  exec {errors}> >(without_pages >&2)
  filter=$!
fi
"${detached[@]}" mpirun -n "$ranks" ${options[@]+"${options[@]}"} "$@" <&0 2>&"$errors" {errors}>&- &
mpirun=$!
exec {errors}>&-
if [[ -n $asked_by ]]; then ask "$asked_by"; fi
while # a signal ends `wait` but not the run
  signalled=false status=0
  wait "$mpirun" || status=$?
  $signalled
do :; done
trap '' INT TERM HUP USR1 TSTP
if [[ -n $typed ]]; then kill "$typed" 2>/dev/null || true; fi
named=false
if [[ -n $filter ]]; then
  told=0
  wait "$filter" || told=$?
  if ((told == named_a_rank)); then named=true; fi
fi

usr1=$(kill -l USR1)
if ((interrupts > 1 && status != 0 && status != 75)); then # with 0 and 75 the ranks were done before they were killed
  if $is_train; then say "killed; the same command goes on from the last checkpoint"; else say "killed"; fi
  exit 130
elif [[ -n $asked_by ]] && ((status == 128 + usr1 || status == usr1)); then # not train: the request ended it
  if [[ $asked_by == INT ]]; then say "stopped by Ctrl-C$again"; else say "stopped by SIG$asked_by$again"; fi
  exit $((128 + $(kill -l "$asked_by")))
elif ((status > 128 && status <= 128 + 64)); then
  if ! $named; then say_killed "a rank" $((status - 128)); fi
elif ((status != 0 && (status < 64 || status > 78))); then # not a code of ripstop, so perhaps there was no message
  say "$1 ended with exit code $status"
fi
exit "$status"
