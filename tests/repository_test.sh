#!/usr/bin/env bash
# Fails where the tree itself is untidy: scripts that do not parse, paths of one person's
# machine, notes to self, wide comments, big files.
set -euo pipefail
cd "$(dirname "$0")/.."
status=0
complain() {
  printf '%s\n' "$@"
  status=1
}

files() {
  git ls-files -z -- "$@" 2>/dev/null || find . \( -name .git -o -name build -o -name runs \) -prune -o -type f -print0
}
mapfile -d '' all < <(files)
mapfile -d '' sources < <(files '*.h' '*.cpp' '*.cu' '*.cuh' | grep -zE '\.(h|cpp|cu|cuh)$')
mapfile -d '' code < <(files '*.h' '*.cpp' '*.cu' '*.cuh' '*.cmake' '*CMakeLists.txt')

scripts=()
for file in "${all[@]}"; do
  if [[ -f $file ]] && head -c 20 "$file" | tr -d '\0' | grep -q '^#!.*bash'; then scripts+=("$file"); fi
done
for script in "${scripts[@]}"; do
  bash -n "$script" || complain "$script: bash cannot parse it"
  [[ -x $script ]] || complain "$script: not executable"
done
if command -v shellcheck >/dev/null; then
  shellcheck --severity=warning "${scripts[@]}" || complain "shellcheck: see above"
fi

# Tests may name such paths as data; what is installed or read by people may not.
if found=$(grep -nIE '(^|[^A-Za-z0-9_.])/(home|root|work)/' "${all[@]}"); then
  complain "paths of one machine:" "$found"
fi
if found=$(grep -nE '\b(TODO|FIXME|XXX|HACK)\b' "${code[@]}"); then
  complain "notes to self; finish it or open an issue:" "$found"
fi
# The formatter leaves comments alone, so their width is looked at here.
if found=$(awk 'length > 110 && /\/\// { print FILENAME ":" FNR ": " length " columns" }' "${sources[@]}" | grep .); then
  complain "comments are laid out by hand, in at most 110 columns:" "$found"
fi
# Where one fails, GoogleTest calls the tests skipped, and ctest believes it.
if found=$(grep -nE 'SetUpTestSuite|SetUpTestCase' "${code[@]}"); then
  complain "set up each test by itself (SetUp):" "$found"
fi
for file in "${all[@]}"; do
  [[ -f $file ]] || continue
  if (($(wc -c <"$file") > 1048576)); then complain "$file: larger than 1 MiB"; fi
done
exit $status
