#!/usr/bin/env bash
# Calls of ./bootstrap.sh to other programs. Stand-ins for them note their words and do nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "FAILED: $*"
  cat "$work/log"
  exit 1
}
for tool in cmake clang-tidy; do
  printf '#!/usr/bin/env bash\necho "%s $*" >>%q\n' $tool "$work/words" >"$work/$tool"
done
printf '#!/usr/bin/env bash\nprintf "%%s\\n" data/files/file.cpp data/files/file.h\n' >"$work/git"
chmod +x "$work"/{cmake,clang-tidy,git}

# A unity build has no compile commands for single sources: clang-tidy needs a folder without it, also from nothing.
PATH=$work:$PATH ./bootstrap.sh tidy >"$work/log" 2>&1 || fail "tidy: exit code $?"
cat "$work/words" >>"$work/log"
[[ $(sed -n 1p "$work/words") == cmake*" -B build/tidy "*"RIPSTOP_UNITY=OFF"* ]] || fail "tidy: no folder of single sources"
[[ $(sed -n 2p "$work/words") == "clang-tidy --quiet -p build/tidy data/files/file.cpp" ]] || fail "tidy: not by that folder"
