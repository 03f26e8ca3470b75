#!/usr/bin/env bash
# The long form of cluster_test.sh: tables of what was sent, of runs that were interrupted, and of ranks and nodes that were lost.
#   cluster_long.sh RIPSTOP [OPTION...]
#   --part traffic|interrupted|moldable|lost    this table alone; may be given several times
#   --requests N    random SIGUSR1 (default 20)         --limits N     time limits (5)      --requeues N   scontrol requeue (3)
#   --kills N       nodes that lose their power (3)     --cuts N       partitions (2)       --nodes N      moldable starts (10)
#   --times N       of each kind of loss (3)            --rate RATE    of a link in the table of traffic (1gbit)
#                   0 leaves a row out
#   --seed N        of what is random (1)
# Ends with 1 if a table has a row that is not as it should be. KEEP=1 keeps the directory. Takes some 40 minutes on two cores.
set -euo pipefail
usage() {
  sed -n '2,10s/^# \?//p' "${BASH_SOURCE[0]}"
  exit "$1"
}
[[ ${1:-} != --help ]] || usage 0
[[ -x ${1:-} ]] || usage 64 >&2
ripstop=$1
shift
parts=() requests=20 limits=5 requeues=3 kills=3 cuts=2 node_counts=10 times=3 rate=1gbit RANDOM=1
while [[ $# -gt 0 ]]; do
  [[ $# -ge 2 ]] || usage 64 >&2
  case $1 in
    --part) parts+=("$2") ;;
    --requests) requests=$2 ;;
    --limits) limits=$2 ;;
    --requeues) requeues=$2 ;;
    --kills) kills=$2 ;;
    --cuts) cuts=$2 ;;
    --nodes) node_counts=$2 ;;
    --times) times=$2 ;;
    --rate) rate=$2 ;;
    --seed) RANDOM=$2 ;;
    *) usage 64 >&2 ;;
  esac
  shift 2
