# shellcheck shell=bash disable=SC2154
# Shared by the parts of tests/bench/gpu, to be sourced: steps with a time limit, results that are written when they
# come, a table at the end. Needs $stage, $stage_seconds, $patience, $device and $out; results are lines of $out/results,
# name|state|seconds|note.

log_of() { echo "$out/logs/$1.log"; }

begin_stage() {
  mkdir -p "$out/logs"
  rm -f "$out"/logs/* "$out"/{"$stage.json",logs.tar.gz}
  : >"$out/results"
  printf '%s on %s, %s, logs in %s\n' "$stage" "$device" "$(date -u +'%Y-%m-%d %H:%M UTC')" "$out/logs"
}

# result NAME STATE SECONDS NOTE: writes a result, and shows it
result() {
  printf '%s|%s|%s|%s\n' "$1" "$2" "$3" "${4//|//}" >>"$out/results"
  printf '%4s s: %s %s\n' "$SECONDS" "$1" "$2"
}
# note NAME TEXT: replaces the note of a result; restate NAME STATE NOTE: and its state
note() { sed -i "s#^\($1|[a-z]*|[0-9]*\)|.*#\1|${2//[#&|]/}#" "$out/results"; }
restate() { sed -i "s#^\($1\)|[a-z]*|\([0-9]*\)|\(.*\)#\1|$2|\2|${3//[#&|]/}\3#" "$out/results"; }

text_json() { sed 's/\\/\\\\/g; s/"/\\"/g; s/[[:cntrl:]]/ /g; s/.*/"&"/' <<<"$1"; }
# number FILE KEY [N]: the value in the N-th line that has the key, by default in the last one
number() {
  if [[ -f $1 ]]; then sed -n "s/.*\"$2\": *\([0-9.e+-]*\).*/\1/p" "$1" | sed -n "${3:-\$}p"; fi
}
# best KEY FILE...: the largest value in the first lines that have it, of several runs
best() {
  local key=$1 file
  shift
  for file in "$@"; do number "$file" "$key" 1; done | sort -g | tail -n 1
}
ratio() { awk -v a="${1:-0}" -v b="${2:-0}" 'BEGIN {if (a > 0 && b > 0) printf "%.3f", a / b; else printf "-"}'; }

# The reason that a program prints if it skipped its tests; empty if a test ran.
skip_reason() {
  if grep -q '\[       OK \]\|\[  FAILED  \]' "$1"; then return; fi
  grep -m1 -o '^skipped: .*\|no GPU: .*' "$1" | sed 's/^skipped: //' || true
}

# step NAME LIMIT PROGRAM COMMAND...: runs the command for LIMIT * $patience seconds at most; its output goes to the log of NAME.
# Skipped if PROGRAM does not exist.
step() {
  local name=$1 limit=$(($2 * patience)) needed=$3 begin=$SECONDS status=0 note='' state=passed log left
  shift 3
  log=$(log_of "$name")
  if [[ ! -x $needed ]]; then
    result "$name" skipped 0 "$(basename "$needed") is not here"
    return
  fi
  left=$((stage_seconds - SECONDS))
  if ((left <= 0)); then
    result "$name" failed 0 "the stage's $stage_seconds s are over"
    return 1
  fi
  timeout -k 5 $((limit < left ? limit : left)) "$@" >"$log" 2>&1 </dev/null || status=$?
  note=$(skip_reason "$log")
  if [[ $status == 77 || ($status == 0 && $note) ]]; then
    state=skipped
  elif [[ $status == 124 || $status == 137 ]]; then
    state=failed note="not done after $((SECONDS - begin)) s"
  elif [[ $status != 0 ]]; then
    state=failed note="exit $status: $(grep -av '^$' "$log" | tail -n 1)"
  fi
  result "$name" "$state" $((SECONDS - begin)) "$note"
  [[ $state != failed ]]
}

# end_stage: prints the table, writes $out/STAGE.json and packs the logs into one file
end_stage() {
  local failed=0 separator='' name state seconds note
  {
    printf '{"stage": "%s", "device": "%s", "date": "%s",\n' "$stage" "$device" "$(date -u +%FT%TZ)"
    if [[ -s $out/logs/kernels.json ]]; then printf '"kernels": %s,\n' "$(cat "$out/logs/kernels.json")"; fi
    printf '"runs": [%s],\n"results": [' "$(cat "$out"/logs/train_*.log 2>/dev/null | grep -a '^{' | paste -sd,)"
    while IFS='|' read -r name state seconds note; do
      printf '%s\n  {"name": "%s", "state": "%s", "seconds": %s, "note": %s}' "$separator" "$name" "$state" "$seconds" \
        "$(text_json "$note")"
      separator=,
    done <"$out/results"
    printf ']}\n'
  } >"$out/$stage.json"
  tar -C "$out" -czf "$out/logs.tar.gz" logs
  echo
  while IFS='|' read -r name state seconds note; do
    printf '%-22s %-8s %4s s  %s\n' "$name" "$state" "$seconds" "$note"
    if [[ $state == failed ]]; then failed=1; fi
  done <"$out/results"
  echo "$out/$stage.json"
  return $failed
}
