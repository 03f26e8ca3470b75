#!/usr/bin/env bash
# Keeps README.md, CONTRIBUTING.md, CHANGELOG.md and docs/ true: quotes of sources, links and their anchors, paths, functions
# and types that they name, verbs, options, configs and outputs that they show, the length of the README.
#   tests/readme_test.sh [PROGRAM]       with PROGRAM, verbs and options of `ripstop` are looked up in its --help, configs are
#                                        planned, and outputs compared
set -euo pipefail
cd "$(dirname "$0")/.."
program=${1:-}
export LC_ALL=C
pages=(README.md CONTRIBUTING.md CHANGELOG.md docs/*.md docs/releases/*.md)
status=0
complain() {
  echo "$*"
  status=1
}
names=$(mktemp)
config=$(mktemp --suffix=.toml)
trap 'rm -f "$names" "$config"' EXIT
# Every word of the sources, and with "(" behind it every word that is called or declared like a function.
grep -rhoE --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' '[A-Za-z_][A-Za-z0-9_]*\(?' \
  model parallel data train tests | sort -u >"$names"
is_known() { grep -qxF -- "$1" "$names"; }

# ours PAGE: the page without Python, and without the first column of tables that begin with "| there |" or "| tag |": names of others.
ours() {
  awk '/^```python$/ { python = 1 } /^\| (there|tag) \|/ { there = 1 } !/^\|/ { there = 0 }
    there { sub(/^\|[^|]*/, "") }
    !python
    python && /^```$/ { python = 0 }' "$1"
}
# in_code PAGE: what stands in `code` and in code blocks.
in_code() {
  ours "$1" | awk '/^ *```/ { inside = !inside; next } inside'
  ours "$1" | awk '/^ *```/ { inside = !inside; next } !inside' | grep -oE '`[^`]+`' | tr -d '`' || true
}
# anchors PAGE: the names that GitHub gives its headings.
anchors() {
  awk '/^ *```/ { inside = !inside; next } !inside && /^#+ /' "$1" | sed -E 's/^#+ +//' | tr 'A-Z' 'a-z' | tr -d '`' |
    sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
}

