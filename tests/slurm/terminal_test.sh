#!/usr/bin/env bash
# slurm/launch.sh and a job file at a real terminal: the keys of a person reach the ranks as they should, and the last
# lines on the screen are ours.      terminal_test.sh RIPSTOP
set -euo pipefail
cd "$(dirname "$0")/../.."
ripstop=$1
export RIPSTOP_LAUNCHER=mpirun OMP_NUM_THREADS=1 TERM=xterm
unset "${!SLURM_@}" "${!OMPI_@}" "${!PMIX_@}" NO_COLOR RIPSTOP_TERMINAL
work=$(mktemp -d)
trap 'exec 9>&-; rm -rf "$work"' EXIT
screen=$work/screen
if ! script -qfc true /dev/null </dev/null >"$work/script" 2>&1; then
  echo "skipped: no pseudo-terminal here: $(tail -n 1 "$work/script")"
  exit 77
fi
fail() {
  echo "FAILED: $*"
  cat -v "$screen"
  exit 1
}

# at_terminal COMMAND...: runs it at a pseudo-terminal of 80 columns. Descriptor 9 is the keyboard, $screen what was shown.
at_terminal() {
  rm -f "$work/keys" "$screen" "$work/code" "$work"/may_end "$work"/saved.*
  mkfifo "$work/keys"
  printf 'stty cols 80\n%s\necho $? >%q\n' "$(printf '%q ' "$@")" "$work/code" >"$work/command"
  # Without `trap`, what runs in the background would be deaf to Ctrl-C.
  (trap - INT && exec script -qfc "bash $work/command" "$screen" <"$work/keys" >/dev/null 2>&1) &
  terminal=$!
  exec 9>"$work/keys"
}
# shown TEXT [TIMES]: waits until the screen shows TEXT
shown() {
  local waited
  for ((waited = 0; waited < 3000; waited++)); do
    if (($({ grep -aoF -- "$1" "$screen" 2>/dev/null || true; } | wc -l) >= ${2:-1})); then return; fi
    if ! kill -0 $terminal 2>/dev/null; then break; fi
    sleep 0.1
  done
  grep -qaF -- "$1" "$screen" || fail "the screen never shows '$1'"
}
key() { printf "$1" >&9; }
# ended CODE LINE: the command ended with CODE, and LINE is the last one on the screen
ended() {
  wait $terminal || true
  exec 9>&-
  [[ $(cat "$work/code") -eq $1 ]] || fail "exit code $(cat "$work/code"), expected $1"
  tr -d '\r' <"$screen" | sed -e '/^Script /d' -e 's/\x1b\[[0-9;]*[mK]//g' | grep -v '^$' | tail -n 1 >"$work/last"
  [[ $(cat "$work/last") == *"$2" ]] || fail "the last line is '$(cat "$work/last")', expected '$2'"
  if grep -qaiE 'mpirun|prterun|prte|open mpi' "$screen"; then fail "mpirun's own text"; fi
}

# A rank that saves for as long as the test wants it to. The first rank that ends with 75 takes the others with it, so it waits for
# them.
cat >"$work/saves" <<RANK
until_there() { until [[ -e \$1 ]]; do sleep 0.1; done; }
save() {
  echo saving
  until_there "$work/may_end"
  echo saved
  : >"$work/saved.\${OMPI_COMM_WORLD_RANK:-\$PMIX_RANK}"
  until_there "$work/saved.0"
  until_there "$work/saved.1"
  exit 75
}
trap save USR1
trap 'echo killed by SIGTERM; exit 1' TERM
echo begun
while :; do sleep 0.1; done
RANK
# both_save: they are asked, take longer than the second that mpirun gives its ranks after Ctrl-C, and end
both_save() {
  shown saving 2
  sleep 1.5
  : >"$work/may_end"
  ended 75 saved
  [[ $(grep -ac '^saved' "$screen") -eq 2 ]] || fail "a rank did not save"
}
# clock TIME...: for bash_env, what launch.sh reads from the clock, one after the other
clock() { printf 'unset EPOCHREALTIME SECONDS\nclock=(%s) tick=0\ndeclare -n %s="clock[tick++]"\n' "${*:2}" "$1" >"$work/clock"; }
# launched COMMAND...: launch.sh at a terminal with this clock; its number is in $work/pid
launched() { at_terminal bash -c "echo \$\$ >$work/pid; BASH_ENV=$work/clock exec slurm/launch.sh 2 $*"; }

echo "Ctrl-C: both ranks save"
at_terminal slurm/launch.sh 2 bash "$work/saves" train
shown begun 2
key '\003'
both_save
grep -qa 'launch.sh: stopping, train saves first; Ctrl-C again ends it without saving' "$screen" || fail "nothing says what happens"

for signal in TERM HUP; do
  echo "SIG$signal to launch.sh: both ranks save"
  at_terminal bash -c "echo \$\$ >$work/pid; exec slurm/launch.sh 2 bash $work/saves"
  shown begun 2
  kill -$signal "$(cat "$work/pid")"
  both_save
done

echo "SIGINT twice within a second, as timeout sends it: one request"
clock EPOCHREALTIME 7.900000 7.900000 8.800000
launched bash "$work/saves" train
shown begun 2
kill -INT "$(cat "$work/pid")"
shown 'launch.sh: stopping, train saves first'
kill -INT "$(cat "$work/pid")"
both_save

echo "The same where bash knows whole seconds only, and the two lie in different ones"
clock SECONDS 7 8
launched bash "$work/saves" train
shown begun 2
kill -INT "$(cat "$work/pid")"
shown 'launch.sh: stopping, train saves first'
kill -INT "$(cat "$work/pid")"
both_save

