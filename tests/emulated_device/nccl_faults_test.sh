#!/usr/bin/env bash
# The emulated NCCL notices what hangs, crashes or mixes data with the real one: the run ends, and a line names both sides.
#   nccl_faults_test.sh LAUNCH PROGRAM      LAUNCH = slurm/launch.sh, PROGRAM = nccl_faults
set -uo pipefail
launch=$1 program=$2 failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# run RANKS MODE [NAME=VALUE...]: leaves exit code and log.
run() {
  local ranks=$1 mode=$2
  shift 2
  env "$@" timeout -k 5 60 "$launch" "$ranks" "$program" "$mode" >"$log" 2>&1
  code=$?
}
# expect MODE TEXT [NAME=VALUE...]: a line of the log has TEXT, and the run fails; with an empty TEXT it succeeds.
expect() {
  local mode=$1 text=$2
  shift 2
  run 2 "$mode" "$@"
  if [[ -z $text && $code -ne 0 ]] || { [[ -n $text ]] && { ((code == 0 || code >= 124)) || ! grep -qE "$text" "$log"; }; }; then
    echo "$mode $*: exit code $code, expected '$text'"
    cat "$log"
    failed=1
  else
    echo "$mode $*: exit code $code: $(grep -m1 -E "${text:-^$}" "$log")"
  fi
}

expect nothing ''
expect count 'rank [01] is in ncclAllGather of (128|256) ncclUint8, rank [01] in ncclAllGather of (256|128) ncclUint8'
expect type 'ncclAllGather of 64 ncclFloat32.*ncclAllGather of 64 ncclInt32|ncclInt32.*ncclFloat32'
expect root 'from root 0.*from root 1|from root 1.*from root 0'
expect reduction 'reduction 0.*reduction 2|reduction 2.*reduction 0'
expect order 'ncclAllGather of 100.*ncclAllReduce of 256|ncclAllReduce of 256.*ncclAllGather of 100'
expect exchange 'rank 1 is in ncclRecv of 64 ncclUint8 from rank 0, rank 0 in ncclSend of 32 ncclUint8 to rank 1'
expect host_memory 'at the call: .* is no memory of the device'
expect overlap 'input and output overlap, and not in place'
expect free 'ncclMemFree: ncclAllGather of 100 ncclUint8 on .* still uses the memory'
expect registered 'ncclMemFree: the memory is still registered'
expect deregister 'ncclCommDeregister: ncclAllGather of 100 ncclUint8 on .* still uses this memory'
expect window_size '(4096|8192) bytes at byte 0 of a block on rank [01], (8192|4096) at byte 0 on rank [01]'
expect window_offset 'at byte 65792 of its window.*at byte 65536 of its window|at byte 65536 .*at byte 65792 '
expect register_under_way 'ncclCommRegister: .* is not done with its previous call'
expect destroyed 'this communicator was destroyed'
expect lists '' RIPSTOP_EMULATED_NCCL=2.27
for version in 2.19 2.21; do
  expect lists 'NCCL before 2.26 follows the list of that group and crashes' RIPSTOP_EMULATED_NCCL=$version
done

# Collectives that fill the GPU must begin in the same order on all ranks. NCCL sees to it if ripstop asks for it.
for seed in 1 2 3; do
  expect begin_order '' RIPSTOP_EMULATED_SEED=$seed RIPSTOP_EMULATED_NCCL_ROOM=1
done
for seed in $(seq 12); do
  run 2 begin_order RIPSTOP_EMULATED_SEED="$seed" RIPSTOP_EMULATED_NCCL_ROOM=1 NCCL_LAUNCH_ORDER_IMPLICIT=0
  ((code == 0)) || break
done
if ((code == 76)) && grep -qE 'FATAL code=76 all_reduce on (first|second)' "$log"; then
  echo "begin_order without a launch order, seed $seed: $(grep -m1 FATAL "$log")"
else
  echo "begin_order without a launch order: exit code $code after $seed seeds, expected a wait that ends by its deadline"
  cat "$log"
  failed=1
fi
exit "$failed"
