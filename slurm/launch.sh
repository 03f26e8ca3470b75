#!/usr/bin/env bash
# shellcheck disable=SC2059,SC2064,SC2086,SC2154,SC2155
# Starts COMMAND on N ranks: with srun inside a Slurm allocation, else with mpirun on this node.
#   slurm/launch.sh N COMMAND [ARGUMENT...]
# Ends with the exit code of the ranks. Ctrl-Z does nothing. Under mpirun, Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 reach the ranks as
# SIGUSR1: `ripstop train` saves, however long that takes, `evaluate` keeps what it has, and both end with 75. Other commands end
# at once. A second Ctrl-C, more than a second later, kills the ranks. srun has its own rules, but passes SIGUSR1 on.
# RIPSTOP_LAUNCHER=mpirun|srun overrides the choice. RIPSTOP_LAUNCHER_OPTIONS adds options, as in "--mpi=pmix".
# RIPSTOP_LAUNCHER_VERBOSE=1 shows Open MPI's own message for a rank that ends with an exit code other than 0.
# In a job of several nodes, mpirun asks Slurm for them. For several machines without Slurm, call mpirun yourself with your
# host file.
set -euo pipefail
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/endings.sh"
if [[ ${1:-} == --help || ${1:-} == -h ]]; then usage && exit; fi

# end STATE [WORD]: prints the text of STATE in launch_endings, with WORD in it, and ends with STATE's exit code.
end() {
  local code text
  read -r _ code text < <(grep "^$1 " <<<"$launch_endings")
  if [[ -n $text ]]; then say "${text/\%s/${2-}}"; fi
  exit "$code"
}
if [[ $# -lt 2 || ! $1 =~ ^[1-9][0-9]*$ ]]; then usage >&2 || true && end usage "$*"; fi
ranks=$1
shift
read -ra options <<<"${RIPSTOP_LAUNCHER_OPTIONS:-}"

# Verbs without MPI: N processes would do the same work N times, and write one data set N times.
alone='^(config-table|prepare|plan|checkpoint|report|rouge|status)$'
if [[ ${1##*/} == ripstop* && ${2:-} =~ $alone && "$2 ${3:-}" != "checkpoint export" ]] && command -v -- "$1" >/dev/null; then
  say "ripstop $2 is one process: started once, without a launcher"
  exec "$@"
fi

launcher=${RIPSTOP_LAUNCHER:-mpirun}
if [[ -z ${RIPSTOP_LAUNCHER:-} && -n ${SLURM_JOB_ID:-} ]] && command -v srun >/dev/null; then launcher=srun; fi
if ! command -v "$launcher" >/dev/null; then end no_launcher "$launcher"; fi

# Ctrl-Z is ignored: stopped ranks would miss the deadlines of their messages. srun inherits an ignored signal, not a trapped one.
trap '' TSTP
# Inside a step, such as a shell of `srun --pty`, a new step (mpirun starts one, too) would wait forever for
# the shell's processors, so let steps overlap. SLURM_NTASKS_PER_NODE counts the shell's tasks, not ranks.
if [[ -n ${SLURM_STEP_NUM_TASKS:-} ]]; then export SLURM_OVERLAP=1 SLURM_OVERCOMMIT=1 && unset SLURM_NTASKS_PER_NODE; fi
if [[ $launcher == srun ]]; then
  exec srun --ntasks="$ranks" --kill-on-bad-exit=1 ${options[@]+"${options[@]}"} "$@"
fi

if ! command -v -- "$1" >/dev/null; then end no_program "'$1'"; fi
# Tells the ranks which of their streams end at a real terminal, and its width, because mpirun gives them pipes and a
# pseudo-terminal.
export RIPSTOP_TERMINAL=""
for stream in 0 1 2; do
  if [[ ! -t $stream ]]; then continue; fi
  RIPSTOP_TERMINAL+=$stream
  if COLUMNS=$(stty size <&$stream 2>/dev/null | cut -d ' ' -f 2); then export COLUMNS; fi
done

cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) # nproc would follow these variables
nodes=$((${SLURM_JOB_ID:+${SLURM_JOB_NUM_NODES:-}} + 0 > 1 ? SLURM_JOB_NUM_NODES : 1))
ranks_here=$(((ranks + nodes - 1) / nodes))
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores > ranks_here ? cores / ranks_here : 1))}
# Threads spin while they wait for each other, which is slow if other threads need the core: 40 steps of 4 ranks x 2 threads
# on 2 busy cores took 130 to 190 s, and 6 to 8 s with passive waiting.
if ((ranks_here * OMP_NUM_THREADS > cores)); then export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}; fi
# Containers often run as root, which Open MPI refuses by default.
export {OMPI,PRTE}_ALLOW_RUN_AS_ROOT=1 {OMPI,PRTE}_ALLOW_RUN_AS_ROOT_CONFIRM=1
version=$(mpirun --version 2>/dev/null || true)
# A folder for notes of this launch and for Open MPI: launches that begin or end together would compete for one session directory.
base=${PRTE_MCA_prte_tmpdir_base:-${OMPI_MCA_orte_tmpdir_base:-${TMPDIR:-/tmp}}}
if notes=$(mktemp -d "$base/ripstop-XXXXXX" 2>/dev/null); then trap 'rm -rf "$notes"' EXIT; fi
# Ranks of one machine use shared memory, and probe no networks: a probe may go wrong. They yield the core when they wait, because
# there may be more ranks than cores. Ranks of several nodes are spread evenly, and use the networks that the site's MPI prefers.
# Without `raw`, Open MPI 5 holds back a line that has no end yet, such as a line that is rewritten in place.
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
  if [[ -n $notes ]]; then export OMPI_MCA_orte_tmpdir_base=$notes PRTE_MCA_prte_tmpdir_base=$notes; fi
