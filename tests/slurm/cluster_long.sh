#!/usr/bin/env bash
# The long form of cluster_test.sh: tables of what was sent, of runs that were interrupted, and of ranks and nodes that were lost.
#   cluster_long.sh RIPSTOP [OPTION...]      without an option: all parts, about an hour on two cores
#   --part NAME     this part alone, on a cluster of its own; may be given several times. traffic; interrupted, which is requests,
#                   requeues, kills, cuts and limits; moldable; lost, which is killed, stopped, power and cable
#   --requests N    random SIGUSR1 (default 20)         --limits N     time limits (5)      --requeues N   scontrol requeue (3)
#   --kills N       nodes that lose their power (3)     --cuts N       partitions (2)       --nodes N      moldable starts (10)
#   --times N       of each kind of loss (3)            --rate RATE    of a link in the table of traffic (1gbit)
#   --seed N        of what is random (1), in each part anew
#   --without-prefetch PROGRAM    rows of traffic for this build of ripstop, too: its ShardedTransformer::enter() is without the
#                                 line that gathers the next unit
#   --reload PROGRAM              the program of reload.cpp (default: where the build of RIPSTOP has it)
# Prints each row when it is there, and all of them at the end. A part that fails is a row, and the others go on. Ends with 1 if a
# row is not as it should be. KEEP=1 keeps the directory.
set -euo pipefail
usage() {
  sed -n '2,15s/^# \?//p' "${BASH_SOURCE[0]}"
  exit "$1"
}
[[ ${1:-} != --help ]] || usage 0
[[ -x ${1:-} ]] || usage 64 >&2
ripstop=$1
shift
parts=() requests=20 limits=5 requeues=3 kills=3 cuts=2 node_counts=10 times=3 rate=1gbit seed=1 without_prefetch=''
reload=$(dirname "$ripstop")/tests/slurm/reload
while [[ $# -gt 0 ]]; do
  [[ $# -ge 2 ]] || usage 64 >&2
  case $1 in
    --part)
      case $2 in
        interrupted) parts+=(requests requeues kills cuts limits) ;;
        lost) parts+=(killed stopped power cable) ;;
        traffic | requests | requeues | kills | cuts | limits | moldable | killed | stopped | power | cable) parts+=("$2") ;;
        *) usage 64 >&2 ;;
      esac
      ;;
    --requests) requests=$2 ;;
    --limits) limits=$2 ;;
    --requeues) requeues=$2 ;;
    --kills) kills=$2 ;;
    --cuts) cuts=$2 ;;
    --nodes) node_counts=$2 ;;
    --times) times=$2 ;;
    --rate) rate=$2 ;;
    --seed) seed=$2 ;;
    --without-prefetch) without_prefetch=$(realpath "$2") ;;
    --reload) reload=$2 ;;
    *) usage 64 >&2 ;;
  esac
  shift 2
done
if [[ ${#parts[@]} -eq 0 ]]; then parts=(traffic requests requeues kills cuts limits moldable killed stopped power cable); fi
if [[ " ${parts[*]} " == *" moldable "* ]]; then
  if [[ ! -x $reload ]]; then
    echo "no $reload: build the target \`reload\`, or give --reload PROGRAM" >&2
    exit 64
  fi
  reload=$(realpath "$reload")
fi
case $rate in
  *gbit) link_bits=$(awk "BEGIN { print ${rate%gbit} * 1e9 }") ;;
  *mbit) link_bits=$(awk "BEGIN { print ${rate%mbit} * 1e6 }") ;;
  *) usage 64 >&2 ;;
esac
# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/cluster/jobs.sh" # sets work, job, last_log, source_tree
: "${work=}" "${job=}" "${last_log=}" "${source_tree:?}"
begin_cluster "$ripstop" 5
if [[ -n $without_prefetch ]]; then cp "$without_prefetch" "$work/bin/ripstop-without-prefetch"; fi

