#!/usr/bin/env bash
# The module file that `cmake --install` makes, loaded and unloaded as users do it, by whichever is installed: Environment Modules
# (modulecmd), Lmod. Skipped with the reason if none is.
#   module_test.sh CMAKE BUILD_FOLDER
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "FAILED: $*"
  exit 1
}
environment_modules=$(command -v modulecmd) || environment_modules=
lmod=${LMOD_CMD:-/usr/share/lmod/lmod/libexec/lmod}
[[ -x $lmod ]] || lmod=
if [[ -z $environment_modules && -z $lmod ]]; then
  echo "skipped: there is no modulecmd and no Lmod (Debian, Ubuntu: the packages environment-modules and lmod)"
  exit 77
fi
"$1" --install "$2" --prefix "$work/site" >"$work/log" 2>&1 || fail "cmake --install: $(tail -n 3 "$work/log")"

# In a shell that knows nothing else. $1: the command, which prints lines for the shell; $2: where ripstop is installed.
cat >"$work/user" <<'USER'
set -euo pipefail
fail() {
  echo "FAILED: $*"
  exit 1
}
module() { eval "$("$command" bash "$@")"; }
command=$1 site=$2 path=$PATH
module load ripstop
[[ $(command -v ripstop) == "$site/bin/ripstop" ]] || fail "ripstop is not on PATH: $PATH"
ripstop --version
for script in launch.sh job.sh requeue.sh train.sbatch; do
  [[ $(command -v $script) == "$RIPSTOP_SLURM/$script" ]] || fail "$script is not on PATH: $PATH"
done
[[ -f $RIPSTOP_SLURM/env.sh && -f $RIPSTOP_CONFIGS/quickstart.toml ]] || fail "no env.sh, or no configs"
help=$("$command" bash help ripstop 2>&1)
[[ $help == *'sbatch $RIPSTOP_SLURM/train.sbatch'* ]] || fail "module help: $help"
module unload ripstop
[[ $PATH == "$path" && -z ${RIPSTOP_SLURM:-}${RIPSTOP_CONFIGS:-} ]] || fail "unloaded, it leaves $PATH, ${RIPSTOP_SLURM:-}"
USER
for command in $environment_modules $lmod; do
  env -i HOME="$work" PATH=/usr/bin:/bin MODULEPATH="$work/site/share/modulefiles" bash "$work/user" "$command" "$work/site" \
    >"$work/log" 2>&1 || fail "$command: $(<"$work/log")"
  echo "$command loads and unloads it: $(<"$work/log")"
done
