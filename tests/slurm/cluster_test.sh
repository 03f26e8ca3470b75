#!/usr/bin/env bash
# The job files on a real Slurm: 4 simulated nodes of 2 tasks. Trains with tensor groups inside a node and fsdp across nodes,
# as root and as another user; time limits, cancelled and pre-empted jobs, a lost node, wrong launches.
#   cluster_test.sh RIPSTOP [PART...]      PART: functions of this file that begin with `part_`; default: all
# KEEP=1 keeps the directory.
set -euo pipefail
ripstop=$1
shift
# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/cluster/jobs.sh" # sets work, job, last_log, source_tree
: "${work=}" "${job=}" "${last_log=}" "${source_tree:?}"
begin_cluster "$ripstop" 4

small_run 40 10 0 10 400 8
config=$work/config.toml
eight=(--nodes=4 --ntasks-per-node=2 --cpus-per-task=1)
train=("$work/slurm/train.sbatch" "$config" "data.directory=$work/data")

# The run that all others must equal: no Slurm, the same mesh.
launch.sh 8 ripstop train config.toml run.directory="$work/unbroken" >unbroken.log 2>&1 || fail "$(tail -n 5 unbroken.log)"
say "the unbroken run: 40 steps, $(losses unbroken | tail -n 1)"

part_meshes() {
  submit "${eight[@]}" "${train[@]}" run.directory="$work/root"
  ends "$job" COMPLETED
  equal_runs unbroken root
  # Ranks dealt to the nodes in turn: the mesh is made by host, not by number.
  submit --user "${eight[@]}" --distribution=cyclic "${train[@]}" run.directory="$work/jobs/user"
  ends "$job" COMPLETED
  equal_runs unbroken jobs/user
  grep -q 'ranks 0-1 *n1$' "$last_log" || fail "ranks 0 and 1 are no tensor group on n1"
  [[ $(stat -c %U "$work/jobs/user/config.toml") == UNKNOWN ]] || fail "the user's files are not the user's"
  say "srun: as root, and as another user with --distribution=cyclic: equal to the unbroken run"
  submit --user "${eight[@]}" --export=ALL,RIPSTOP_LAUNCHER=mpirun "${train[@]}" run.directory="$work/jobs/mpirun"
  ends "$job" COMPLETED
  equal_runs unbroken jobs/mpirun
  say "mpirun inside a job: equal to the unbroken run"
}

part_other_jobs() {
  submit --user --cpus-per-task=2 "$work/slurm/prepare.sbatch" --source synthetic --examples 200 --seed 5 --vocab-size 400 \
    --output "$work/jobs/prepared"
  ends "$job" COMPLETED
  [[ -e $work/jobs/prepared/prepare.json ]] || fail "nothing was prepared"
  # The scores are written below the run.
  submit --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 "$work/slurm/evaluate.sbatch" "$work/unbroken" --data "$work/data" --split test --limit 4 \
    --max-new-tokens 8
  ends "$job" COMPLETED
  [[ -n $(find "$work/unbroken/evaluation" -name scores.json) ]] || fail "there are no scores"
  say "prepare.sbatch as another user, evaluate.sbatch on two nodes"
}

part_refusals() {
  submit "${eight[@]}" "${train[@]}" run.directory="$work/jobs/tensor4" mesh.tensor=4
  ends "$job" FAILED
  [[ $(value "$job" ExitCode) == 78:0 ]] || fail "tensor 4 on nodes of 2 tasks: $(value "$job" ExitCode)"
  grep -q 'does not fit inside the nodes: n1 has 2.*mesh.tensor = 1, 2 fits' "$last_log" || fail "what would fit is not said"
  [[ ! -e $work/jobs/tensor4 ]] || fail "a run that was refused left something"
  local kind
  for kind in pmi2 none; do
    submit "${eight[@]}" --export=ALL,RIPSTOP_LAUNCHER_OPTIONS=--mpi=$kind "${train[@]}" run.directory="$work/jobs/alone"
    ends "$job" FAILED
    [[ $(value "$job" ExitCode) == 78:0 ]] || fail "--mpi=$kind: $(value "$job" ExitCode)"
    grep -q '8 processes were started, but each is alone in its MPI world' "$last_log" || fail "--mpi=$kind is not explained"
  done
  say "tensor 4 on nodes of 2 tasks, --mpi=pmi2 and --mpi=none: refused with the reason"
}

