#!/usr/bin/env bash
# Fails if kernels compiled for one instruction set define weak symbols outside of their own namespace. The linker keeps
# one copy of each such symbol, so a processor without these instructions could run it.
#   tests/model/instruction_sets_test.sh NAMESPACE OBJECT...
set -euo pipefail
namespace=$1; shift

# Prints the weak symbols of the objects that another instruction set, or other code, could share.
shared_symbols() { nm --demangle --defined-only -- "$@" | awk '$2 ~ /^[WVu]$/' | grep -v "ripstop::$namespace::" || true; }

# The test can fail: an inline function that is not inlined is such a symbol.
planted=$(mktemp -d)
trap 'rm -rf "$planted"' EXIT
echo 'inline int shared(int x) { return x + 1; } int (*keep)(int) = shared;' >"$planted/shared.cpp"
"${CXX:-c++}" -c "$planted/shared.cpp" -o "$planted/shared.o"
[[ -n $(shared_symbols "$planted/shared.o") ]] || { echo "instruction_sets_test is blind"; exit 1; }

found=$(shared_symbols "$@")
[[ -z $found ]] || { printf 'shared between instruction sets:\n%s\n' "$found"; exit 1; }
