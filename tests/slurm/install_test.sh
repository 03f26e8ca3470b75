#!/usr/bin/env bash
# `cmake --install` into a folder of its own: the program, the job files, and a module file that leads to both.
#   install_test.sh CMAKE BUILD_FOLDER
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "FAILED: $*"
  exit 1
}
"$1" --install "$2" --prefix "$work/site" >"$work/log" 2>&1 || fail "cmake --install: $(tail -n 3 "$work/log")"
module=$(find "$work/site/share/modulefiles/ripstop" -type f)
[[ -f $module ]] || fail "no module file"
if grep -n '@' "$module"; then fail "a word of the module file was not filled in"; fi
# value COMMAND NAME: the last argument of a line of the module file
value() { sed -n "s|^$1 $2 \"\(.*\)\"\$|\1|p" "$module"; }
mapfile -t folders < <(value prepend-path PATH)
[[ ${#folders[@]} -eq 2 ]] || fail "PATH gets ${#folders[@]} folders: ${folders[*]}"
PATH=${folders[0]}:${folders[1]}:/usr/bin:/bin
[[ $(command -v ripstop) == "$work/site/bin/ripstop" ]] || fail "ripstop is not on PATH"
[[ ${module##*/} == "$(ripstop --version | cut -d' ' -f2)" ]] || fail "the module is ${module##*/}, the program $(ripstop --version)"
slurm=$(value setenv RIPSTOP_SLURM)
for script in launch.sh job.sh requeue.sh env.sh train.sbatch; do
  [[ $(command -v $script) == "$slurm/$script" ]] || fail "$script is not on PATH"
done
[[ -f $(value setenv RIPSTOP_CONFIGS)/quickstart.toml ]] || fail "no configs"
# From any folder: job files find their scripts and the program on PATH.
cd "$work"
code=0
RIPSTOP_RANKS=2 RIPSTOP_LAUNCHER=mpirun bash "$slurm/train.sbatch" absent.toml >"$work/log" 2>&1 || code=$?
[[ $code -eq 64 ]] && grep -q absent.toml "$work/log" || fail "train.sbatch of the installed folder: $code, $(tail -n 2 "$work/log")"
if command -v tclsh >/dev/null; then
  tclsh <(printf 'proc %s args {}\n' module-whatis conflict prepend-path setenv && cat "$module") || fail "tclsh refuses the module file"
fi