done
if [[ ${#parts[@]} -eq 0 ]]; then parts=(traffic interrupted moldable lost); fi
# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/cluster/jobs.sh" # sets work, job, last_log, source_tree
: "${work=}" "${job=}" "${last_log=}" "${source_tree:?}"
# In the table of losses the program must notice them before Slurm does, as on most sites.
for part in "${parts[@]}"; do
  if [[ $part == lost ]]; then export RIPSTOP_CLUSTER_TIMEOUT=${RIPSTOP_CLUSTER_TIMEOUT:-40}; fi
done
begin_cluster "$ripstop" 5

small_run 400 10 2 50 1600 8
job_file=$work/slurm/train.sbatch
train=("$work/config.toml" "data.directory=$work/data")
eight=(--nodes=4 --ntasks-per-node=2 --cpus-per-task=1)
bad=0
# row GOOD TEXT...: a line of a table, marked if it is not as it should be
row() {
  local good=$1
  shift
  if [[ $good == yes ]]; then printf '%s\n' "$*"; else
    printf '%s   <-- WRONG\n' "$*"
    bad=1
  fi
}
random() { echo $(($1 + RANDOM % ($2 - $1 + 1))); } # FROM TO
starts() { grep -c '"event":"start"' "$1/metrics.jsonl" || true; }
unbroken() { # once
  [[ -e unbroken/config.toml ]] || launch.sh 8 ripstop train "${train[@]}" run.directory="$work/unbroken" >unbroken.log 2>&1 ||
    fail "$(tail -n 5 unbroken.log)"
}

# ---- traffic: bytes on the wires, and how long compute stood still for them
# field FILE NAME: a number of the run's `start` plan, or of its last step
planned() { grep '"event":"start"' "$1/metrics.jsonl" | grep -o '"traffic_per_step":{[^}]*}' | grep -o "\"$2\":[0-9]*" | cut -d: -f2; }
# steps_from A: sum of KEY over the steps after A, divided by their number
mean_after() {
  grep '"event":"step"' "$1/metrics.jsonl" | awk -v first="$2" -v key="$3" '{
      if (match($0, /"step":[0-9]+/)) step = substr($0, RSTART + 7, RLENGTH - 7)
      if (step + 0 <= first) next
      part = $0; n = split(key, path, "/")
      for (i = 1; i <= n; ++i) part = substr(part, index(part, "\"" path[i] "\":") + length(path[i]) + 3)
      sum += part + 0; ++count } END { printf "%.4f", count ? sum / count : 0 }'
}
sent_by() { cluster net bytes | awk -v node="$1" '$1 == node { print $2 }'; }
measure_traffic() { # NAME TASKS AXIS SHARE OVERRIDE...: SHARE of what a rank sends along AXIS goes to another node
  local name=$1 tasks=$2 axis=$3 share=$4 first=6 last=26 begin end bytes plan wire ratio exposed
  shift 4
  submit --nodes=4 --ntasks-per-node="$tasks" --cpus-per-task=1 "$job_file" "${train[@]}" run.directory="$work/traffic-$name" \
    train.steps=$last train.micro_batch_sequences=auto checkpoint.every_steps=1000 model.hidden_size=256 \
    model.intermediate_size=704 model.num_hidden_layers=4 "$@"
  reaches "traffic-$name" $first 300
  begin=$(sent_by n1) first=$(steps "traffic-$name")
  reaches "traffic-$name" $((last - 1)) 600
  end=$(sent_by n1) last=$(steps "traffic-$name")
  ends "$job" COMPLETED 120
  bytes=$(((end - begin) / (last - first)))
  plan=$(planned "traffic-$name" "$axis")
  wire=$(awk "BEGIN { printf \"%d\", $plan * $tasks * $share }")
  ratio=$(awk "BEGIN { printf \"%.3f\", $bytes / $wire }")
  exposed=$(mean_after "traffic-$name" "$first" "communication_exposed_seconds/$axis")
  row "$(awk "BEGIN { print ($ratio > 0.95 && $ratio < 1.05) ? \"yes\" : \"no\" }")" "$(
    printf '%-28s %-10s %10.2f %10.2f %7s %10.2f %10.2f %12.2f' "$name" "$axis" "$(awk "BEGIN { print $wire / 1e6 }")" \
      "$(awk "BEGIN { print $bytes / 1e6 }")" "$ratio" "$(mean_after "traffic-$name" "$first" step_seconds)" \
      "$(awk "BEGIN { print $wire * 8 / ${link_bits} }")" "$exposed"
  )"
}
table_traffic() {
  case $rate in
    *gbit) link_bits=$(awk "BEGIN { print ${rate%gbit} * 1e9 }") ;;
    *mbit) link_bits=$(awk "BEGIN { print ${rate%mbit} * 1e6 }") ;;
    *) fail "--rate $rate: give mbit or gbit" ;;
  esac
  cluster net rate "$rate"
  printf '\nMegabytes that a node sends in a step over links of %s, by the plan and by the counter of its interface, and seconds of\n' "$rate"
  printf 'a step, of that traffic at the speed of the link, and those that compute stood still for the axis\n'
  printf '%-28s %-10s %10s %10s %7s %10s %10s %12s\n' mesh axis plan counted ratio step link 'stood still'
  measure_traffic fsdp4-tensor2 2 fsdp 1 mesh.fsdp=4
  measure_traffic replicate4-tensor2 2 replicate 1 mesh.replicate=4 mesh.fsdp=1
  measure_traffic fsdp8 2 fsdp 6/7 mesh.tensor=1
  measure_traffic fsdp4 1 fsdp 1 mesh.tensor=1
  measure_traffic tensor4-across-nodes 1 tensor 1 mesh.tensor=4 mesh.allow_tensor_across_nodes=true
  cluster net rate off
}