echo "Ctrl-C again when the ranks have saved and are ending: nothing says that the save is lost"
at_terminal slurm/launch.sh 2 bash -c 'trap "echo saved; sleep 600; exit 75" USR1; echo begun; while :; do sleep 0.1; done' train
shown begun 2
key '\003'
shown saved 2
sleep 1.1 # sooner it would be the same request
key '\003'
ended 130 'launch.sh: killed; the same command goes on from the last checkpoint'

echo "SIGUSR1, and then timeout's two SIGINT: the first interrupt is answered, and none ends the ranks"
clock EPOCHREALTIME 7.900000 7.900000 8.800000
launched bash "$work/saves" train
shown begun 2
kill -USR1 "$(cat "$work/pid")"
shown saving 2
kill -INT "$(cat "$work/pid")"
shown 'launch.sh: stopping, train saves first'
kill -INT "$(cat "$work/pid")"
both_save

echo "Ctrl-Z: the ranks go on"
at_terminal slurm/launch.sh 2 bash "$work/saves" train
shown begun 2
key '\032'
shown 'launch.sh: Ctrl-Z does nothing here: the ranks go on; Ctrl-C stops them'
key '\003'
both_save

echo "Ctrl-C twice: at once"
at_terminal slurm/launch.sh 2 bash "$work/saves"
shown begun 2
key '\003'
shown saving 2
sleep 1.1 # sooner it would be the same request
key '\003'
ended 130 'launch.sh: killed'
! grep -qa '^saved' "$screen" || fail "a rank went on after the second Ctrl-C"

echo "Ctrl-C to ranks that know no request to stop"
at_terminal slurm/launch.sh 2 bash -c 'echo begun; exec sleep 1000'
shown begun 2
key '\003'
ended 130 'launch.sh: stopped by Ctrl-C'
! grep -qa 'was killed' "$screen" || fail "the end that was asked for is told as a failure"

echo "a rank that is killed"
cat >"$work/killed" <<'RANK'
echo begun
if [[ ${OMPI_COMM_WORLD_RANK:-$PMIX_RANK} == 1 ]]; then
  until [[ -e $1 ]]; do sleep 0.1; done # at once, mpirun may not know the rank yet
  kill -KILL $$
fi
sleep 1000
RANK
at_terminal slurm/launch.sh 2 bash "$work/killed" "$work/may_end"
shown begun 2
: >"$work/may_end"
ended 137 "launch.sh: rank 1 was killed by signal 9 (SIGKILL): often lack of memory, and dmesg then names it"

echo "what is typed reaches rank 0"
at_terminal slurm/launch.sh 2 bash -c 'echo begun; read -r line && echo "read: $line"; cat >/dev/null; true'
shown begun 2
key 'a document\n'
shown 'read: a document'
key '\004'
ended 0 'read: a document'

echo "the launcher is killed: so are its ranks"
at_terminal bash -c "echo \$\$ >$work/pid; exec slurm/launch.sh 2 bash $work/saves"
shown begun 2
kill -KILL "$(cat "$work/pid")"
wait $terminal || true
exec 9>&-
for ((waited = 0; waited < 3000; waited++)); do
  if ! grep -qslF "$work/saves" /proc/[0-9]*/cmdline; then break; fi
  sleep 0.1
done
! grep -qslF "$work/saves" /proc/[0-9]*/cmdline || fail "ranks live on"

echo "a typo"
at_terminal slurm/launch.sh 2 "$ripstop" train no.toml --learning_rate 1e-3
ended 64 'optimizer.learning_rate=1e-3'
grep -qa 'error:.* ripstop train has no option --learning_rate' "$screen" || fail "no error for people"
! grep -qa FATAL "$screen" || fail "the machine's form at a terminal"

echo "training: a live line on the screen, whole lines in a log"
awk '/^```toml$/ { inside = 1; next } /^```/ { inside = 0 } inside' README.md >"$work/config.toml"
"$ripstop" prepare --source synthetic --examples 400 --seed 3 --vocab-size 400 --output "$work/data" >"$work/log" 2>&1
train=("$ripstop" train "$work/config.toml" "run.directory=$work/run" "data.directory=$work/data" model.preset=debug
  train.steps=1000000000 train.global_batch_sequences=8 log.every_steps=1000000)
if grep -q $'\r' "$work/log"; then fail "a live line in a log"; fi
at_terminal slurm/launch.sh 2 "${train[@]}"
shown $'\r\e[Kstep ' 3
key '\003'
ended 75 'run the same command again to go on'
if tr '\r' '\n' <"$screen" | sed 's/\x1b\[[0-9;]*[mK]//g' | grep -a '^step' | grep -av grad_norm | grep -qE '.{80}'; then fail "a live line is too long"; fi
slurm/launch.sh 2 "${train[@]}" "run.directory=$work/logged" train.steps=20 >"$work/log" 2>&1 || fail "$(cat "$work/log")"
if grep -q $'\r\|\e' "$work/log"; then fail "a live line in a log"; fi

echo "Ctrl-C without the launcher is answered at once"
at_terminal "${train[@]}"
shown $'\r\e[Kstep ' 3
key '\003'
ended 75 'run the same command again to go on'
grep -qa 'stop requested; Ctrl-C again ends at once' "$screen" || fail "Ctrl-C is not answered"

echo "the job file with Ctrl-C"
PATH=$PWD/slurm:$PATH RIPSTOP_PROGRAM=$ripstop RIPSTOP_RANKS=2 at_terminal bash slurm/train.sbatch "${train[@]:2}"
shown $'\r\e[Kstep ' 3
key '\003'
ended 75 'run the same command again to go on'
