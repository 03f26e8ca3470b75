# shellcheck shell=bash disable=SC2154
# The beginning of tests of whole runs. To be sourced: $ripstop and $work are set, and complain() says what fails.

# debug_run STEPS EXAMPLES: $work/run.toml, the config of a small run in $work/run, and its data set, $work/data
debug_run() {
  cat >"$work/run.toml" <<TEXT
[run]
device = "cpu"
directory = "$work/run"
[data]
directory = "$work/data"
sequence_length = 128
[model]
preset = "debug"
[train]
steps = $1
global_batch_sequences = 2
[optimizer]
learning_rate = 1e-3
[precision]
compute = "float32"
TEXT
  "$ripstop" prepare --source synthetic --examples "$2" --seed 1 --vocab-size 400 --output "$work/data" >"$work/prepare.log" 2>&1 ||
    complain "prepare: $(cat "$work/prepare.log")"
}