# ---- interrupted: bit-equal to the unbroken run
result() { # TEXT RUN COUNT [UNBROKEN]: the run against the unbroken one
  local same=yes
  cmp -s <(losses "${4:-unbroken}") <(losses "$2") || same=no
  row $same "$(printf '%-44s %8s %8s   %s' "$1" "$3" "$(starts "$2")" "$([[ $same == yes ]] && echo "equal, bit for bit" || echo different)")"
}
by_requests() {
  local i
  submit "${eight[@]}" "$job_file" "${train[@]}" run.directory="$work/requests"
  for ((i = 1; i <= requests; ++i)); do
    reaches requests $(($(steps requests) + $(random 1 $((160 / requests + 1))))) 240
    sleep "0.$((RANDOM % 10))" # anywhere in a step
    on ctl scancel --batch --signal=USR1 "$job"
    restarted "$job" $i 120
  done
  ends "$job" COMPLETED 600
  result "SIGUSR1 to the script" requests "$requests"
}
by_requeues() {
  local i
  submit "${eight[@]}" "$job_file" "${train[@]}" run.directory="$work/requeues"
  for ((i = 1; i <= requeues; ++i)); do
    reaches requeues $(($(steps requeues) + $(random 20 60))) 240
    on ctl scontrol requeue "$job"
    restarted "$job" $i 120
  done
  ends "$job" COMPLETED 600
  result "scontrol requeue" requeues "$requeues"
}
by_kills() {
  local i from host
  submit "${eight[@]}" "$job_file" "${train[@]}" run.directory="$work/kills"
  for ((i = 1; i <= kills; ++i)); do
    from=$(steps kills)
    reaches kills $((from + $(random 20 60))) 240
    host=n$(random 1 4)
    host=$(on ctl scontrol show hostnames "$(value "$job" NodeList)" | sed -n "${host#n}p")
    cluster node kill "$host"
    restarted "$job" $i 240
    cluster node up "$host"
  done
  ends "$job" COMPLETED 900
  result "a node that lost its power" kills "$kills"
}
by_cuts() {
  local i from host
  # All ranks on the node that is cut off: they go on training beside the new owner, and try to commit. So many steps that
  # they are not done before Slurm gives the node up.
  launch.sh 8 ripstop train "${train[@]}" run.directory="$work/unbroken-long" train.steps=1500 >unbroken.log 2>&1 ||
    fail "$(tail -n 5 unbroken.log)"
  submit --nodes=1 --ntasks-per-node=8 --cpus-per-task=1 "$job_file" "${train[@]}" run.directory="$work/cuts" train.steps=1500
  for ((i = 1; i <= cuts; ++i)); do
    from=$(steps cuts)
    reaches cuts $((from + $(random 20 60))) 240
    host=$(value "$job" BatchHost)
    cluster net cut "$host"
    restarted "$job" $i 240
    for ((from = 0; from < 600 && $(starts cuts) <= i; ++from)); do sleep 0.2; done
    sleep 5
    cluster net join "$host"
  done
  ends "$job" COMPLETED 900
  result "a partition that heals, all ranks in it" cuts "$cuts" unbroken-long
  [[ -z $(on "$host" pgrep -x ripstop || true) ]] || row no "ripstop runs on on $host"
}
table_interrupted() {
  unbroken
  printf '\n%-44s %8s %8s   %s\n' "400 steps on 4 nodes x 2 ranks, interrupted by" times starts "losses against the unbroken run"
  if ((requests > 0)); then by_requests; fi
  if ((requeues > 0)); then by_requeues; fi
  if ((kills > 0)); then by_kills; fi
  if ((cuts > 0)); then by_cuts; fi
  if ((limits > 0)); then time_limits; fi
}
# A minute is Slurm's shortest limit. The run is stopped when it has met enough of them, and compared up to there.
time_limits() {
  local i last same=yes
  submit --nodes=1 --ntasks-per-node=2 --cpus-per-task=1 --time=1 --signal=B:USR1@30 "$job_file" "${train[@]}" \
    run.directory="$work/limits" mesh.tensor=1 train.steps=1000000 train.micro_batch_sequences=1 checkpoint.every_steps=1000
  for ((i = 1; i <= limits; ++i)); do restarted "$job" $i 180; done
  reaches limits $(($(steps limits) + 5)) 240
  on ctl scancel "$job"
  ends "$job" CANCELLED 60
  last=$(steps limits)
  launch.sh 2 ripstop train "${train[@]}" run.directory="$work/without-limits" mesh.tensor=1 train.steps=1000000 \
    train.micro_batch_sequences=1 checkpoint.every_steps=1000000 >limits.log 2>&1 &
  i=$!
  reaches without-limits "$last" 900
  kill -USR1 $i
  wait $i || true
  cmp -s <(losses limits) <(losses without-limits | head -n "$last") || same=no
  row $same "$(printf '%-44s %8s %8s   %s' "time limits (2 ranks, $last steps)" "$limits" "$(starts limits)" \
    "$([[ $same == yes ]] && echo "equal, bit for bit" || echo different)")"
}

