#!/usr/bin/env bash
# Keeps docs/from-hugging-face.md true. Runs its config, its commands in the order of the page, and those of its tables, on a
# small data set. Every key of its tables must be one that `ripstop plan` takes. Every name of the Trainer in its tables, typed
# as a key, must get a hint that names a key of its rows.
#   tests/docs/from_hugging_face_test.sh PROGRAM
set -euo pipefail
cd "$(dirname "$0")/../.."
program=$(realpath "$1")
page=$PWD/docs/from-hugging-face.md
export PATH=${program%/*}:$PWD/slurm:$PATH OMP_NUM_THREADS=1 LC_ALL=C
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
status=0
complain() {
  echo "docs/from-hugging-face.md: $*"
  status=1
}

# The files that a reader has. articles N FIRST: N documents with summaries.
articles() {
  awk -v count="$1" -v first="$2" 'BEGIN {
    words = split("harbour opened closed Monday Tuesday police council said that bridge market near old new storm ferry", word, " ")
    for (i = first; i < first + count; i++) {
      text = "Article " i ":"
      for (w = 0; w < 20 + i * 7 % 60; w++) text = text " the " word[1 + (i * 31 + w * w * 7) % words] (w % 9 ? "" : " " i * w)
      printf "{\"id\": \"%d\", \"document\": \"%s.\", \"summary\": \"The %s %d opened.\"}\n", i, text, word[1 + i % words], i
    }
  }'
}
articles 160 0 >train.jsonl
articles 16 1000 >validation.jsonl
articles 12 2000 >test.jsonl
articles 100 3000 >articles.jsonl

# ---- the config and the commands

awk '/^```toml$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$page" >first.toml
# Lines of blocks without a language.
mapfile -t commands < <(awk '/^```/ { open = !open; plain = open && $0 == "```"; next } plain' "$page")
# cells COLUMN: that column of all table rows, one code span a line, after the number of its row.
cells() {
  awk -v column="$1" -F'|' '/^\|/ && !/^\| there/ && !/^\|---/ {
    cell = $(column + 1)
    while (match(cell, /`[^`]+`/)) { print NR "\t" substr(cell, RSTART + 1, RLENGTH - 2); cell = substr(cell, RSTART + RLENGTH) }
  }' "$page"
}
mapfile -t -O ${#commands[@]} commands < <(cells 2 | cut -f2 | grep -E '^(ripstop|launch\.sh) ')
((${#commands[@]} >= 15)) || complain "only ${#commands[@]} commands were found"
shown=$(awk '/^```text$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$page")
for command in "${commands[@]}"; do
  code=0
  bash -c "$command" </dev/null >out 2>&1 || code=$?
  ((code == 0)) || complain "'$command' ends with $code:"$'\n'"$(tail -3 out)"
  [[ $command != *' --show 2 '* || $(<out) == "$shown" ]] || complain "'$command' prints something else"
done
for file in runs/first/checkpoints/step_*/manifest.json runs/first/evaluation/*-test/scores.json summaries.jsonl; do
  [[ -s $file ]] || complain "the commands did not write $file"
done
# Every start ended well, and only the first trained: the others found the run done.
starts=$(printf '%s\n' "${commands[@]}" | grep -c 'ripstop train ')
[[ $(grep -c '"event":"end".*"exit_code":0' runs/first/metrics.jsonl) == "$starts" ]] || complain "not all starts ended with 0"
[[ $(grep -c '"event":"step","step":1,' runs/first/metrics.jsonl) == 1 ]] || complain "the run began more than once"

# ---- keys and names

declare -A keys_of
while IFS=$'\t' read -r row name; do
  [[ $name =~ ^[a-z_0-9]+= ]] || continue
  keys_of[${name%%=*}]+=" $(cells 2 | awk -F'\t' -v row="$row" '$1 == row { sub(/=.*/, "", $2); print $2 }' | tr '\n' ' ')"
done < <(cells 1)
while read -r setting; do
  enough=train.steps=1000 # more than any warm-up
  if [[ $setting == train.epochs=* ]]; then enough=run.seed=1; fi
  ripstop plan first.toml "$enough" "$setting" >out 2>&1 || complain "plan refuses $setting: $(tail -1 out)"
done < <(cells 2 | cut -f2 | grep -E '^[a-z]+\.[a-z_]+=')
for name in "${!keys_of[@]}"; do
  if ripstop plan first.toml "train.$name=1" >/dev/null 2>&1; then continue; fi # it has the same name here
  hint=$(ripstop plan first.toml "train.$name=1" 2>&1 | sed -n 's/^FATAL code=64 .* hint="\(.*\)"$/\1/p' || true)
  if [[ -z $hint || $hint == '[train] has '* ]]; then complain "who types $name gets no hint, but '$hint'"; fi
  named=
  for key in ${keys_of[$name]}; do
    if [[ $key != *.* || $hint == *"'$key'"* ]]; then named=1; fi
  done
  if [[ -n ${keys_of[$name]// /} && -z $named ]]; then complain "who types $name is told: $hint; the page says${keys_of[$name]}"; fi
done
# As the page says, options in the Trainer's spelling are understood, too.
hint=$(ripstop plan first.toml --learning_rate 2e-5 2>&1 || true)
[[ $hint == *optimizer.learning_rate=2e-5* ]] || complain "who types --learning_rate 2e-5 is told: $hint"
((${#keys_of[@]} >= 20)) || complain "only ${#keys_of[@]} names were found"
exit $status
