# shellcheck shell=bash disable=SC2154
# Functions for tests of runs on several ranks. Source it with $ripstop and $work set; run NAME is in $work/NAME.

# losses NAME: "step loss" of every step in metrics.jsonl
losses() {
  sed -n 's/.*"event":"step".*"step":\([0-9]*\),.*"loss":\([^,}]*\).*/\1 \2/p' "$work/$1/metrics.jsonl"
}

# no_ranks NAME: waits until no rank of the run is left; killed ranks may need a moment
no_ranks() {
  local waited
  for ((waited = 0; waited < 600; waited++)); do
    [ -n "$(ranks_of "$1")" ] || return 0
    sleep 0.1
  done
  fail "ranks live on after their launcher"
}

# The pids of the ranks of run NAME. Starts no process, or a short run could end on a busy machine before its ranks are found.
ranks_of() {
  local process word words
  for process in /proc/[0-9]*; do
    [ "$process/exe" -ef "$ripstop" ] || continue
    words=()
    mapfile -d '' words 2>/dev/null <"$process/cmdline" || continue
    for word in "${words[@]}"; do
      if [ "$word" = "run.directory=$work/$1" ]; then echo "${process#/proc/}"; fi
    done
  done
}
