#!/usr/bin/env bash
# Ranks that were started with different commands or configs say so and end.
#   mixed_ranks_test.sh RIPSTOP LAUNCH
set -uo pipefail
ripstop=$1 launch=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
complain() {
  echo "FAILED: $*" >&2
  failed=1
}

. "$(dirname "$0")/../debug_run.sh"
debug_run 2 50

# on_each FIRST SECOND: starts two ranks; each runs the words of its argument. Exit code into `code`, output to out.
cat >"$work/choose" <<'TEXT'
#!/usr/bin/env bash
rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-${SLURM_PROCID:-0}}}}
read -ra words <<<"$(sed -n "$((rank + 1))p" "$1/words")"
program=$2
if [[ ${words[0]} == /* ]]; then program=${words[0]} words=("${words[@]:1}"); fi
exec "$program" "${words[@]}"
TEXT
chmod +x "$work/choose"
on_each() {
  printf '%s\n' "$1" "$2" >"$work/words"
  code=0
  timeout -k 5 600 "$launch" 2 "$work/choose" "$work" "$ripstop" >"$work/out" 2>&1 || code=$?
}
expect() { # expect CODE TEXT...
  [[ $code == "$1" ]] || complain "exit code $code, $1 was expected: $(cat "$work/out")"
  shift
  for text; do grep -qE -- "$text" "$work/out" || complain "no '$text' in: $(cat "$work/out")"; done
}

on_each "train $work/run.toml" "evaluate $work/run"
expect 64 'command differs between ranks: rank 0 \(.*\): train; rank 1 \(.*\): evaluate'
on_each "summarize $work/run --input $work/run.toml" "doctor"
expect 64 'rank 0 \(.*\): summarize; rank 1 \(.*\): doctor'

on_each "evaluate $work/run" "evaluate $work/run model.x=1"
expect 64 "rank=1 .*'model.x=1' is not generation.key=value"

# Only the keys that differ are shown, with the value and the host of each.
on_each "train $work/run.toml" "train $work/run.toml train.steps=3 optimizer.learning_rate=2e-3"
expect 64 'config differs between ranks: train.steps: rank 0 \(.*\): 2; rank 1 \(.*\): 3 \| optimizer.learning_rate: rank 0'
grep -q global_batch_sequences "$work/out" && complain "keys that do not differ are shown: $(cat "$work/out")"
# Keys that decide which collectives there are: the ranks must not wait for each other in them.
on_each "train $work/run.toml mesh.tensor=2" "train $work/run.toml mesh.fsdp=2 run.device=auto"
expect 64 'config differs between ranks: run.device: ' ' \| mesh.tensor: rank 0 \(.*\): 2; rank 1 \(.*\): 1'
[[ ! -e $work/run ]] || complain "a refused start made the run's directory"

# doctor goes on and tells: other bytes of the program or of a config, and what each rank was measured at.
cp "$ripstop" "$work/other" && printf x >>"$work/other"
cp "$work/run.toml" "$work/same.toml"
on_each "doctor --config $work/run.toml" "doctor --config $work/same.toml"
expect 0 '^ +1 .* GFLOP/s .* GB/s .* GB/s +-$'
grep -q 'differs' "$work/out" && complain "ranks that do not differ are told apart: $(cat "$work/out")"
echo '# a comment' >>"$work/same.toml"
on_each "doctor --config $work/run.toml" "$work/other doctor --config $work/same.toml"
expect 0 '! program differs between ranks: rank 0 \(.*content [0-9a-f]{16}; rank 1 ' '! config differs between ranks: rank 0'
on_each "doctor --json --config $work/run.toml" "doctor --config $work/absent.toml"
expect 0 '"rank_speeds": \[' '"exclude": "' '"config differs between ranks: .*absent.toml'

if [[ $failed == 0 ]]; then echo "ranks that differ say so"; fi
exit $failed