# Slurm's warning before the time limit, sent by hand: --signal=B:USR1 does just this.
part_warning() {
  STAND_AT=7 submit "${eight[@]}" "${train[@]}" run.directory="$work/warned"
  reaches warned 7
  on ctl scancel --batch --signal=USR1 "$job"
  restarted "$job" 1
  ends "$job" COMPLETED
  equal_runs unbroken warned
  grep -q '"reason":"stop_requested"' warned/metrics.jsonl || fail "the run did not end on request"
  say "USR1: saved, requeued, resumed, equal to the unbroken run"
}

# Signals at bad moments: before the ranks know them, during the step before a start, and while requeue.sh asks Slurm. Each of
# these stands still until the signal is there. srun may lose a signal, and job.sh repeats it after five seconds.
part_signals() {
  local tool
  mkdir -p slow hold/ripstop hold/step seen
  for tool in ripstop srun scontrol; do
    cat >slow/$tool <<TOOL
#!/usr/bin/env bash
moment=$tool
if [[ $tool == srun && \${*: -1} == true ]]; then moment=step; fi
if [[ -d "$work/hold/\$moment" ]]; then mkdir -p "$work/seen/\$moment"; fi
while [[ -d "$work/hold/\$moment" ]]; do sleep 0.1; done
exec $(command -v $tool) "\$@"
TOOL
    chmod +x slow/$tool
  done
  STAND_AT="5 20" submit "${eight[@]}" --export=ALL,PATH="$work/slow:$PATH" "${train[@]}" run.directory="$work/signals"
  happens ripstop
  on ctl scancel --batch --signal=USR1 "$job"
  restarted "$job" 1
  rmdir hold/ripstop
  happens step
  on ctl scancel --batch --signal=USR1 "$job"
  goes_on step
  restarted "$job" 2
  grep -q '"restart": 1,' signals/checkpoints/takeovers.json || fail "the start that was stopped early is not counted"
  waits_for "the third start" grep -q '"restart": 2,' signals/checkpoints/takeovers.json
  reaches signals 5
  mkdir hold/scontrol
  on ctl scancel --batch --signal=USR1 "$job"
  happens scontrol
  on ctl scancel --batch --signal=TERM "$job"
  goes_on scontrol
  restarted "$job" 3
  stand_at
  ends "$job" COMPLETED
  equal_runs unbroken signals
  say "signals to ranks that do not know them yet, before a start, to requeue.sh: requeued each time, equal"
}
# happens WHAT: a program that part_signals holds has been called
happens() { waits_for "$1" test -d "seen/$1"; }
# goes_on WHAT: it is held no more, when the signal has had the time to come
goes_on() {
  sleep 1
  rmdir "hold/$1"
}

part_fewer_tasks() {
  submit --nodes=1 --ntasks=2 --cpus-per-task=1 "${train[@]}" run.directory="$work/two" train.steps=2 schedule.warmup_steps=0
  ends "$job" COMPLETED
  grep -q "^mesh .*: 2 ranks" "$last_log" || fail "--ntasks=2 on the command line started other than 2 ranks"
  submit --nodes=1 --cpus-per-task=1 "${train[@]}" run.directory="$work/four" train.steps=2 schedule.warmup_steps=0
  ends "$job" COMPLETED
  grep -q "^mesh .*: 4 ranks" "$last_log" || fail "the job file's 4 tasks of a node are not 4 ranks"
  say "--ntasks=2 starts two ranks, the job file alone four of a node"
}

part_cancelled() {
  local before
  STAND_AT=7 submit "${eight[@]}" "${train[@]}" run.directory="$work/cancelled"
  reaches cancelled 7
  on ctl scancel "$job"
  ends "$job" CANCELLED
  sleep 8 # a requeued job would start after 5
  [[ $(state "$job") == CANCELLED && $(value "$job" Restarts) == 0 ]] || fail "a cancelled job was requeued"
  grep -q 'was cancelled: it is not requeued' "$last_log" || fail "it is not said why the job ends"
  before=$(steps cancelled)
  [[ -d $(printf 'cancelled/checkpoints/step_%08d' "$before") ]] || fail "nothing was saved at step $before"
  say "scancel: saved at step $before, not requeued"
}

