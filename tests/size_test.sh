#!/usr/bin/env bash
# Fails if the source has outgrown tests/size_budget.txt; prints what it has: lines, KiB, comments, tests beside it.
#      tests/size_test.sh
# The product is the source below model, parallel, data, train and slurm; its tests lie below the same names in tests, and the
# row `others` has what is in none of them. Functions of the product are measured where ctags is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

{ git ls-files 2>/dev/null || find . \( -name .git -o -name build -o -name runs \) -prune -o -type f -print | sed 's|^\./||'; } |
  grep -E '\.(h|cpp|cu|cuh|sh|sbatch)$' | grep -E '^(model|parallel|data|train|slurm|tests)/' |
  while read -r file; do if [[ -f $file ]]; then echo "$file"; fi; done >"$work/files"

# Comment lines are those that begin with one, of the lines that are not empty.
LC_ALL=C xargs awk -v numbers="$work/numbers" '
  FNR == 1 {
    count = split(FILENAME, part, "/")
    is_test = part[1] == "tests"
    folder = is_test ? part[2] : part[1]
    if (folder !~ /^(model|parallel|data|train|slurm)$/ || (is_test && count == 2)) folder = "others"
    comment = FILENAME ~ /\.(sh|sbatch)$/ ? "^[ \t]*#" : "^[ \t]*//"
  }
  FNR > file_lines { file_lines = FNR; longest = FILENAME }
  is_test { tests[folder]++; next }
  { lines[folder]++; bytes[folder] += length + 1 }
  /[^ \t]/ { filled[folder]++; if ($0 ~ comment) comments[folder]++ }
  function row(name) {
    if (!lines[name]) printf "%-10s %7s %7s %9s %9s %7d\n", name, "", "", "", "", tests[name]
    else printf "%-10s %7d %7.0f %8.1f%% %9.1f %7d\n", name, lines[name], bytes[name] / 1024, \
      100 * comments[name] / filled[name], bytes[name] / lines[name] - 1, tests[name]
  }
  END {
    printf "%-10s %7s %7s %9s %9s %7s\n", "", "lines", "KiB", "comments", "a line", "tests"
    split("model parallel data train slurm others", names, " ")
    for (i = 1; i <= 6; i++) {
      name = names[i]
      row(name)
      lines["all"] += lines[name]; bytes["all"] += bytes[name]; tests["all"] += tests[name]
      filled["all"] += filled[name]; comments["all"] += comments[name]
    }
    row("all")
    printf "product_lines %d\nproduct_kib %d\ntest_lines %d\nfile_lines %d %s\n", lines["all"], \
      (bytes["all"] + 1023) / 1024, tests["all"], file_lines, longest >numbers
  }' <"$work/files"
if ctags --version 2>/dev/null | grep -q Universal; then
  grep -v '^tests/' "$work/files" | ctags -L - --languages=C++,CUDA --langmap=C++:.cpp.h,CUDA:.cu.cuh --kinds-C++=f --kinds-CUDA=f --fields=+ne -o - |
    sed -nE 's/^([^\t]*)\t([^\t]*)\t.*line:([0-9]+).*end:([0-9]+).*/\3 \4 \1 in \2/p' |
    awk '$2 - $1 + 1 > most { most = $2 - $1 + 1; name = $3 " " $4 " " $5 } END { print "function_lines", most, name }' >>"$work/numbers"
else
  echo "no Universal Ctags: functions are not measured"
fi

status=0
while read -r name number what; do
  budget=$(awk -v name="$name" '$1 == name { print $2 }' tests/size_budget.txt)
  printf '%s %d, budget %s%s\n' "$name" "$number" "${budget:-none}" "${what:+: $what}"
  if [[ -z $budget ]] || ((number > budget)); then
    echo "FAILED: $name is over tests/size_budget.txt: make it smaller, or raise the budget in the same commit with the reason"
    status=1
  fi
done <"$work/numbers"
exit $status
