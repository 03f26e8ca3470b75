#!/usr/bin/env bash
# Builds no image. slurm/ripstop.def has the steps of slurm/Containerfile; what these name exists; CITATION.cff has the version.
#   container_test.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
complain() {
  echo "FAILED: $*"
  status=1
}

joined() { sed -e ':join' -e '/\\$/{N;s/ *\\\n */ /;b join' -e '}' "$1" | tr -s ' '; }
# Both print lines of a stage (- for default values), a kind, and words: bases, copies, commands, variables.
of_containerfile() {
  joined "$1" | awk '
    { rest = substr($0, length($1) + 2) }
    $1 == "FROM" { stage = $4; print stage, "base", $2 }
    $1 == "ARG" { print "-", "default:" rest }
    $1 == "COPY" { sub(/^--from=/, "from ", rest); print stage, "copy", rest }
    $1 == "RUN" || $1 == "ENV" { print stage, tolower($1), rest }' | sed "s|\(RUN_BASE=\)\${BASE}|\1$(sed -n 's/^ARG BASE=//p' "$1")|"
}
of_definition() {
  joined "$1" | sed -e 's/{{ \([A-Z_]*\) }}/${\1}/g' | awk '
    $1 == "From:" { base = $2 }
    $1 == "Stage:" { stage = $2; print stage, "base", base }
    /^[^ ]/ { kind = $1; from = $2 == "from" ? "from " $3 " " : "" }
    !/^ / || $1 == "cd" { next }
    { sub(/^ /, "") }
    kind == "%arguments" { print "-", "default:" $0 }
    kind == "%files" { sub("/[*] ", " "); print stage, "copy", from $0 }
    kind == "%post" { print stage, "run", $0 }
    kind == "%environment" { sub(/^export /, ""); print stage, "env", $0 }'
}
# Commands keep their order; which kind comes first does not matter.
in_order() { sort -s -k1,2; }
differ() { ! diff <(of_containerfile slurm/Containerfile | in_order) <(of_definition "$1" | in_order); }
if differ slurm/ripstop.def; then complain "the steps of slurm/Containerfile (<) and slurm/ripstop.def (>) differ"; fi
for change in '/^    \.\/bootstrap\.sh deps$/d' 's/debian:12/debian:13/' 's/export PATH=/export PATHS=/' 's|^    \.git |    .git/ |' \
  's/^%files from build/%files/' 's/ --no-upgrade//' '/mkdir/{h;d};/--version/G'; do
  sed "$change" slurm/ripstop.def >"$work/def"
  if ! differ "$work/def" >"$work/log"; then complain "the comparison does not notice $change"; fi
done

# What the two name exists: presets, packages, the folders of an installation.
preset=$(of_containerfile slurm/Containerfile | sed -n 's/.* default:PRESET=//p')
grep -q "\"name\": \"$preset\"" CMakePresets.json || complain "there is no preset '$preset'"
package=$(sed -n 's/^RUN echo \(.*\) >>.*/\1/p' slurm/Containerfile)
grep -qE "^( |packages=).*\b$package\b" bootstrap.sh || complain "bootstrap.sh does not know the package '$package'"
while read -r name folder; do
  folder=${folder/@CMAKE_INSTALL_DATADIR@/share}
  grep -qxF "ENV $name=${folder/@prefix@//usr/local}" slurm/Containerfile || complain "slurm/Containerfile: $name is not as in the module"
done < <(sed -n 's/^setenv  *\([A-Z_]*\) "\(.*\)"$/\1 \2/p' train/machine/modulefile.in)

version=$(sed -n 's/^project(ripstop VERSION \([0-9.]*\) .*/\1/p' CMakeLists.txt)
grep -qx "version: $version" CITATION.cff || complain "CITATION.cff is not of version $version"
exit $status
