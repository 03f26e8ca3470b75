#!/usr/bin/env bash
# slurm/launch.sh as a user sees it: help, exit codes, and no more text than the ranks print themselves.
#   launch_test.sh LAUNCH
set -euo pipefail
launch=$1
export RIPSTOP_LAUNCHER=mpirun OMP_NUM_THREADS=1
out=$(mktemp)
trap 'rm -f "$out"' EXIT
fail() {
  echo "FAILED: $*"
  cat "$out"
  exit 1
}
# expect CODE ARGUMENTS...: checks the exit code; $out gets both streams
expect() {
  local expected=$1 code=0
  shift
  "$launch" "$@" >"$out" 2>&1 || code=$?
  [[ $code -eq $expected ]] || fail "launch.sh $*: exit code $code, expected $expected"
}

"$launch" --help 2>/dev/null | grep -q 'launch.sh N COMMAND' || fail "no help on standard output"
expect 0 --help
expect 64
expect 64 two true
grep -q "give the number of ranks, then the program, not \"two true\"" "$out" || fail "it is not said what is wrong"
expect 0 2 true

for job in quickstart prepare train train_any_nodes evaluate; do
  code=0
  bash "$(dirname "$launch")/$job.sbatch" --help >"$out" 2>&1 || code=$?
  [[ $code -eq 0 ]] || fail "$job.sbatch --help: exit code $code"
  grep -q " slurm/$job.sbatch" "$out" || fail "$job.sbatch --help shows no usage"
  if grep -q '^#' "$out"; then fail "$job.sbatch --help shows comments"; fi
done

# A command of one process is started once, whatever N is.
tools=$(mktemp -d)
trap 'rm -rf "$out" "$tools"' EXIT
printf '#!/bin/bash\necho "works alone: $*"\n' >"$tools/ripstop"
chmod +x "$tools/ripstop"
expect 0 3 "$tools/ripstop" prepare --output x
[[ $(grep -c '^works alone: prepare --output x' "$out") -eq 1 ]] || fail "prepare is not started once"
grep -q 'launch.sh: ripstop prepare is one process' "$out" || fail "nobody says that prepare is one process"
verbs=0
while read -r verb; do
  count=1
  if [[ $verb =~ ^(check|doctor|evaluate|summarize|train)$ ]]; then count=2; fi
  expect 0 2 "$tools/ripstop" "$verb" </dev/null
  [[ $(grep -c "^works alone: $verb" "$out") -eq $count ]] || fail "$verb is not started $count times"
  verbs=$((verbs + 1))
done < <(sed -n '/const auto add :/,/add(line)/p' "$(dirname "$launch")/../train/main.cpp" | grep -o 'add_[a-z_]*' | cut -c 5- | tr _ -)
((verbs > 9)) || fail "only $verbs verbs were tried"
expect 0 3 "$tools/ripstop" checkpoint export run out
[[ $(grep -c '^works alone: checkpoint export run out' "$out") -eq 3 ]] || fail "checkpoint export is not started on each rank"
expect 0 3 "$tools/ripstop" checkpoint list run
[[ $(grep -c '^works alone: checkpoint list run' "$out") -eq 1 ]] || fail "checkpoint list is not started once"

expect 64 2 no-such-program
grep -q "no program 'no-such-program'" "$out" || fail "the program that is missing is not named"

# Ranks that share cores must not spin. Others wait as OpenMP does by default.
cores=$(env -u OMP_NUM_THREADS nproc)
expect 0 1 bash -c 'echo "${OMP_WAIT_POLICY:-none}"'
[[ $(cat "$out") == none ]] || fail "one rank of one thread is passive"
OMP_NUM_THREADS=$((cores + 1)) expect 0 1 bash -c 'echo "${OMP_WAIT_POLICY:-none}"'
[[ $(cat "$out") == passive ]] || fail "more threads than cores spin"

# Lines that mpirun adds to the words of a rank are left out. Its own errors are shown, and so is every byte of the ranks.
expect 75 2 bash -c 'echo "a rank says why" >&2; exit 75'
[[ $(sort -u "$out") == "a rank says why" ]] || fail "the launcher adds to what the ranks say"
expect 3 2 bash -c 'exit 3'
[[ $(cat "$out") == "launch.sh: bash ended with exit code 3" ]] || fail "nobody says what happened"
RIPSTOP_LAUNCHER_OPTIONS=--no-such-option "$launch" 1 true >"$out" 2>&1 && fail "an unknown option of mpirun is accepted"
grep -q -- --no-such-option "$out" || fail "an error of mpirun's own is not shown"
rule=$(printf '%74s' '' | tr ' ' -)
expect 0 1 bash -c "printf '%s\n' 'begin' $rule 'a word' $rule '' 'end without a line end' >&2; printf partial >&2"
[[ $(cat "$out") == $(printf '%s\n' 'begin' "$rule" 'a word' "$rule" '' 'end without a line end' partial) ]] ||
  fail "standard error of a rank is not passed on as it is"