job_file=$work/slurm/train.sbatch
train=("$work/config.toml" "data.directory=$work/data")
eight=(--nodes=4 --ntasks-per-node=2 --cpus-per-task=1)
total=500 total_cuts=900 # steps
# line TEXT: of the table, which is printed again at the end
line() { printf '%s\n' "$*" | tee -a "$work/table"; }
# row GOOD TEXT: a line that is marked if it is not as it should be
row() { if [[ $1 == yes ]]; then line "$2"; else line "$2 **WRONG**"; fi; }
# draw FROM TO: a random number, to $drawn
draw() { drawn=$(($1 + RANDOM % ($2 - $1 + 1))); }
starts() { grep -c '"event":"start"' "$1/metrics.jsonl" || true; }

# Steps must be long beside what passes until an interruption takes effect, whatever the machine: some 0.3 s.
choose_sequences() {
  local seconds
  small_run 12 1000 2 50 1600 32
  launch.sh 8 ripstop train config.toml run.directory="$work/probe" >probe.log 2>&1 || fail "$(tail -n 5 probe.log)"
  seconds=$(mean_after probe 4 step_seconds)
  sequences=$(awk "BEGIN { n = 8 * int(0.3 / ($seconds / 32) / 8 + 0.5); print (n < 8 ? 8 : n > 1024 ? 1024 : n) }")
  rm -r data probe
  small_run "$total" 10 2 50 1600 "$sequences"
  say "a step of 32 sequences takes $seconds s here, so steps have $sequences"
}
# mean_after RUN STEP KEY: the mean of KEY over the steps after STEP
mean_after() {
  grep '"event":"step"' "$1/metrics.jsonl" | awk -v first="$2" -v key="$3" '{
      if (match($0, /"step":[0-9]+/)) step = substr($0, RSTART + 7, RLENGTH - 7)
      if (step + 0 <= first) next
      part = $0; n = split(key, path, "/")
      for (i = 1; i <= n; ++i) part = substr(part, index(part, "\"" path[i] "\":") + length(path[i]) + 3)
      sum += part + 0; ++count } END { printf "%.4f", count ? sum / count : 0 }'
}

