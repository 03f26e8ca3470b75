# shellcheck shell=bash disable=SC2154
# For tests of runs on several ranks. To be sourced: $ripstop and $work are set, and run NAME is in $work/NAME.

# losses NAME: "step loss" of every step, as written
losses() {
  sed -n 's/.*"event":"step".*"step":\([0-9]*\),.*"loss":\([^,}]*\).*/\1 \2/p' "$work/$1/metrics.jsonl"
}

# pids of the ranks of run NAME
ranks_of() {
  local process
  for process in /proc/[0-9]*; do
    [ "$(readlink "$process/exe" 2>/dev/null)" = "$(readlink -f "$ripstop")" ] || continue
    tr '\0' '\n' 2>/dev/null <"$process/cmdline" | grep -qxF "run.directory=$work/$1" && basename "$process"
  done
  return 0
}