part_preempted() {
  local other partition
  for partition in scavenge spare; do
    STAND_AT=7 submit "${eight[@]}" --partition=$partition "${train[@]}" run.directory="$work/$partition"
    reaches $partition 7
    other=$(cd "$work/jobs" && on ctl sbatch --parsable --partition=urgent --nodes=4 --ntasks-per-node=8 --output=/dev/null \
      --wrap 'sleep 3')
    restarted "$job" 1
    ends "$other" COMPLETED
    ends "$job" COMPLETED
    equal_runs unbroken $partition
  done
  say "pre-empted, where Slurm requeues and where it cancels: saved, requeued, resumed, equal"
}

# A site that refuses requeue.
part_array() {
  STAND_AT=7 submit "${eight[@]}" --no-requeue --array=1-4%1 "${train[@]}" run.directory="$work/array"
  last_log=$work/jobs/$job.out
  reaches array 7
  on ctl scancel --batch --signal=USR1 "${job}_1" || true # it is delivered, and called an error: the array has other tasks
  ends "${job}_1" FAILED
  ends "${job}_2" COMPLETED
  equal_runs unbroken array
  sleep 3
  [[ -z $(on ctl squeue --noheader) ]] || fail "tasks of a run that is done wait: $(on ctl squeue --noheader)"
  (($(grep -c '"event":"start"' array/metrics.jsonl) == 2)) || fail "the run was started again after its end"
  say "--array=1-4%1 without requeue: the second task went on, the others were cancelled"
}

# Tasks side by side are runs of their own. The last task to start has the number of the whole array as its own.
part_tasks() {
  local limit task
  cat >tasks.sbatch <<'TASK'
#!/bin/bash
case $SLURM_ARRAY_TASK_ID in
  1) steps=3 ;;
  2) steps=none ;; # the config is refused
  *) steps=1000000 ;;
esac
exec "$RIPSTOP_SLURM/train.sbatch" "$@" "run.directory=task$SLURM_ARRAY_JOB_ID-$SLURM_ARRAY_TASK_ID" "train.steps=$steps" schedule.warmup_steps=0
TASK
  for limit in '' %2; do
    RIPSTOP_SLURM=$work/slurm STAND_AT=7 submit --nodes=1 --ntasks-per-node=2 --cpus-per-task=1 --signal=B:USR1@120 --requeue \
      "--array=1-3$limit" "$work/tasks.sbatch" "${train[@]:1}"
    ends "${job}_1" COMPLETED
    ends "${job}_2" FAILED
    reaches "jobs/task$job-3" 7
    on ctl scancel --batch --signal=USR1 "${job}_3" || true
    restarted "${job}_3" 1
    stand_at
    reaches "jobs/task$job-3" 8
    for task in 1 2; do
      [[ $(value "${job}_$task" Restarts) == 0 ]] || fail "task $task was requeued with task 3"
    done
    [[ $(state "${job}_1") == COMPLETED && $(state "${job}_2") == FAILED ]] || fail "tasks that had ended run again"
    on ctl scancel "$job"
  done
  say "--array=1-3 and 1-3%2: only the task that got USR1 was requeued"
}

# Whatever --export says, ranks have the PATH and the variables of env.sh.
part_environment() {
  local what launcher
  cp -r slurm site
  cat >>site/env.sh <<SITE
export PATH=$work/bin:\$PATH OMP_NUM_THREADS=1 FROM_ENV_SH=yes RIPSTOP_PROGRAM=$work/tells RIPSTOP_LAUNCHER=\${LAUNCHER:-srun}
SITE
  printf '#!/bin/sh\necho "rank with $FROM_ENV_SH"\nexec ripstop "$@"\n' >tells
  chmod -R a+rX site tells
  chmod +x tells
  for launcher in srun mpirun; do
    for what in NONE NIL "LAUNCHER,HOME"; do
      if [[ $launcher == mpirun && $what != LAUNCHER* ]]; then continue; fi
      rm -rf "$work/exported"
      LAUNCHER=$launcher submit --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 --export="$what" "$work/site/train.sbatch" "${train[@]:1}" \
        run.directory="$work/exported" train.steps=2 schedule.warmup_steps=0
      ends "$job" COMPLETED
      (($(grep -c '^rank with yes$' "$last_log") == 4)) || fail "$launcher, --export=$what: not four ranks with env.sh"
    done
  done
  say "--export=NONE, NIL and a list: ranks have what env.sh sets, with srun and mpirun"
}