# ---- traffic: bytes on the wires, and how long compute stood still for them
# planned RUN AXIS: bytes that a rank sends in a step, of the run's `start` event
planned() { grep '"event":"start"' "$1/metrics.jsonl" | grep -o '"traffic_per_step":{[^}]*}' | grep -o "\"$2\":[0-9]*" | cut -d: -f2; }
# sent RUN: the bytes that n1 has sent, to $sent, and the step that has just ended, to $step
sent() {
  while
    step=$(steps "$1")
    sent=$(cluster net bytes | awk '$1 == "n1" { print $2 }')
    (($(steps "$1") != step))
  do :; done
}
measure_traffic() { # NAME TASKS AXIS SHARE OVERRIDE...: SHARE of what a rank sends along AXIS goes to another node
  local name=$1 tasks=$2 axis=$3 share=$4 begin first bytes wire ratio step sent
  local run=traffic-${name// /-}
  shift 4
  submit --nodes=4 --ntasks-per-node="$tasks" --cpus-per-task=1 "$job_file" "${train[@]}" run.directory="$work/$run" \
    train.steps=60 train.micro_batch_sequences=auto train.global_batch_sequences=8 checkpoint.every_steps=1000 \
    model.hidden_size=256 model.intermediate_size=704 model.num_hidden_layers=4 "$@"
  reaches "$run" 8
  sent "$run"
  begin=$sent first=$step
  reaches "$run" 50
  sent "$run"
  bytes=$(((sent - begin) / (step - first)))
  ends "$job" COMPLETED
  wire=$(awk "BEGIN { printf \"%d\", $(planned "$run" "$axis") * $tasks * $share }")
  ratio=$(awk "BEGIN { printf \"%.3f\", $bytes / $wire }")
  row "$(awk "BEGIN { print ($ratio > 0.95 && $ratio < 1.05) ? \"yes\" : \"no\" }")" "$(
    printf '| %s | %s | %.2f | %.2f | %s | %.2f | %.2f | %.2f |' "$name" "$axis" "$(awk "BEGIN { print $wire / 1e6 }")" \
      "$(awk "BEGIN { print $bytes / 1e6 }")" "$ratio" "$(mean_after "$run" "$first" step_seconds)" \
      "$(awk "BEGIN { print $wire * 8 / $link_bits }")" "$(mean_after "$run" "$first" "communication_exposed_seconds/$axis")"
  )"
}
part_traffic() {
  cluster net rate "$rate"
  measure_traffic "fsdp 4 x tensor 2, 2 ranks" 2 fsdp 1 mesh.fsdp=4
  measure_traffic "replicate 4 x tensor 2, 2 ranks" 2 replicate 1 mesh.replicate=4 mesh.fsdp=1
  measure_traffic "fsdp 8, 2 ranks" 2 fsdp 6/7 mesh.tensor=1
  measure_traffic "fsdp 4, 1 rank" 1 fsdp 1 mesh.tensor=1
  measure_traffic "tensor 4 across nodes, 1 rank" 1 tensor 1 mesh.tensor=4 mesh.allow_tensor_across_nodes=true
  if [[ -n $without_prefetch ]]; then
    export RIPSTOP_PROGRAM=$work/bin/ripstop-without-prefetch
    measure_traffic "fsdp 4 x tensor 2, 2 ranks, no prefetch" 2 fsdp 1 mesh.fsdp=4
    measure_traffic "fsdp 8, 2 ranks, no prefetch" 2 fsdp 6/7 mesh.tensor=1
    measure_traffic "fsdp 4, 1 rank, no prefetch" 1 fsdp 1 mesh.tensor=1
  fi
}

# ---- interrupted: bit-equal to the unbroken run
unbroken() { # NAME STEPS: once
  [[ ! -e $1.done ]] || return 0
  rm -rf "$1"
  launch.sh 8 ripstop train "${train[@]}" run.directory="$work/$1" train.steps="$2" >"$1.log" 2>&1 || fail "$(tail -n 5 "$1.log")"
  touch "$1.done"
}
# interrupts RUN LEFT STEPS LAG: waits for a random step of RUN that leaves room for all interruptions that are LEFT, this one
# among them, if each takes effect within LAG steps
interrupts() {
  local now room
  now=$(steps "$1")
  room=$((($3 - now) / $2 - $4))
  draw 1 $((room > 1 ? room : 1))
  reaches "$1" $((now + drawn))
}
# result TEXT RUN COUNT [UNBROKEN]: losses, weights and moments of the run against those of the unbroken one
result() {
  local good=yes told
  told=$(equal_runs "${4:-unbroken}" "$2" 2>&1 && echo "equal, bit for bit") || good=no
  row $good "| $1 | $3 | $(starts "$2") | $(head -n 1 <<<"$told") |"
}
part_requests() {
  local i
  unbroken unbroken $total
  submit "${eight[@]}" "$job_file" "${train[@]}" run.directory="$work/requests"
  for ((i = 1; i <= requests; ++i)); do
    interrupts requests $((requests - i + 1)) $total 8
    sleep "0.$((RANDOM % 10))" # anywhere in a step
    on ctl scancel --batch --signal=USR1 "$job"
    restarted "$job" $i
  done
  ends "$job" COMPLETED
  result "SIGUSR1 to the script" requests "$requests"
}
part_requeues() {
  local i
  unbroken unbroken $total
  submit "${eight[@]}" "$job_file" "${train[@]}" run.directory="$work/requeues"
  for ((i = 1; i <= requeues; ++i)); do
    interrupts requeues $((requeues - i + 1)) $total 20
    on ctl scontrol requeue "$job"
    restarted "$job" $i
  done
  ends "$job" COMPLETED
  result "scontrol requeue" requeues "$requeues"
}
part_kills() {
  local i host
  unbroken unbroken $total
  submit "${eight[@]}" "$job_file" "${train[@]}" run.directory="$work/kills"
  for ((i = 1; i <= kills; ++i)); do
    interrupts kills $((kills - i + 1)) $total 20
    draw 1 4
    host=$(on ctl scontrol show hostnames "$(value "$job" NodeList)" | sed -n "${drawn}p")
    cluster node kill "$host"
    restarted "$job" $i
    cluster node up "$host"
  done
  ends "$job" COMPLETED
  result "a node that lost its power" kills "$kills"
}
part_cuts() {
  local i j host
  # All ranks on the node that is cut off: they go on training beside the new owner, and try to commit. So many steps that
  # they are not done before Slurm gives the node up, which takes less than a minute.
  unbroken unbroken-cuts $total_cuts
  submit --nodes=1 --ntasks-per-node=8 --cpus-per-task=1 "$job_file" "${train[@]}" run.directory="$work/cuts" train.steps=$total_cuts
  for ((i = 1; i <= cuts; ++i)); do
    interrupts cuts $((cuts - i + 1)) $total_cuts 200
    host=$(value "$job" BatchHost)
    cluster net cut "$host"
    restarted "$job" $i
    for ((j = 0; j < 600 && $(starts cuts) <= i; ++j)); do sleep 0.2; done
    sleep 5
    cluster net join "$host"
  done
  ends "$job" COMPLETED
  result "a partition that heals, all ranks in it" cuts "$cuts" unbroken-cuts
  [[ -z $(on "$host" pgrep -x ripstop || true) ]] || row no "| ripstop runs on on $host |"
}
# A minute is Slurm's shortest limit. The run is stopped when it has met enough of them, and compared up to there.
part_limits() {
  local i last pid same=yes told="equal, bit for bit"
  submit --nodes=1 --ntasks-per-node=2 --cpus-per-task=1 --time=1 --signal=B:USR1@30 "$job_file" "${train[@]}" \
    run.directory="$work/limits" mesh.tensor=1 train.steps=1000000 train.micro_batch_sequences=1 checkpoint.every_steps=1000
  for ((i = 1; i <= limits; ++i)); do restarted "$job" $i; done
  reaches limits $(($(steps limits) + 5))
  on ctl scancel "$job"
  ends "$job" CANCELLED
  last=$(steps limits)
  launch.sh 2 ripstop train "${train[@]}" run.directory="$work/without-limits" mesh.tensor=1 train.steps=1000000 \
    train.micro_batch_sequences=1 checkpoint.every_steps=1000000 >limits.log 2>&1 &
  pid=$!
  # shellcheck disable=SC2064 # this process
  trap "kill -USR1 $pid 2>/dev/null" EXIT
  reaches without-limits "$last"
  kill -USR1 $pid
  wait $pid || true
  trap - EXIT
  cmp -s <(losses limits) <(losses without-limits | head -n "$last") || same=no told="different losses"
  row $same "| time limits (2 ranks, $last steps) | $limits | $(starts limits) | $told |"
}

# ---- moldable: as many nodes as are free
# loads_exactly RUN STEP: whether the mesh of the run's last start loads exactly what the checkpoint of STEP holds
loads_exactly() {
  local axis mesh axes=()
  mesh=$(grep '"event":"start"' "$1/metrics.jsonl" | tail -n 1 | grep -o '"mesh":{[^}]*}')
  for axis in replicate fsdp tensor; do axes+=("$(grep -o "\"$axis\":[0-9]*" <<<"$mesh" | cut -d: -f2)"); done
  "$reload" "$1/checkpoints/$(printf 'step_%08d' "$2")" "${axes[@]}"
}
part_moldable() {
  local i j blocker='' before after exactly
  unbroken unbroken $total
  # All checkpoints are kept: loads_exactly reads one while the run goes on.
  submit --nodes=1-5 --cpus-per-task=4 "$work/slurm/train_any_nodes.sbatch" "${train[@]}" \
    run.directory="$work/moldable" train.micro_batch_sequences=auto checkpoint.keep=1000
  for ((i = 1; i <= node_counts; ++i)); do
    interrupts moldable $((node_counts - i + 1)) $total 8
    draw 1 5
    if [[ -n $blocker ]]; then on ctl scancel "$blocker"; fi
    blocker=
    if ((drawn < 5)); then
      blocker=$(cd "$work/jobs" && on ctl sbatch --parsable --nodes=$((5 - drawn)) --exclusive --output=/dev/null --wrap 'sleep 6000')
    fi
    on ctl scancel --batch --signal=USR1 "$job"
    restarted "$job" $i
    for ((j = 0; j < 600 && $(starts moldable) <= i; ++j)); do sleep 0.2; done
    before=$(grep '"event":"end"' moldable/metrics.jsonl | tail -n 1 | grep -o '"step":[0-9]*' | head -n 1 | cut -d: -f2)
    after=$(grep '"event":"start"' moldable/metrics.jsonl | tail -n 1 | grep -o '"step":[0-9]*' | head -n 1 | cut -d: -f2)
    exactly=$(loads_exactly moldable "$after" 2>&1 && echo "equal, bit for bit") || true
    row "$([[ $before == "$after" && $(value "$job" NumNodes) == "$drawn" && $exactly == equal* ]] && echo yes || echo no)" \
      "| $(value "$job" NumNodes) | $after | $exactly | $(grep '^  speed ' "$last_log" | tail -n 1 | sed 's/^  speed *//') |"
  done
  if [[ -n $blocker ]]; then on ctl scancel "$blocker"; fi
  ends "$job" COMPLETED
  # Each step of both runs has the same sequences: as many tokens, and the same loss but for rounding.
  tokens() { grep '"event":"step"' "$1/metrics.jsonl" | grep -o '"step":[0-9]*,.*"tokens":[0-9]*' | sed 's/,.*:/ /'; }
  row "$(cmp -s <(tokens unbroken) <(tokens moldable) && echo yes || echo no)" \
    "| | | | tokens of each of the $total steps: those of the unbroken run |"
  paste -d' ' <(losses unbroken) <(losses moldable) | awk '
    { d = ($2 - $4) / $2; if (d < 0) d = -d; if (NR <= 50 && d > head) head = d; if (d > worst) worst = d }
    END { print head, worst }' >apart
  read -r before after <apart
  row "$(awk "BEGIN { print $before <= 1e-5 ? \"yes\" : \"no\" }")" \
    "| | | | largest difference of a loss: $before of it in the first 50 steps, $after in all |"
}

# ---- lost: the time until all ranks have ended, and what they say
ranks_left() {
  local node
  for node in $(on ctl scontrol show hostnames "$1"); do on "$node" pgrep -x ripstop 2>/dev/null || true; done | wc -l
}
# all_idle: waits until every node is back
all_idle() {
  local end=$((SECONDS + 180))
  until (($(on ctl sinfo -h -N -p main -t idle -o %N | wc -l) == 5)); do
    ((SECONDS < end)) || fail "a node does not come back: $(on ctl sinfo -h -N -p main -o '%N %t' | paste -sd' ')"
    sleep 0.3
  done
}
# lose TEXT LIMIT CODES COMMAND...: COMMAND with a node and a rank's process there; all ranks must have ended after LIMIT seconds
lose() {
  local text=$1 limit=$2 codes=$3 hosts host victim begin seconds left message code good=yes
  shift 3
  submit "${eight[@]}" --no-requeue "$job_file" "${train[@]}" run.directory="$work/lost" train.steps=100000 checkpoint.every_steps=100000
  draw 20 60
  reaches lost "$drawn"
  hosts=$(value "$job" NodeList)
  draw 2 4 # the first one has the job's script
  host=$(on ctl scontrol show hostnames "$hosts" | sed -n "${drawn}p")
  victim=$(on "$host" pgrep -x -o ripstop)
  begin=$(date +%s%N)
  "$@" "$host" "$victim"
  for ((left = 1; left > 0 && ($(date +%s%N) - begin) / 1000000000 < 300; )); do
    left=$(ranks_left "$hosts")
    sleep 0.1
  done
  seconds=$(awk "BEGIN { printf \"%.1f\", ($(date +%s%N) - $begin) / 1e9 }")
  if [[ $left != 0 ]] || awk "BEGIN { exit !($seconds > $limit) }"; then good=no; fi
  on "$host" true 2>/dev/null || cluster node up "$host"
  cluster net join "$host"
  ends "$job" '*'
  code=$(value "$job" ExitCode)
  code=${code%:*}
  [[ " $codes " == *" $code "* ]] || good=no
  # A killed rank says nothing, and srun ends the others at once.
  message=$(grep -a -m 1 'FATAL' "$last_log" || grep -a -m 1 -i 'killed' "$last_log") || true
  [[ $message == *"$host"* ]] || good=no
  row $good "| $text | $host | $seconds | $code | ${message:0:230} |"
  all_idle
  rm -rf lost
}
kill_rank() { on "$1" kill -KILL "$2"; }
stop_rank() { on "$1" kill -STOP "$2"; }
kill_node() { cluster node kill "$1"; }
cut_node() { cluster net cut "$1"; }
# The deadline is 60 s and all must have ended 10 s later; a second is for this script. A step of some tenths of a second makes it
# no longer.
part_killed() { for ((i = 0; i < times; ++i)); do lose "kill -9 of a rank" 16 "137 76" kill_rank; done; }
part_stopped() { for ((i = 0; i < times; ++i)); do lose "SIGSTOP of a rank" 71 76 stop_rank; done; }
part_power() { for ((i = 0; i < times; ++i)); do lose "a node without power" 71 76 kill_node; done; }
part_cable() { for ((i = 0; i < times; ++i)); do lose "a cable pulled" 71 76 cut_node; done; }

heading() {
  line ""
  case $1 in
    traffic)
      line "Megabytes that a node sends in a step over links of $rate; seconds of a step, of that traffic at the speed of the link, and" \
        "those that compute stood still for the axis:"
      line ""
      line "| mesh, ranks on each node | axis | plan | counter of the interface | ratio | step | link | stood still |"
      line "|---|---|---|---|---|---|---|---|"
      ;;
    interrupted)
      line "$total steps ($total_cuts with partitions) on 8 ranks of 4 nodes, interrupted:"
      line ""
      line "| by | times | starts | losses, weights and moments beside the unbroken run |"
      line "|---|---|---|---|"
      ;;
    moldable)
      line "--nodes=1-5, a requeue each time:"
      line ""
      line "| nodes | from step | weights and moments as loaded | speed that the header tells |"
      line "|---|---|---|---|"
      ;;
    lost)
      line "Lost, while 8 ranks trained on 4 nodes: seconds until no rank was left on any node, the job's exit code and its first line:"
      line ""
      line "| what | node | seconds | exit | line |"
      line "|---|---|---|---|---|"
      ;;
  esac
}

