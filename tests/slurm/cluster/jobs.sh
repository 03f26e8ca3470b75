#!/usr/bin/env bash
# For tests on the simulated cluster; sourced. Starts it in a directory of its own, submits jobs, and looks at runs.
#   begin_cluster RIPSTOP NODES     sets $work, the directory that all nodes share; ends the test with 77 if there can be none
source_tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
cluster() { "$source_tree/tests/slurm/cluster/cluster.sh" "$@"; }
on() { cluster on "$@"; }

say() { printf '%4d s  %s\n' "$SECONDS" "$*"; }
fail() {
  echo "FAILED: $*" >&2
  if [[ -n ${last_log:-} && -e $last_log ]]; then tail -n 25 "$last_log" >&2; fi
  exit 1
}

begin_cluster() {
  local reason
  if ! reason=$(cluster can); then
    echo "skipped: $reason"
    exit 77
  fi
  # Not below TMPDIR, which a job may have to itself: the path of a socket is short.
  work=$(mktemp -d /tmp/ripstop-slurm-XXXXXX)
  export RIPSTOP_CLUSTER=$work/cluster
  mkdir -p "$work"/{cluster,bin}
  chmod 755 "$work" "$work/cluster"
  trap 'end_cluster $?' EXIT
  trap 'exit 130' INT TERM HUP
  # The program is installed, and ordinary users cannot read the source tree, as on clusters.
  mkdir "$work"/{program,stand}
  cp "$1" "$(dirname "$1")/tests/train/libhanging_disk.so" "$work/program"
  cat >"$work/bin/ripstop" <<RANK
#!/bin/sh
LD_PRELOAD=$work/program/libhanging_disk.so HANGING_DISK=$work/stand exec $work/program/ripstop "\$@"
RANK
  chmod +x "$work/bin/ripstop"
  cp -r "$source_tree/slurm" "$work/"
  chmod -R a+rX "$work"/{slurm,bin,program,stand}
  cd "$work" || exit
  unset "${!SLURM_@}" "${!RIPSTOP_LAUNCHER@}" "${!OMPI_@}"
  unset RIPSTOP_PROGRAM RIPSTOP_RANKS RIPSTOP_TERMINAL
  export PATH=$work/bin:$work/slurm:$PATH OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
  start_cluster "$2"
  say "a cluster of $2 nodes, $(on ctl sinfo --version)"
}
start_cluster() { # NODES
  cluster up "$1" --while $$ >"$work/up.log" 2>&1 || fail "the cluster does not start: $(cat "$work/up.log")"
  mkdir -p "$work/jobs"
  chown 6001 "$work/jobs"
  chmod 1777 "$work/jobs"
}
# another_cluster NODES NAME: ends the cluster and starts one. Slurm numbers jobs from 1 again, so the logs of those that were are
# moved to jobs-NAME.
another_cluster() {
  cluster down
  rm -rf "$work/jobs-$2"
  mv "$work/jobs" "$work/jobs-$2"
  start_cluster "$1"
}
end_cluster() {
  trap - EXIT INT TERM HUP
  cd /
  if [[ -n ${KEEP:-} ]]; then
    mkdir -p "$work/logs"
    cp "$work"/cluster/{ctl,n*}/*.log "$work/logs" 2>/dev/null || true
    echo "kept: $work"
  fi
  cluster down || true
  [[ -n ${KEEP:-} ]] || rm -rf "$work"
  exit "$1"
}

# small_run STEPS SAVE_EVERY KEEP LOG_EVERY EXAMPLES SEQUENCES: config.toml and the data set of a run on tensor groups of two,
# with so many sequences a step.
small_run() {
  cat >config.toml <<CONFIG
[run]
seed = 1
device = "cpu"
[model]
hidden_size = 64
intermediate_size = 192
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 4
max_position_embeddings = 256
[mesh]
tensor = 2
[data]
directory = "data"
sequence_length = 128
loss_on = "all"
[train]
steps = $1
global_batch_sequences = $6
micro_batch_sequences = 2
[optimizer]
learning_rate = 1e-3
[schedule]
warmup_steps = 5
[precision]
compute = "float32"
[checkpoint]
every_steps = $2
keep = $3
[log]
every_steps = $4
CONFIG
  ripstop prepare --source synthetic --examples "$5" --seed 3 --vocab-size 400 --output data >prepare.log 2>&1 ||
    fail "prepare: $(<prepare.log)"
}

# stand_at [STEP...]: a run that has logged one of these steps stands still until it gets SIGUSR1, or until stand_at is called
stand_at() {
  if (($# > 0)); then
    printf '"event":"step","step":%s,\n' "$@" >"$work/stand.new"
    mv "$work/stand.new" "$work/stand/metrics.jsonl" # at once: a run may stand
  else
    rm -f "$work/stand/metrics.jsonl"
  fi
}
# [STAND_AT="STEP..."] submit [--user] OPTION... : sbatch from $work/jobs; sets $job and $last_log, the log of the job
submit() {
  local as=()
  # shellcheck disable=SC2086 # words
  stand_at ${STAND_AT:-}
  if [[ $1 == --user ]]; then as=(--user) && shift; fi
  job=$(cd "$work/jobs" && on ${as[@]+"${as[@]}"} ctl sbatch --parsable --output=%A.out "$@") || fail "sbatch $*"
  last_log=$work/jobs/$job.out
}
show() { on ctl scontrol -o show job "$1" 2>/dev/null || true; }
# value JOB FIELD
value() { show "$1" | grep -o " $2=[^ ]*" | head -n 1 | cut -d= -f2- || true; }
state() { value "$1" JobState; }
# Seconds after which a wait fails: more than a busy machine needs.
patience=900
# waits_for WHAT COMMAND...: until COMMAND succeeds
waits_for() {
  local end=$((SECONDS + patience)) what=$1
  shift
  until "$@" 2>/dev/null; do
    ((SECONDS < end)) || fail "$what: not after $patience s"
    sleep 0.1
  done
}
# ends JOB STATE: waits until the job has ended, and fails unless it is in STATE, a pattern
ends() {
  local end=$((SECONDS + patience)) now=''
  while ((SECONDS < end)); do
    now=$(state "$1")
    case $now in
      COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL | PREEMPTED | OUT_OF_MEMORY)
        # shellcheck disable=SC2053 # a pattern
        [[ $now == $2 ]] || fail "job $1 is $now, expected $2"
        return
        ;;
    esac
    sleep 0.3
  done
  fail "job $1 is $now after $patience s, expected $2"
}
# restarted JOB COUNT: waits until Slurm has put the job back into the queue so often
restarted() {
  local end=$((SECONDS + patience))
  while ((SECONDS < end)); do
    if (($(value "$1" Restarts) >= $2)); then return; fi
    case $(state "$1") in COMPLETED | FAILED | CANCELLED | TIMEOUT) break ;; esac
    sleep 0.3
  done
  fail "job $1 was not requeued: $(state "$1"), restarts $(value "$1" Restarts)"
}

# steps RUN: the last step of its log; 0 if there is none
steps() {
  local last
  last=$(grep '"event":"step"' "$1/metrics.jsonl" 2>/dev/null | tail -n 1 | grep -o '"step":[0-9]*' | head -n 1)
  echo "${last##*:}" | grep . || echo 0
}
# reaches RUN STEP
reaches() { waits_for "step $2 of $1" is_at "$@"; }
is_at() { (($(steps "$1") >= $2)); }
# losses RUN: "step loss" of every step, as written
losses() { sed -n 's/.*"event":"step".*"step":\([0-9]*\),.*"loss":\([^,}]*\).*/\1 \2/p' "$1/metrics.jsonl"; }
# equal_runs A B: the losses of all steps, and the bytes of the last checkpoint's weights and moments
equal_runs() {
  local newest file
  cmp -s <(losses "$1") <(losses "$2") ||
    fail "the losses of $2 differ from those of $1: $(diff <(losses "$1") <(losses "$2") | head -n 3 | paste -sd' ')"
  newest=$(find "$1/checkpoints" -maxdepth 1 -name 'step_*' | sort | tail -n 1)
  for file in "$newest"/rank_*.h5; do
    cmp -s "$file" "$2/checkpoints/${newest##*/}/${file##*/}" || fail "${file##*/} of $2 differs from that of $1"
  done
}
# close_losses A B: equal steps, and losses that differ by at most 1e-5 of themselves, as on another mesh in float32
close_losses() {
  paste -d' ' <(losses "$1") <(losses "$2") | awk '
    NF != 4 || $1 != $3 { print "step " $1 " beside step " $3; exit }
    { d = ($2 - $4) / $2; if (d < 0) d = -d; if (d > 1e-5) { print "step " $1 ": " $2 " and " $4; exit } }' >"$work/apart"
  [[ ! -s $work/apart ]] || fail "$1 and $2: $(<"$work/apart")"
}