if [[ $(mpirun --version 2>&1) == *"Open MPI"* ]]; then
  RIPSTOP_LAUNCHER_VERBOSE=1 expect 75 2 bash -c 'exit 75'
  grep -qi 'non-zero' "$out" || fail "RIPSTOP_LAUNCHER_VERBOSE=1 does not show what mpirun says"
fi

# No terminal is behind the ranks, though mpirun may give them one.
expect 0 1 bash -c 'echo "terminal: ${RIPSTOP_TERMINAL-unknown}"' </dev/null
[[ $(cat "$out") == "terminal: " ]] || fail "the ranks are told that there is a terminal"
[[ $(echo piped | "$launch" 2 cat 2>&1) == piped ]] || fail "a pipe does not reach rank 0"

# Open MPI's directory for its sessions: two launches never share it, and it goes with them.
if [[ $(mpirun --version 2>&1) == *"Open MPI"* ]]; then
  mkdir "$tools/tmp"
  for ((i = 0; i < 2; i++)); do
    TMPDIR=$tools/tmp expect 0 2 bash -c 'echo "${OMPI_MCA_orte_tmpdir_base:-$PRTE_MCA_prte_tmpdir_base}"; ls "$TMPDIR"/ripstop-*'
    grep -o "^$tools/tmp/ripstop-[^/]*$" "$out" | sort -u >>"$tools/sessions"
    grep -q '^\(ompi\|prte\|prterun\)\.' "$out" || fail "Open MPI's session is elsewhere"
  done
  (($(sort -u "$tools/sessions" | wc -l) == 2)) || fail "two launches have one directory: $(cat "$tools/sessions")"
  [[ -z $(ls -A "$tools/tmp") ]] || fail "launches have left $(find "$tools/tmp")"
fi

# An mpirun that does not end after its ranks, as Open MPI 4.1 at times if a rank is killed while MPI starts: launch.sh ends with the
# code of the rank, as far as it is known.
mkdir "$tools/hangs"
cat >"$tools/hangs/mpirun" <<'TOOL'
#!/usr/bin/env bash
if [[ $1 == --version ]]; then exit; fi
rule=$(printf '%74s' '' | tr ' ' -)
if [[ -n $PAGE ]]; then printf '%s\n' "$rule" "$PAGE" "$rule" >&2; fi
sleep 2
exec {pipe}<> <(:)
read -r -u $pipe
TOOL
chmod +x "$tools/hangs/mpirun"
export RIPSTOP_LAUNCHER_PATIENCE=2
PATH=$tools/hangs:$PATH PAGE='' expect 76 2 true
grep -qx 'launch.sh: mpirun did not end, though none of its ranks lives: killed' "$out" || fail "nobody says that mpirun hung"
PATH=$tools/hangs:$PATH PAGE='process rank 1 with PID 7 on node x exited on signal 11 (Segmentation fault).' expect 139 2 true
[[ $(cat "$out") == 'launch.sh: rank 1 was killed by signal 11 (SIGSEGV)' ]] || fail "the killed rank is not named once"
PATH=$tools/hangs:$PATH PAGE='Processes exited with non-zero status.  Exit code:    65' expect 65 2 true
unset RIPSTOP_LAUNCHER_PATIENCE

# Standard streams that are closed, full or without a reader change no exit code.
exec 8> >(true)
wait $!
for streams in '<&- >&-' '<&- >&- 2>&-' '>/dev/full 2>&1' '>&8 2>&8'; do
  for code in 0 75; do
    is=0
    (exec >/dev/null 2>&1 && eval "exec $streams" && exec "$launch" 2 bash -c "echo text; echo text >&2; exit $code") || is=$?
    [[ $is -eq $code ]] || fail "streams $streams: exit code $is, expected $code"
  done
  is=0
  (exec >/dev/null 2>&1 && eval "exec $streams" && exec "$launch" 2 no-such-program) || is=$?
  [[ $is -eq 64 ]] || fail "streams $streams: exit code $is for a program that is not there"
done

# A reader that leaves in the middle of the output ends nothing, however much comes after.
long='for i in 1 2 3; do echo $i; sleep 0.2; done; for i in {1..300}; do printf "%0500d\n" $i; done'
{ "$launch" 1 bash -c "$long" 2>"$out" || echo "exit code $?" >>"$out"; } | head -n 1 >/dev/null
[[ ! -s $out ]] || fail "a reader that left: $(cat "$out")"

# mpirun on several nodes: each node has room for its share of the ranks, even if one node gets a rank less.
mkdir "$tools/nodes"
printf '#!/usr/bin/env bash\nif [[ $1 == --version ]]; then echo "Open MPI"; else echo "$*"; fi\n' >"$tools/nodes/mpirun"
chmod +x "$tools/nodes/mpirun"
SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2 PATH=$tools/nodes:$PATH expect 0 3 true
grep -q -- '-n 3 .*--map-by ppr:2:node ' "$out" || fail "three ranks on two nodes: $(cat "$out")"

