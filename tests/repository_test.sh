#!/usr/bin/env bash
# Fails if the tree itself is untidy: a script that does not parse, a path of one machine, a note to self, a merge that was not
# finished, a wide comment, a big file.
set -euo pipefail
cd "$(dirname "$0")/.."
status=0
no_noun='(What|As|Its|It|That|Those|Such|Of|There|How|Which|Whatever)'
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

mapfile -t scripts < <(grep -lzE '^#![^[:cntrl:]]*bash' "${all[@]}")  # -z: ^ is the begin of a file
for script in "${scripts[@]}"; do
  bash -n "$script" || complain "$script: bash cannot parse it"
  [[ -x $script ]] || complain "$script: not executable"
done
if command -v shellcheck >/dev/null; then
  shellcheck --severity=warning "${scripts[@]}" || complain "shellcheck: see above"
fi

# Until bash 4.4 an empty array is an unset variable to `set -u`. These scripts run on whatever a cluster has.
for script in bootstrap.sh slurm/*; do
  while read -r name; do
    if found=$(grep -nE "(^|[^+])\"[$][{]$name\[@\][}]\"" "$script"); then
      complain "$script: $name may be empty, guard it as launch.sh guards its options:" "$found"
    fi
  done < <(grep -oE '[a-z_]+=\(\)|read -ra [a-z_]+' "$script" | sed -E 's/=\(\)$//; s/^read -ra //' | sort -u)
done

# The pattern looks for a path at the beginning of a word. Tests may have such paths inside other text, as data.
if found=$(grep -nIE '(^|[^A-Za-z0-9_.])/(home|root|work)/' "${all[@]}"); then
  complain "paths of one machine:" "$found"
fi
if found=$(grep -nE '\b(TODO|FIXME|XXX|HACK)\b' "${code[@]}"); then
  complain "notes to self: finish the work or open an issue:" "$found"
fi
if found=$(grep -nIE '^(<<<<<<<|>>>>>>>)( |$)' "${all[@]}"); then
  complain "both sides of a merge:" "$found"
fi
# The formatter leaves comments alone, so their width is looked at here.
if found=$(awk 'length > 110 && /\/\// { print FILENAME ":" FNR ": " length " columns" }' "${sources[@]}" | grep .); then
  complain "comments are laid out by hand, in at most 110 columns:" "$found"
fi
# The noun comes first in a comment: other words make a reader go back.
if found=$(awk 'FNR == 1 { before = 0 } { is = /^ *\/\/\/?/ } is && !before && /^ *\/\/\/? '"$no_noun"'[ ,:]/ { print FILENAME ":" FNR ": " $0 }
    { before = is }' "${sources[@]}" | grep .); then complain "a comment begins with its noun:" "$found"; fi
if found=$(grep -nE '[^ /].* //(/<)? (of|its|it|that|those|as) |///? `[a-z_]+`: (of|those) ' "${sources[@]}" | grep -E '^(model|parallel|data|train)/'); then
  complain "a comment behind code, or on a parameter, begins with its noun:" "$found"
fi
# If such a function fails, GoogleTest reports its tests as skipped, and ctest counts that as success.
if found=$(grep -nE 'SetUpTestSuite|SetUpTestCase' "${code[@]}"); then
  complain "each test sets up what it needs in SetUp:" "$found"
fi
found=$(find "${all[@]}" -maxdepth 0 -size +1048576c 2>/dev/null || true) # some may be deleted, and not yet committed
[[ -z $found ]] || complain "larger than 1 MiB:" "$found"
exit $status