choose_sequences
declare -A counts=([requests]=$requests [requeues]=$requeues [kills]=$kills [cuts]=$cuts [limits]=$limits [moldable]=$node_counts
  [traffic]=1 [killed]=$times [stopped]=$times [power]=$times [cable]=$times)
section='' previous=none
for part in "${parts[@]}"; do
  ((counts[$part] > 0)) || continue
  was=$section
  case $part in
    traffic | moldable) section=$part ;;
    killed | stopped | power | cable) section=lost ;;
    *) section=interrupted ;;
  esac
  [[ $section == "$was" ]] || heading "$section"
  # The program must notice a lost node before Slurm does, as on most sites. Else tests need not wait so long for Slurm.
  unset RIPSTOP_CLUSTER_TIMEOUT
  if [[ $section == lost ]]; then export RIPSTOP_CLUSTER_TIMEOUT=120; fi
  another_cluster 5 "$previous"
  previous=$part
  set +e
  (
    set -e
    RANDOM=$seed
    "part_$part"
  )
  code=$?
  set -e
  ((code == 0)) || row no "| --part $part did not come to its end |"
  say "$part: done"
done
printf '\n%s, %s, %s processors, %d s\n' "$(ripstop --version | head -n 1)" "$(on ctl sinfo --version)" "$(nproc)" "$SECONDS"
cat "$work/table"
! grep -qF '**WRONG**' "$work/table"