for page in "${pages[@]}"; do
  folder=$(dirname "$page")
  # A block after <!-- quote: FILE --> is a run of whole lines of FILE.
  while read -r file; do
    if [[ ! -f $file ]]; then
      complain "$page: quotes $file, which is not there"
      continue
    fi
    block=$(awk -v marker="<!-- quote: $file -->" '
      $0 == marker { armed = 1; next }
      armed && /^```/ { if (inside) exit; inside = 1; next }
      inside { print }' "$page")
    if [[ -z $block ]]; then complain "$page: the quote of $file is empty"; fi
    if [[ $'\n'$(<"$file")$'\n' != *$'\n'"$block"$'\n'* ]]; then complain "$page: the quote of $file differs from the file"; fi
  done < <(sed -n 's/^<!-- quote: \(.*\) -->$/\1/p' "$page")

  # Links outside of code lead to files, from the page's folder, and to headings.
  while read -r link; do
    target=${link%%#*}
    if [[ -n $target && ! -e $folder/$target ]]; then
      complain "$page: links to $target, which is not there"
    elif [[ $link == *'#'* ]]; then
      target=${target:+$folder/$target}
      anchors "${target:-$page}" | grep -qxF -- "${link#*#}" || complain "$page: links to $link, where no heading has that name"
    fi
  done < <(sed '/^```/,/^```/d' "$page" | grep -oE '\]\([^)]+\)' | sed -E 's/^\]\(//; s/\)$//' | grep -v '://' || true)

  # Whatever in code begins with a folder of the tree is a path; a `*` in it matches something.
  code=$(in_code "$page")
  while read -r path; do
    path=${path%[.,:]}
    compgen -G "$path" >/dev/null || complain "$page: names $path, which is not there"
  done < <(grep -oE '(^|[ "(])(\./)?(model|parallel|data|train|configs|slurm|tests|docs|\.ci)/[A-Za-z0-9_./*-]*' <<<"$code" |
    tr -d ' "(' | sort -u || true)

  # `function()`, `Type::function()` and `CamelCase` are names of the sources.
  while read -r name; do
    is_known "${name##*::}(" || complain "$page: names $name(), which no source has"
    [[ $name != *::* ]] || is_known "${name%%::*}" || is_known "${name%%::*}(" || complain "$page: names ${name%%::*}, which no source has"
  done < <(grep -oE '(^|[^A-Za-z0-9_])[A-Za-z_][A-Za-z0-9_:]*\(\)' <<<"$code" | grep -oE '[A-Za-z_][A-Za-z0-9_:]*' | sort -u || true)
  while read -r name; do
    is_known "$name" || is_known "$name(" || complain "$page: names $name, which no source has"
  done < <(ours "$page" | grep -oE '`[A-Z][a-z0-9]+([A-Z][A-Za-z0-9]*)+`' | tr -d '`' | sort -u || true)

  known=$(sed -n 's/^#   \.\/bootstrap\.sh \([a-z]*\).*/\1/p' bootstrap.sh)
  for verb in $(grep -oE '\./bootstrap\.sh [a-z]+' <<<"$code" | cut -d' ' -f2 | sort -u); do
    grep -qx "$verb" <<<"$known" || complain "$page: runs ./bootstrap.sh $verb, which is no verb"
  done
  [[ -n $program ]] || continue
  awk '/^```toml$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$page" >"$config"
  if [[ -s $config ]]; then # a config is one that ripstop takes
    "$program" plan "$config" --nodes 2 --ntasks-per-node 4 >/dev/null || complain "$page: has a config that ripstop plan refuses"
  fi
  help=$("$program" --help)
  for verb in $(sed -E 's/^[A-Z_]+=[^ ]* //' <<<"$code" | grep -oE '(^|[ /])ripstop [a-z][a-z-]*' | awk '{print $NF}' | sort -u); do
    grep -qE "^ +$verb( |$)" <<<"$help" || "$program" "$verb" --help >/dev/null 2>&1 ||
      complain "$page: runs ripstop $verb, which is no verb"
  done
  # Options that stand behind a verb are in its help.
  while read -r verb option; do
    grep -qE -- "(^|[ ,])$option([ ,=]|$)" < <("$program" ${verb/:/ } --help) || complain "$page: ripstop ${verb/:/ } has no $option"
  done < <(awk -v known=" $(awk '/^  [a-z]/ && $1 != "ripstop" { print $1 }' <<<"$help" | tr '\n' ' ')" '{
    verb = ""
    for (i = 1; i <= NF; i++) {
      if ($i ~ /^[&|;]/) verb = ""
      else if (verb == "" && (i == 1 || $(i - 1) ~ /ripstop$/) && index(known, " " $i " "))
        verb = $i == "checkpoint" ? $i ":" $(++i) : $i
      else if (verb != "" && match($i, /^--[a-z][a-z_-]+/)) print verb, substr($i, 1, RLENGTH)
    }
  }' <<<"$code" | sort -u)
  # A block after <!-- output --> is a run of whole lines of what the last command above it prints.
  number=0
  while read -r command; do
    number=$((number + 1))
    block=$(awk -v number=$number '
      /^<!-- output -->$/ { armed = ++markers == number; next }
      armed && /^```/ { if (inside) exit; inside = 1; next }
      inside { print }' "$page")
    output=$(PATH=${program%/*}:$PATH bash -c "$command" 2>&1) || complain "$page: '$command' fails: $output"
    if [[ -z $block || $'\n'$output$'\n' != *$'\n'"$block"$'\n'* ]]; then complain "$page: '$command' prints something else"; fi
  done < <(awk '/^```/ { inside = !inside } inside { last = $0 } /^<!-- output -->$/ { print last }' "$page")
done

# The table of what fits where is what its script prints.
if [[ -n $program ]]; then
  [[ $'\n'$(<docs/pretrained.md) == *$'\n'"$(tests/bench/what_fits.sh "$program")"$'\n'* ]] ||
    complain "docs/pretrained.md: the table of what fits where differs from what tests/bench/what_fits.sh prints"
fi

# The newest version with a date is the same everywhere, and this one is not below it.
release=$(sed -n 's/^## \[\([0-9.]*\)\] - \([0-9-]*\)$/\1 \2/p' CHANGELOG.md | head -1)
cited=$(sed -n -E 's/^(version|date-released): //p' CITATION.cff | paste -sd ' ')
[[ $cited == "$release" ]] || complain "CITATION.cff is of $cited, CHANGELOG.md of $release"
grep -qF "(docs/releases/${release% *}.md)" README.md || complain "README.md: no link to docs/releases/${release% *}.md"
version=$(sed -n 's/^project(ripstop VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
[[ $(printf '%s\n' "${release% *}" "$version" | sort -V | tail -1) == "$version" ]] ||
  complain "CMakeLists.txt: version $version, CHANGELOG.md has ${release% *}"
if [[ -n $program && $("$program" --version) != *" $version "* ]]; then complain "ripstop --version does not say $version"; fi

# The README is a page to read at one sitting.
if (($(wc -l <README.md) > 200)); then complain "README.md: $(wc -l <README.md) lines, at most 200"; fi
# The test can fail.
if is_known "no_such_function("; then complain "readme_test is blind: every function is known to it"; fi
exit $status