fi
if [[ $version == *"Open MPI"* ]]; then options=(${open_mpi[@]+"${open_mpi[@]}"} ${options[@]+"${options[@]}"}); fi

# mpirun kills its ranks a second after Ctrl-C or SIGTERM. So mpirun runs in a session of its own, which the terminal's signals do
# not reach, and this script passes signals on. If this script is killed, mpirun must end too.
detached=(setsid)
if setpriv --help 2>&1 | grep -q -- --pdeathsig; then detached+=(setpriv --pdeathsig TERM); fi
# mpirun cannot read the terminal of another session, so `cat` reads it. In the background `cat` fails, and the input just ends.
typed=""
if [[ -t 0 ]]; then exec < <(trap '' INT TSTP TTIN && exec cat 2>/dev/null) && typed=$!; fi

# note NAME TEXT: keeps TEXT in a file, because background commands cannot set variables of this script.
note() { if [[ -n $notes ]]; then echo "$2" >"$notes/$1"; fi; } 2>/dev/null
noted() { if [[ -n $notes && -e $notes/$1 ]]; then cat "$notes/$1"; fi; }
# say_killed WHO SIGNAL: prints that WHO was killed, and notes WHO.
say_killed() {
  local hint=': often lack of memory, and dmesg then names it'
  if (($2 != 9)); then hint=; fi
  say "$1 was killed by signal $2 (SIG$(kill -l "$2"))$hint"
  note killed "$1"
}
# copy: copies standard output of mpirun, which would crash with its ranks on a full disk or without a reader.
copy() {
  trap '' INT TERM HUP USR1 TSTP
  until cat 2>/dev/null; do IFS= read -r -N 1 || break; done # goes on after a failed write, ends with the input
}
# without_pages: copies standard error of mpirun and the ranks, without the page between two rules that Open MPI prints if a rank
# ends with a code other than 0: the rank has said why. Names a rank that was killed. Drops Open MPI's notes on passed signals.
without_pages() {
  trap '' INT TERM HUP USR1 TSTP
  set +e
  exec 2>/dev/null # hides the shell's complaints about failed writes
  local text rest patience page="" line_begins=true LC_ALL=C
  local rule=$'^-{70,}\n$' killed='rank ([0-9]+) .*signal[[:space:]]([0-9]+) \(' code='[Ee]xit code:[[:space:]]*([0-9]+)'
  while IFS= read -r -N 1 ${page:+-t 5} text || (($? > 128)); do
    if [[ -z $text ]]; then # timeout: this is no page, so a rank printed the rule
      printf '%s' "$page"
      page=
      continue
    elif [[ $text != $'\n' ]]; then
      # Waits briefly for the rest of a line, because a rank may rewrite the line in place, but longer for a line of a page.
      patience=${page:+5}
      if IFS= read -r -t "${patience:-0.1}" rest; then rest+=$'\n'; fi
      text+=$rest
    fi
    if [[ -z $page ]]; then
      if $line_begins && [[ $text =~ $rule ]]; then
        page=$text
      elif ! $line_begins || [[ $text != *": Forwarding signal "*" to job"$'\n' ]]; then
        printf '%s' "$text"
      fi
    elif [[ ! $text =~ $rule ]]; then
      page+=$text
    else
      if [[ $page == *"exited on"*signal* && $page =~ $killed ]]; then
        note code $((128 + BASH_REMATCH[2]))
        if ((BASH_REMATCH[2] != $(kill -l USR1))); then say_killed "rank ${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" 2>&1; fi
      elif [[ $page != *"exited with non-zero status"* && $page != *"non-zero exit code"* ]]; then
        printf '%s%s' "$page" "$text"
      elif [[ $page =~ $code ]]; then
        note code "${BASH_REMATCH[1]}"
      fi
      page=
    fi
    line_begins=false
    if [[ $text == *$'\n' ]]; then line_begins=true; fi
  done
  printf '%s' "$page"
}
# living: prints the children of mpirun that live, or `?` where the system does not tell. In large jobs other threads of mpirun
# start the ranks, so the children of all threads count. Ignores Ctrl-Z: this script would wait for ever for a stopped child.
living() {
  trap '' TSTP
  if [[ ! -r /proc/$mpirun/task/$mpirun/children ]]; then echo '?' && return; fi
  local child
  for child in $(cat /proc/"$mpirun"/task/*/children 2>/dev/null); do
    if ! grep -qs '^State:[[:space:]]*[ZX]' "/proc/$child/status"; then echo "$child"; fi
  done
}
# watch: ends an mpirun that hangs after a rank has failed or all have ended. Open MPI 4.1 may hang for ever
# if a rank is killed while MPI starts.
watch() {
  trap '' INT TERM HUP USR1 TSTP
  local since=$SECONDS had=false now
  while sleep 1 && kill -0 "$mpirun"; do
    now=$(living)
    if [[ -n $now && -z $(noted code) ]]; then
      had=true since=$SECONDS
    elif { $had || [[ -n $(noted code) ]]; } && ((SECONDS - since >= ${RIPSTOP_LAUNCHER_PATIENCE:-30})); then
      note hangs true
      kill -KILL "$mpirun" ${now//\?/}
    fi
  done
}

# From here on, requests to stop are kept, and passed on once mpirun has started.
asked_by="" interrupts=0 first_interrupt_us=0 signalled=false mpirun=""
# Signals within this time are one request. Bash 4 knows only whole seconds, and two signals a tenth of a second apart may lie
# in different seconds.
one_request_us=1000000
if [[ -z ${EPOCHREALTIME:-} ]]; then one_request_us=1000001; fi
# ask SIGNAL: asks the ranks to stop. First waits, up to ten seconds, for mpirun to start them: an earlier
# signal would end mpirun or get lost.
ask() {
  signalled=true asked_by=${asked_by:-$1}
  if [[ -z $mpirun ]]; then return 0; fi
  local tries
  for ((tries = 0; tries < 100; tries++)); do
    if [[ -n $(living) ]]; then break; fi
    (trap '' TSTP && exec sleep 0.1) || true
  done
  kill -USR1 "$mpirun" 2>/dev/null || true
}
interrupt() {
  local now_us=${EPOCHREALTIME:-$SECONDS.000000} signal=TERM
  signalled=true now_us=${now_us//[.,]/}
  # `timeout` and other programs signal a process and then its group, which counts as one request.
  if ((interrupts > 0 && now_us - first_interrupt_us < one_request_us)); then return 0; fi
  interrupts=$((interrupts + 1))
  if ((interrupts == 1)); then
    first_interrupt_us=$now_us
    say "$on_interrupt"
    ask INT
  elif [[ -n $mpirun ]]; then
    if ((interrupts > 2)); then signal=KILL; fi
    kill -$signal "$mpirun" 2>/dev/null || true
  fi
}
on_interrupt="stopping; Ctrl-C again kills the ranks" again="" after_kill=""
if [[ " $* " =~ \ [^[:space:]-][^[:space:]]*\ train\  ]]; then # the verb, not an option's value
  on_interrupt="stopping, train saves first; Ctrl-C again ends it without saving"
  after_kill="; the same command goes on from the last checkpoint"
elif [[ " $* " == *"ripstop evaluate "* ]]; then
  again="; the same command goes on"
fi
trap interrupt INT
for each in TERM HUP USR1; do trap "ask $each" "$each"; done
trap 'signalled=true; say "Ctrl-Z does nothing here: the ranks go on; Ctrl-C stops them"' TSTP

exec {output}> >(copy)
copiers=$!
exec {errors}>&2
if [[ -z ${RIPSTOP_LAUNCHER_VERBOSE:-} ]]; then
  exec {errors}> >(without_pages >&2)
  copiers+=" $!"
fi
"${detached[@]}" mpirun -n "$ranks" ${options[@]+"${options[@]}"} "$@" <&0 >&"$output" 2>&"$errors" {output}>&- {errors}>&- &
mpirun=$!
exec {output}>&- {errors}>&-
watch </dev/null >/dev/null 2>&1 &
watch=$!
if [[ -n $asked_by ]]; then ask "$asked_by"; fi
while # a signal ends `wait` but not the run
  signalled=false status=0
  wait "$mpirun" 2>/dev/null || status=$?
  $signalled
do :; done
trap '' INT TERM HUP USR1 TSTP
kill $typed $watch 2>/dev/null || true
# Lets the copiers write what is left, for ten seconds at most, because a reader may never read.
for ((tries = 0; tries < 200; tries++)); do
  if ! kill -0 $copiers 2>/dev/null; then break; fi
  sleep 0.05
done

if [[ -n $(noted hangs) ]]; then status=$(noted code) && [[ -n $status ]] || end hangs; fi
usr1=$(kill -l USR1)
if ((interrupts > 1 && status != 0 && status != 75)); then # with 0 and 75 the ranks were done before they were killed
  end again_INT "$after_kill"
elif [[ -n $asked_by ]] && ((status == 128 + usr1 || status == usr1)); then # SIGUSR1 itself ended the command
  end "stopped_$asked_by" "$again"
elif ((status > 128 && status <= 128 + 64)); then
  if [[ -z $(noted killed) ]]; then say_killed "a rank" $((status - 128)); fi
elif ((status != 0 && (status < 64 || status > 78))); then # not a code of ripstop, so perhaps there was no message
  say "$1 ended with exit code $status"
fi
exit "$status"