# ---- moldable: as many nodes as are free
table_moldable() {
  local i nodes blocker='' line before after
  unbroken
  printf '\n--nodes=1-5, a requeue each time: nodes, and what the header says\n'
  submit --nodes=1-5 --cpus-per-task=4 "$work/slurm/train_any_nodes.sbatch" "${train[@]}" \
    run.directory="$work/moldable" train.micro_batch_sequences=auto
  for ((i = 1; i <= node_counts; ++i)); do
    reaches moldable $(($(steps moldable) + $(random 5 25))) 300
    nodes=$(random 1 5)
    if [[ -n $blocker ]]; then on ctl scancel "$blocker"; fi
    blocker=
    if ((nodes < 5)); then
      blocker=$(cd "$work/jobs" && on ctl sbatch --parsable --nodes=$((5 - nodes)) --exclusive --output=/dev/null --wrap 'sleep 6000')
    fi
    on ctl scancel --batch --signal=USR1 "$job"
    restarted "$job" $i 120
    for ((line = 0; line < 600 && $(starts moldable) <= i; ++line)); do sleep 0.2; done
    before=$(grep '"event":"end"' moldable/metrics.jsonl | tail -n 1 | grep -o '"step":[0-9]*' | head -n 1 | cut -d: -f2)
    after=$(grep '"event":"start"' moldable/metrics.jsonl | tail -n 1 | grep -o '"step":[0-9]*' | head -n 1 | cut -d: -f2)
    row "$([[ $before == "$after" && $(value "$job" NumNodes) == "$nodes" ]] && echo yes || echo no)" \
      "$(printf '%2d nodes from step %-4s %s' "$nodes" "$after" "$(grep '^  speed ' "$last_log" | tail -n 1)")"
  done
  if [[ -n $blocker ]]; then on ctl scancel "$blocker"; fi
  ends "$job" COMPLETED 900
  # Each step of both runs has the same sequences: as many tokens, and the same loss but for rounding.
  tokens() { grep '"event":"step"' "$1/metrics.jsonl" | grep -o '"step":[0-9]*,.*"tokens":[0-9]*' | sed 's/,.*:/ /'; }
  row "$(cmp -s <(tokens unbroken) <(tokens moldable) && echo yes || echo no)" "tokens of each of the 400 steps: those of the unbroken run"
  paste -d' ' <(losses unbroken) <(losses moldable) | awk '
    { d = ($2 - $4) / $2; if (d < 0) d = -d; if (NR <= 50 && d > head) head = d; if (d > worst) worst = d }
    END { print head, worst }' >apart
  read -r before after <apart
  row "$(awk "BEGIN { print $before <= 1e-5 ? \"yes\" : \"no\" }")" \
    "largest difference of a loss: $before of it in the first 50 steps, $after in all 400"
}

# ---- lost: the time until all ranks have ended, and what they say
ranks_left() {
  local node
  for node in $(on ctl scontrol show hostnames "$1"); do on "$node" pgrep -x ripstop 2>/dev/null || true; done | wc -l
}
lose() { # KIND
  local kind=$1 hosts host victim begin seconds left message
  submit "${eight[@]}" --no-requeue "$job_file" "${train[@]}" run.directory="$work/lost" train.steps=100000 checkpoint.every_steps=100000
  reaches lost $(($(steps lost) + $(random 20 60))) 300
  hosts=$(value "$job" NodeList)
  host=$(on ctl scontrol show hostnames "$hosts" | sed -n "$(random 2 4)p")
  victim=$(on "$host" pgrep -x -o ripstop)
  begin=$(date +%s%N)
  case $kind in
    "kill -9 of a rank") on "$host" kill -KILL "$victim" ;;
    "SIGSTOP of a rank") on "$host" kill -STOP "$victim" ;;
    "a node without power") cluster node kill "$host" ;;
    "a cable pulled") cluster net cut "$host" ;;
  esac
  for ((left = 1; left > 0 && ($(date +%s%N) - begin) / 1000000000 < 300; )); do
    left=$(ranks_left "$hosts")
    sleep 0.2
  done
  seconds=$(awk "BEGIN { printf \"%.1f\", ($(date +%s%N) - $begin) / 1e9 }")
  message=$(grep -a -m 1 'FATAL' "$last_log" | cut -c1-170) || true
  row "$([[ $left == 0 ]] && echo yes || echo no)" "$(printf '%-22s %-4s %8s s  %s' "$kind" "$host" "$seconds" "${message:-(no message)}")"
  case $kind in
    "a node without power") cluster node up "$host" ;;
    "a cable pulled") cluster net join "$host" ;;
  esac
  on ctl scancel "$job" 2>/dev/null || true
  for ((left = 0; left < 300; ++left)); do # until all nodes are back
    if (($(on ctl sinfo -h -N -p main -t idle -o %N | wc -l) == 5)); then break; fi
    sleep 0.2
  done
  rm -rf lost
}
table_lost() {
  local kind i
  printf '\nlost, while 8 ranks trained on 4 nodes: seconds until no rank was left on any node, and the first FATAL line\n'
  for kind in "kill -9 of a rank" "SIGSTOP of a rank" "a node without power" "a cable pulled"; do
    for ((i = 0; i < times; ++i)); do lose "$kind"; done
  done
}

for part in "${parts[@]}"; do
  case $part in
    traffic | interrupted | moldable | lost) "table_$part" ;;
    *) fail "there is no part '$part': traffic, interrupted, moldable, lost" ;;
  esac
done
say "done"
exit $bad