# In a step, srun must not wait for the processors of that step. mpirun calls srun, too.
printf '#!/usr/bin/env bash\necho "$SLURM_EXPORT_ENV $SRUN_EXPORT_ENV $SLURM_OVERLAP $SLURM_OVERCOMMIT $SRUN_CPUS_PER_TASK $SLURM_NTASKS_PER_NODE $*"\n' >"$tools/srun"
chmod +x "$tools/srun"
export SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS_PER_NODE=7 SRUN_EXPORT_ENV=NONE SLURM_CPUS_PER_TASK=3
PATH=$tools:$PATH RIPSTOP_LAUNCHER=srun expect 0 2 true
grep -q '^ALL ALL 1 1 3  .*true$' "$out" || fail "srun in a step, after sbatch --export=NONE: $(cat "$out")"
PATH=$tools:$PATH expect 0 1 srun
grep -q '^ALL ALL 1 1 3  $' "$out" || fail "mpirun in a step: $(cat "$out")"
# A job file, too, may call srun.
PATH=$tools:$PATH bash -c 'scripts= && source "$1" && srun' _ "$(dirname "$launch")/begin.sh" >"$out" 2>&1
grep -q '^ALL ALL * 3 7 $' "$out" || fail "srun in a job file after sbatch --export=NONE: $(cat "$out")"
# The ranks of a job file get PATH, which --export=NONE may leave out of its environment.
env -i /bin/bash -c 'scripts= && source "$1" && env' _ "$(dirname "$launch")/begin.sh" >"$out" 2>&1
grep -q '^PATH=.*/build/cpu-release$' "$out" || fail "a job file without PATH: $(cat "$out")"
unset SLURM_STEP_NUM_TASKS SLURM_NTASKS_PER_NODE SRUN_EXPORT_ENV SLURM_CPUS_PER_TASK

# Each state of the table ends with its code, and no other does.
table=$(bash -c 'source "$1" && echo "$launch_endings"' _ "$(dirname "$launch")/endings.sh")
while read -r state code _; do
  [[ $code =~ ^[0-9]+$ ]] && grep -Eq "end \"?(${state}|${state%%_*}_\\\$asked_by)" "$launch" || fail "no '$state' in launch.sh"
  if [[ $state == stopped_* ]]; then [[ $code -eq $((128 + $(kill -l "${state#*_}"))) ]] || fail "$state: $code"; fi
done < <(grep . <<<"$table")

# Whatever the launcher waits for must not stop on Ctrl-Z. Programs of these names note the signals that they ignore.
note='sed -n "s/^SigIgn:[[:space:]]*/0x/p" /proc/self/status'
cat >"$tools/srun" <<TOOL
#!/usr/bin/env bash
$note
TOOL
cat >"$tools/mpirun" <<'TOOL'
#!/usr/bin/env bash
if [[ $1 != --version ]]; then : >"${0%/*}/started" && exec /bin/sleep 600; fi
TOOL
for tool in cat sleep; do # launch.sh asks `cat` for the ranks that mpirun has started: here for the second time
  cat >"$tools/$tool" <<TOOL
#!/usr/bin/env bash
$note >>"$tools/noted"
if ((\$(wc -l <"$tools/noted") > 2)); then echo 4711; fi
TOOL
done
chmod +x "$tools"/{srun,mpirun,cat,sleep}
# all_ignore_it FILE: each line of FILE has the bit of SIGTSTP
all_ignore_it() {
  local ignored
  [[ -s $1 ]] || return 1
  while read -r ignored; do ((ignored >> ($(kill -l TSTP) - 1) & 1)) || return 1; done <"$1"
}
PATH=$tools:$PATH RIPSTOP_LAUNCHER=srun expect 0 2 true
all_ignore_it "$out" || fail "Ctrl-Z stops srun"
code=0
PATH=$tools:$PATH "$launch" 2 bash >"$out" 2>&1 </dev/null &
launcher=$!
until [[ -e $tools/started ]]; do /bin/sleep 0.1; done
kill -USR1 $launcher
wait $launcher || code=$?
[[ $code -eq $((128 + $(kill -l USR1))) ]] || fail "exit code $code after SIGUSR1 to an mpirun that ends by it"
all_ignore_it "$tools/noted" || fail "Ctrl-Z stops what launch.sh waits for"
# The job file for a laptop asks for the last step twice a second.
rm "$tools/noted"
eval "$(sed -n '/^last_step() {/,/^}/p' "$(dirname "$launch")/quickstart.sbatch")"
grep() {
  eval "$note" >>"$tools/noted"
  command grep "$@"
}
step=$(run=$tools last_step)
[[ $step == 0 ]] || fail "the last step of a run that has none is $step"
all_ignore_it "$tools/noted" || fail "Ctrl-Z stops what the job file waits for"
