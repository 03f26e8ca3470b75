#!/usr/bin/env bash
# The job files and job.sh as they come, on this machine: what they read, find, start and do with signals. Only the program and
# the answers of Slurm are stand-ins; train_sbatch_test.sh and cluster_test.sh have the real ones.      job_test.sh LAUNCH
set -euo pipefail
slurm=$(cd "$(dirname "$1")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset "${!SLURM_@}" "${!RIPSTOP_@}"
export RIPSTOP_LAUNCHER=mpirun OMP_NUM_THREADS=1
mkdir -p "$work"/{bin,tools,site,empty}
cp -r "$slurm" "$work/site/slurm"
fail() {
  echo "FAILED: $*"
  cat "$work/log"
  exit 1
}
# expect CODE COMMAND...: both streams go to $work/log
expect() {
  local expected=$1 code=0
  shift
  "$@" >"$work/log" 2>&1 || code=$?
  [[ $code -eq $expected ]] || fail "$*: exit code $code, expected $expected"
}
# says TEXT...: lines of the log, as often as there are ranks
says() { [[ $(grep -cxF -- "$2" "$work/log") -eq $1 ]] || fail "not $1 x '$2'"; }
job_files=(train train_any_nodes evaluate prepare)

# ---- env.sh: each line is a command once its `#` is taken away, and sets what it names
while read -r line; do
  expect 0 env -i HOME="$work" bash -euc '
    export() { for word; do [[ $word =~ ^[A-Za-z_0-9]+=. ]] || { echo "export $word"; exit 1; }; done; }
    module() { case "$1 $#" in "purge 1" | "use 2") ;; "load "*) shift; for word; do [[ $word =~ ^(gcc|openmpi|hdf5|cuda|nccl|cudnn|ripstop|aws-ofi-nccl)$ ]] || exit 1; done ;; *) exit 1 ;; esac; }
    source() { [[ $# -eq 1 && $1 == /* ]]; }
    spack() { [[ $* == "env activate ripstop" ]]; }
    eval "$1"' _ "$line"
done < <(sed -nE 's/^# ((export|module|source|spack) .*)/\1/p' "$slurm/env.sh")
(($(grep -cE '^# (export|module|source|spack) ' "$slurm/env.sh") > 20)) || fail "there are no lines to try"

# ---- env.sh of a site: what it loads is not written for -e, -u and pipefail, and looks at arguments
cat >"$work/bin/ripstop" <<'TOOL'
#!/usr/bin/env bash
echo "$* | ${SITE-env.sh was not read}"
TOOL
chmod +x "$work/bin/ripstop"
export PATH=$PATH:$work/bin
cat >>"$work/site/slurm/env.sh" <<'SITE'
false
export SITE="$NOT_SET$# arguments"
false | true
SITE
for name in "${job_files[@]}"; do
  expect 0 bash "$work/site/slurm/$name.sbatch" 'a config' x=y
  verb=${name%_any_nodes}
  says 1 "$verb a config x=y | 0 arguments"
done

SLURM_HET_SIZE=2 expect 0 bash "$work/site/slurm/train.sbatch" c
says 1 "job.sh: a heterogeneous job: the ranks are on its first part, the other parts stay idle"
expect 0 bash "$work/site/slurm/train.sbatch" c
says 0 "job.sh: a heterogeneous job: the ranks are on its first part, the other parts stay idle"

# ---- Where the scripts are. Slurm runs a copy of the job file alone, in another folder.
mkdir -p "$work"/spool "$work/repository"
cp -r "$slurm" "$work/repository/slurm"
echo 'export SITE=repository' >>"$work/repository/slurm/env.sh"
printf 'echo "a stranger is read"\nexport SITE=stranger\n' >"$work/empty/env.sh"
printf '#!/usr/bin/env bash\n[[ $* == *7 ]] && echo "JobId=7 Command=../repository/slurm/x.sbatch a WorkDir=y"\n' >"$work/tools/scontrol"
chmod +x "$work/tools/scontrol"
for name in "${job_files[@]}"; do
  verb=${name%_any_nodes}
  cp "$slurm/$name.sbatch" "$work/spool/slurm_script"
  cd "$work/empty"
  expect 64 bash "$work/spool/slurm_script" a
  [[ $(wc -l <"$work/log") -eq 1 ]] && grep -q "^$name.sbatch: where are job.sh" "$work/log" || fail "$name: no one line of what is missing"
  RIPSTOP_SLURM=$work/site/slurm expect 0 bash "$work/spool/slurm_script" a
  says 1 "$verb a | 0 arguments"
  SLURM_SUBMIT_DIR=$work/repository expect 0 bash "$work/spool/slurm_script" a
  says 1 "$verb a | repository"
  PATH=$PATH:$work/site/slurm expect 0 bash "$work/spool/slurm_script" a
  says 1 "$verb a | 0 arguments"
  SLURM_JOB_ID=7 PATH=$work/tools:$PATH expect 0 bash "$work/spool/slurm_script" a
  says 1 "$verb a | repository"
  cd "$work/repository" # a module goes before the folder at hand, and a file's own folder before both
  RIPSTOP_SLURM=$work/site/slurm expect 0 bash "$work/spool/slurm_script" a
  says 1 "$verb a | 0 arguments"
  RIPSTOP_SLURM=$work/site/slurm expect 0 bash "slurm/$name.sbatch" a
  says 1 "$verb a | repository"
done
cp "$slurm/quickstart.sbatch" "$work/spool/slurm_script"
cd "$work/empty"
SLURM_SUBMIT_DIR=$work/empty expect 64 bash "$work/spool/slurm_script"
[[ $(wc -l <"$work/log") -eq 1 ]] && grep -q 'is not the repository' "$work/log" || fail "quickstart: no one line of what is missing"

expect 64 bash "$slurm/quickstart.sbatch" --directory
grep -q 'quickstart.sbatch: --directory needs a value' "$work/log" || fail "quickstart: an option without its value"

# ---- How many ranks: --ntasks of the command line, else the nodes that were granted times the tasks of each
# ranks EXPECTED TASKS TASKS_OF_A_NODE NODES
ranks() {
  SLURM_NTASKS=$2 SLURM_NTASKS_PER_NODE=$3 SLURM_JOB_NUM_NODES=$4 expect 0 "$slurm/job.sh" evaluate run
  says "$1" "evaluate run | env.sh was not read"
}
ranks 2 2 4 1
ranks 3 3 2 2
ranks 4 4 2 2
ranks 4 '' 2 2
ranks 2 8 2 1 # of the start before, on four nodes
ranks 3 3 '' ''

# ---- Signals. The program ends with 75 after SIGUSR1; `early` is one that does not know the signal yet, and ends by it.
# The stand-ins note how far job.sh has come in $SEEN, and wait there until the test goes on.
cat >"$work/tools/wait_at" <<'TOOL'
#!/usr/bin/env bash
: >"$SEEN/$1"
until [[ -e $SEEN/after_$1 ]]; do sleep 0.1; done
TOOL
cat >"$work/bin/ripstop" <<'TOOL'
#!/usr/bin/env bash
if [[ $2 != early ]]; then trap 'echo "asked to save" && exit 75' USR1; fi
: >"$SEEN/ranks"
while [[ -d $SEEN ]]; do sleep 0.1; done
TOOL
cat >"$work/bin/scontrol" <<'TOOL'
#!/usr/bin/env bash
verb=show
if [[ $1 == requeue ]]; then verb=requeue; fi
wait_at $verb
if [[ $verb == show ]]; then echo "JobId=7 JobState=RUNNING BatchFlag=1 Restarts=0"; fi
TOOL
# Starts no ranks for a while, and loses the signals that come meanwhile. `true` is the step that comes before.
cat >"$work/bin/srun" <<'TOOL'
#!/usr/bin/env bash
if [[ ${*: -1} == true ]]; then exec wait_at step; fi
trap '' USR1
sleep 1
while [[ $1 == --* ]]; do shift; done
exec env --default-signal=USR1 "$@"
TOOL
chmod +x "$work"/{bin,tools}/*
export SEEN=$work/seen SLURM_JOB_ID=7 RIPSTOP_REQUEUE_PAUSE=0 PATH=$work/bin:$work/tools:$PATH
# requeued CONFIG WHEN:SIGNAL...: job.sh gets each signal when it has come so far; the job must go back into the queue
requeued() {
  local config=$1 code=0 job event moment=''
  shift
  rm -rf "$SEEN" && mkdir "$SEEN"
  env --default-signal=INT setsid "$slurm/job.sh" train "$config" >"$work/log" 2>&1 &
  job=$!
  for event; do
    if [[ $moment != "${event%:*}" ]]; then touch "$SEEN/after_$moment"; fi
    moment=${event%:*}
    until [[ -e $SEEN/$moment ]]; do
      kill -0 $job 2>/dev/null || fail "$config $*: job.sh is gone before $event"
      sleep 0.1
    done
    if [[ $event == *:INT ]]; then kill -INT -- -$job; else kill "-${event#*:}" $job; fi # a terminal signals the group
    sleep 0.2 # the next one is another request
  done
  touch "$SEEN"/after_{step,show,requeue}
  wait $job || code=$?
  [[ $code -eq 75 ]] || fail "$config $*: exit code $code"
  grep -q 'requeue.sh: job 7: its time was up; it goes back' "$work/log" && [[ -e $SEEN/requeue ]] || fail "$config $*: not requeued"
}
requeued config ranks:USR1 show:TERM show:INT show:USR1 requeue:HUP requeue:TERM
says 1 'asked to save'
requeued early ranks:USR1
# The start after a requeue makes a step first. A signal then must reach the ranks all the same.
RIPSTOP_LAUNCHER=srun SLURM_RESTART_COUNT=1 requeued config step:USR1
says 1 'asked to save'
echo "job files: env.sh, their scripts, their ranks, their signals"
