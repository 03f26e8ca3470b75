#!/usr/bin/env bash
# Ranks that fail, stop, die or lose their launcher: all ranks end soon, with the right exit code, and one line names the rank.
#   failures_test.sh LAUNCH PROGRAM      LAUNCH = slurm/launch.sh, PROGRAM = failing_ranks
set -uo pipefail
launch=$1 program=$2 ranks=3 failed=0
log=$(mktemp) directory=$(mktemp -d)
trap 'rm -rf "$log" "$directory"' EXIT

# expect HOW DEADLINE CODES TEXT [DIRECTORY]: the run ends by itself with one of CODES, and one FATAL line has TEXT. A deadline of
# 1000 s never passes in the time that the test allows, even on a busy machine.
expect() {
  local how=$1 deadline=$2 codes=$3 text=$4 begin=$SECONDS code
  timeout -k 5 200 "$launch" "$ranks" "$program" "$how" "$deadline" "${@:5}" >"$log" 2>&1
  code=$?
  local took=$((SECONDS - begin)) lines problem=
  lines=$(grep -c '^FATAL' "$log")
  [[ " $codes " == *" $code "* ]] || problem="exit code $code, not $codes"
  if [[ -n $text ]]; then
    ((lines == 1)) || problem+=" $lines FATAL lines"
    grep '^FATAL' "$log" | grep -qE "$text" || problem+=" no FATAL line with '$text'"
  fi
  if [[ -n $problem ]]; then
    echo "$how: $problem"
    cat "$log"
    failed=1
  else
    echo "$how: exit code $code after $took s: $(grep '^FATAL' "$log" | head -1)"
  fi
}

# until_gone COMMAND...: waits until COMMAND lists nothing any more
until_gone() {
  local i
  for ((i = 0; i < 600; i++)); do
    if [[ -z $("$@") ]]; then return; fi
    sleep 0.1
  done
  echo "left: $("$@")"
  failed=1
}

expect none 1000 0 ''
expect throw 1000 74 'rank=1 cannot write the checkpoint'
expect throw_all 1000 74 'rank=0 cannot write the checkpoint'
expect stop 3 76 'all_gather on world \(3 ranks\) at step 15 waited [0-9]+ s: rank 1 \(.*\) does not answer'
expect stop_last 3 76 'barrier on world \(3 ranks\) at step 20 waited [0-9]+ s: rank 1 \(.*\) does not answer'
expect busy 3 76 'rank 1 \(.*\) is busy after all_gather on world, step 15'
expect receive 3 76 'receive on world \(3 ranks\) at step 15 waited [0-9]+ s: rank 1 \(.*\) is busy after all_gather on world'
# Of a pipeline, stage and micro-batch are named, and the stage that computes before the one that only waits for it.
expect no_stage 1000 0 ''
expect stop_stage 3 76 '(send|receive) on pipeline \(2 ranks\) at step 15, stage [02], micro-batch 7 waited [0-9]+ s: rank 1 \(.*\) does not answer'
expect busy_stage 3 76 'receive on pipeline \(2 ranks\) at step 15, stage 2, micro-batch 7 waited [0-9]+ s: rank 0 \(.*\) is busy after send on pipeline, step 15, stage 0, micro-batch 7'
# A rank that waits for storage is waited for as long as the first deadline says, and the line says storage.
expect storage 1000 0 ''
expect disk 3 76 'rank 1 \(.*\) waits for storage that does not answer, step 15'
# mpirun sees a killed rank and kills the others. Its exit code is that rank's, or 76 if our watchdog was faster.
expect kill 1000 '137 76' ''

# At the start of MPI no rank can be asked: files show which ranks have come. They lie above the run's directory, which is not
# there yet.
expect none 1000 0 '' "$directory/runs/first"
expect never 6 76 'rank=0 MPI_Init \(3 ranks\) waited [0-9]+ s: rank 1 of 3 has not come; seen: ranks 0,2 \(.*\)' "$directory/runs/first"
expect never 6 76 'rank=0 MPI_Init .*: nothing tells which rank is missing'
until_gone ls -A "$directory" # of each start
# The launcher wakes a stopped rank before it kills it. So the rank comes late, and may leave its file.
expect stop_before 6 76 'rank=0 MPI_Init .*: rank 1 of 3 has not come' "$directory/runs/first"
mkdir "$directory/other"
expect stop_in_start 6 76 'rank=0 .*rank 1 \(.*\)( came and stands still)?' "$directory/other"
until_gone pgrep -af "^$program "

# A launcher that is killed leaves no ranks behind.
"$launch" "$ranks" "$program" wait 30 >"$log" 2>&1 &
launcher=$!
for _ in $(seq 600); do
  (($(grep -c '^pid' "$log") == ranks)) && break
  sleep 0.1
done
pids=$(sed -n 's/^pid //p' "$log")
# All ranks are on this host, so nobody else can reach their watchdogs. Local addresses in /proc/net/udp: 0100007F is 127.0.0.1.
sockets=0
for pid in $pids; do
  for socket in $(readlink "/proc/$pid/fd/"* 2>/dev/null | sed -n 's/^socket:\[\([0-9]*\)\]$/\1/p'); do
    address=$(awk -v inode="$socket" '$10 == inode { print $2 }' /proc/net/udp)
    [[ -z $address ]] || sockets=$((sockets + 1))
    if [[ -n $address && $address != 0100007F:* ]]; then
      echo "sockets: rank with pid $pid listens on $address, not on 127.0.0.1"
      failed=1
    fi
  done
done
if ((sockets < ranks)); then
  echo "sockets: $sockets UDP sockets of $ranks ranks"
  failed=1
fi
(($(wc -w <<<"$pids") == ranks)) || { echo "ranks: '$pids'" && failed=1; }
kill -9 "$launcher"
until_gone pgrep -af "^$program "
exit "$failed"