# A limit that is raised while the job runs.
part_raised_limit() {
  submit --nodes=1 --ntasks-per-node=2 --cpus-per-task=1 --time=1 --signal=B:USR1@1 "${train[@]}" run.directory="$work/raised" \
    train.steps=100000 mesh.tensor=1
  reaches raised 1
  on ctl scontrol update "JobId=$job" TimeLimit=30
  waits_for "the new limit" grep -q 'the limit of the job was raised: the job ends at .* (squeue)' "$last_log"
  reaches raised "$(($(steps raised) + 2))"
  [[ $(value "$job" Restarts) == 0 ]] || fail "the job gave its nodes back"
  ripstop status raised | grep -q '(squeue), the run stops itself' || fail "status does not know the new end"
  on ctl scancel --batch --signal=USR1 "$job"
  restarted "$job" 1
  grep -q 'it stopped [0-9]* s before its time limit; it goes back' "$last_log" || fail "a wrong reason: $(grep requeue.sh "$last_log")"
  on ctl scancel "$job"
  say "a limit that was raised: the run asked for it before it would have stopped"
}

# In a shell of `srun --pty`, whose step holds the processors of the job.
part_in_a_step() {
  local size
  for size in "-N1 -n1 -c4" "-N1 -n1"; do
    rm -rf stepped
    # shellcheck disable=SC2086 # words
    on ctl timeout 600 srun $size bash -c "launch.sh 2 ripstop train config.toml run.directory=stepped train.steps=2 \
      schedule.warmup_steps=0" </dev/null >step.log 2>&1 || fail "in a step of $size: $(tail -n 5 step.log)"
    grep -q '^mesh .*: 2 ranks' step.log || fail "in a step of $size: not 2 ranks"
  done
  say "launch.sh in a step starts its ranks"
}

# A job takes as many nodes as are free: 4, then 1, then 3. The same job, another mesh each time.
part_moldable() {
  local nodes blocker
  STAND_AT=5 submit --nodes=1-4 --cpus-per-task=4 "$work/slurm/train_any_nodes.sbatch" "${train[@]:1}" \
    run.directory="$work/moldable" train.micro_batch_sequences=auto
  reaches moldable 5
  for nodes in 1 3; do
    # Takes the other nodes while the job waits for its turn.
    blocker=$(cd "$work/jobs" && on ctl sbatch --parsable --nodes=$((4 - nodes)) --exclusive --output=/dev/null --wrap 'sleep 600')
    stand_at $((nodes == 1 ? 15 : 25))
    on ctl scancel --batch --signal=USR1 "$job"
    restarted "$job" $((nodes == 1 ? 1 : 2))
    reaches moldable $((nodes == 1 ? 15 : 25))
    on ctl scancel "$blocker"
  done
  stand_at
  ends "$job" COMPLETED
  close_losses unbroken moldable
  grep -q ' nodes  *4 nodes of 8 ranks in all -> 1 node of 2 ranks in all' "$last_log" || fail "4 -> 1 nodes is not said"
  grep -q ' nodes  *1 node of 2 ranks in all -> 3 nodes of 6 ranks in all' "$last_log" || fail "1 -> 3 nodes is not said"
  say "--nodes=1-4 on 4, 1 and 3 nodes: losses within 1e-5 of the unbroken run"
}

part_lost_node() {
  local host
  STAND_AT=13 submit "${eight[@]}" "${train[@]}" run.directory="$work/lost"
  reaches lost 13
  host=$(on ctl scontrol show hostnames "$(value "$job" NodeList)" | tail -n 1)
  cluster node kill "$host"
  restarted "$job" 1
  stand_at
  cluster node up "$host"
  ends "$job" COMPLETED
  equal_runs unbroken lost
  say "$host lost its power: requeued, resumed from step $(grep '"event":"start"' lost/metrics.jsonl | tail -n 1 |
    grep -o '"step":[0-9]*' | head -n 1 | cut -d: -f2), equal to the unbroken run"
}

part_time_limit() {
  submit --nodes=1 --ntasks-per-node=2 --cpus-per-task=1 --time=1 --signal=B:USR1@40 "${train[@]}" \
    run.directory="$work/limit" train.steps=100000 mesh.tensor=1
  restarted "$job" 1
  reaches limit "$(($(steps limit) + 1))"
  on ctl scancel "$job"
  say "the time limit: requeued, and went on"
}

parts=("$@")
if [[ ${#parts[@]} -eq 0 ]]; then
  mapfile -t parts < <(sed -n 's/^\(part_[a-z_]*\)() {$/\1/p' "$source_tree/tests/slurm/cluster_test.sh")
fi
for part in "${parts[@]}"; do "$part"; done
say "done"
