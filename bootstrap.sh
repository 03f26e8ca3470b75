#!/usr/bin/env bash
# From a bare machine to a trained model. Each verb prints the lines it runs: run them by hand if you prefer.
#
#   ./bootstrap.sh deps         install what the build needs (Debian, Ubuntu), or say what is missing and how to get it;
#                               deps --slurm: as root also Slurm, not started, for tests on simulated nodes
#   ./bootstrap.sh build        configure and compile in build/cpu-release; --target ripstop: only the program
#   ./bootstrap.sh quickstart   deps, build, train a small summariser on 4 ranks, show its work (3 minutes)
#   ./bootstrap.sh test         deps, build, then all tests
#   ./bootstrap.sh format       clang-format every source file in place
#   ./bootstrap.sh tidy         clang-tidy every source file
#
# RIPSTOP_PRESET=cpu-debug builds and tests with AddressSanitizer and UndefinedBehaviorSanitizer.
# RIPSTOP_JOBS=4 compiles with four processes (default: as many as cores and memory allow).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

preset=${RIPSTOP_PRESET:-cpu-release}
# Package names on Debian 12, Debian 13 and Ubuntu 24.04. git is for the version string, hdf5-tools and jq are for tests.
packages=(g++ cmake ninja-build git openmpi-bin libopenmpi-dev libdnnl-dev libhdf5-dev libsentencepiece-dev
  libpcre2-dev libicu-dev libtomlplusplus-dev nlohmann-json3-dev libcli11-dev libxxhash-dev libfmt-dev libarchive-dev
  zlib1g-dev libgtest-dev hdf5-tools jq)
slurm_packages=(slurm-wlm slurm-client slurmctld slurmd munge iproute2 procps util-linux)

run() {
  printf '+ %s\n' "$*"
  "$@"
}

# run_quietly COMMAND...: prints what COMMAND prints only if it fails. apt-get prints hundreds of lines.
run_quietly() {
  local log status=0
  printf '+ %s\n' "$*"
  log=$(mktemp)
  "$@" >"$log" 2>&1 || status=$?
  if [[ $status -ne 0 ]]; then cat "$log" >&2; fi
  rm -f "$log"
  return "$status"
}

jobs() {
  # A compiler process takes up to 1.5 GiB.
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable/ {print int($2 / 1572864)}' /proc/meminfo 2>/dev/null || echo 1)
  echo $((memory < 1 ? 1 : memory < cores ? memory : cores))
}

missing_packages() {
  local package
  for package; do
    if [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) != installed ]]; then echo "$package"; fi
  done
}

deps() {
  if command -v apt-get >/dev/null; then
    local missing
    mapfile -t missing < <(missing_packages "${packages[@]}")
    if [[ ${#missing[@]} -eq 0 ]]; then
      return
    fi
    if [[ $EUID -eq 0 ]]; then
      run_quietly apt-get update -qq
      run_quietly env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null
      return
    fi
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
      sudo -n true 2>/dev/null || run sudo -v # asks for the password, which the quiet lines below cannot
      run_quietly sudo apt-get update -qq
      run_quietly sudo env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null
      return
    fi
    echo "Missing packages, to be installed by an administrator: ${missing[*]}"
  fi
  without_root
}

# The tests start their own Slurm in namespaces. Debian starts the daemons of these packages at installation,
# unless a policy forbids that (invoke-rc.d(8)).
slurm_deps() {
  local missing policy=/usr/sbin/policy-rc.d made=false
  mapfile -t missing < <(missing_packages "${slurm_packages[@]}")
  if [[ ${#missing[@]} -eq 0 ]]; then return; fi
  if [[ $EUID -ne 0 ]] || ! command -v apt-get >/dev/null; then
    echo "The tests on simulated nodes are skipped without: ${missing[*]} (as root on Debian or Ubuntu: ./bootstrap.sh deps --slurm)"
    return
  fi
  if [[ ! -e $policy ]]; then
    made=true
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod +x $policy
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  fi
  run_quietly apt-get update -qq
  run_quietly env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null
  if $made; then rm -f $policy && trap - EXIT; fi
}

# A new build folder compiles several sources as one, in two thirds of the time. An existing folder keeps its
# setting, because developers want single sources.
configure() {
  local whole=()
  if [[ ! -e build/$preset/CMakeCache.txt ]]; then whole=(-D RIPSTOP_UNITY=ON); fi
  run cmake --preset "$preset" ${whole[@]+"${whole[@]}"}
  # build/editor has the compile commands of single sources, for editors. Nothing is compiled there.
  if run_quietly cmake --preset "$preset" -B build/editor -D RIPSTOP_UNITY=OFF -D CMAKE_DISABLE_PRECOMPILE_HEADERS=ON; then
    ln -sf build/editor/compile_commands.json .
  fi
}

# On clusters nothing can be installed: uses what the site, Spack or conda has. CMake names what is missing.
without_root() {
  local tool
  for tool in g++ cmake ninja; do
    if ! command -v $tool >/dev/null; then
      echo "$tool is not on PATH. Clusters: module avail; or: python3 -m pip install --user cmake ninja" >&2
      exit 78
    fi
  done
  if ! configure; then
    cat >&2 <<'TEXT'

What is named above can come from the site's modules, from Spack or from conda-forge; docs/slurm.md, "Without root",
has the lines. Then tell CMake where it lies:  export CMAKE_PREFIX_PATH=/path/to/spack/view   (or "$CONDA_PREFIX")
TEXT
    exit 78
  fi
}

# build [--target NAME]: without a target, the program and its tests
build() {
  configure
  run cmake --build --preset "$preset" -j "${RIPSTOP_JOBS:-$(jobs)}" "$@"
}

test_all() {
  run ctest --preset "$preset" -j "$(nproc)" "$@"
}

sources() {
  git ls-files '*.h' '*.cpp' '*.cu' '*.cuh'
}

verb=${1:-help}
[[ $# -eq 0 ]] || shift
case $verb in
  deps)
    deps
    if [[ ${1:-} == --slurm ]]; then slurm_deps; fi
    ;;
  build) build "$@" ;;
  quickstart)
    deps
    build --target ripstop
    run slurm/quickstart.sbatch "$@"
    ;;
  test)
    deps
    build
    test_all "$@"
    ;;
  format)
    sources | run xargs clang-format -i
    ;;
  tidy)
    # Another folder, because a unity build has no compile commands of single sources. Nothing is compiled.
    run cmake --preset "$preset" -B build/tidy -D RIPSTOP_UNITY=OFF
    # Kernels use vector extensions of g++ that clang does not know.
    sources | grep '\.cpp$' | grep -v '^model/kernels/' | run xargs -P "$(nproc)" -n 4 clang-tidy --quiet -p build/tidy
    ;;
  help | -h | --help) sed -n '2,/^set -/{/^set -/d;s/^# \?//p}' "$0" ;;
  *)
    echo "bootstrap.sh: no verb '$verb'; see ./bootstrap.sh --help" >&2
    exit 64
    ;;
esac
