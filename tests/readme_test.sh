#!/usr/bin/env bash
# Keeps the README true: what it quotes from a source file stands there, what it names exists, what it runs is known.
#   tests/readme_test.sh [PROGRAM]       with PROGRAM, verbs of `ripstop` are looked up in its --help
set -euo pipefail
cd "$(dirname "$0")/.."
program=${1:-}
status=0
complain() {
  echo "README.md: $*"
  status=1
}

# A block after <!-- quote: FILE --> is a run of whole lines of FILE.
while read -r file; do
  if [[ ! -f $file ]]; then
    complain "quotes $file, which is not there"
    continue
  fi
  block=$(awk -v marker="<!-- quote: $file -->" '
    $0 == marker { armed = 1; next }
    armed && /^```/ { if (inside) exit; inside = 1; next }
    inside { print }' README.md)
  if [[ -z $block ]]; then complain "the quote of $file is empty"; fi
  if [[ $'\n'$(<"$file")$'\n' != *$'\n'"$block"$'\n'* ]]; then complain "the quote of $file differs from the file"; fi
done < <(sed -n 's/^<!-- quote: \(.*\) -->$/\1/p' README.md)

# Paths: link targets, and whatever in `code` or a code block begins with a folder of the tree.
code=$(awk '/^```/ { inside = !inside; next } inside' README.md
  grep -oE '`[^`]+`' README.md | tr -d '`' || true)
links=$(grep -oE '\]\([^)]+\)' README.md | sed -E 's/^\]\(//; s/\)$//; s/#.*//' | grep -v '://' || true)
paths=$(grep -oE '(^|[ "])(\./)?(model|parallel|data|train|configs|slurm|tests)/[A-Za-z0-9_./-]*' <<<"$code" | tr -d ' "' || true)
for path in $links $paths; do
  path=${path%[.,:]}
  if [[ ! -e $path ]]; then complain "names $path, which is not there"; fi
done

known=$(sed -n 's/^#   \.\/bootstrap\.sh \([a-z]*\).*/\1/p' bootstrap.sh)
for verb in $(grep -oE '\./bootstrap\.sh [a-z]+' <<<"$code" | cut -d' ' -f2 | sort -u); do
  grep -qx "$verb" <<<"$known" || complain "runs ./bootstrap.sh $verb, which is no verb"
done
if [[ -n $program ]]; then
  # A config is one that ripstop takes.
  config=$(mktemp --suffix=.toml)
  trap 'rm -f "$config"' EXIT
  awk '/^```toml$/ { inside = 1; next } /^```/ { inside = 0 } inside' README.md >"$config"
  "$program" plan "$config" --nodes 2 --ntasks-per-node 4 >/dev/null || complain "has a config that ripstop plan refuses"
  help=$("$program" --help)
  for verb in $(grep -oE '(^|[ /])ripstop [a-z]+' <<<"$code" | awk '{print $NF}' | sort -u); do
    grep -qE "^ +$verb( |$)" <<<"$help" || complain "runs ripstop $verb, which is no verb"
  done
fi
exit $status
