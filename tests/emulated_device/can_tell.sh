#!/usr/bin/env bash
# Whether the emulated GPU can tell: plants faults in a copy of the source, one at a time (waits, polls, barriers, strides,
# layouts that are missing or wrong), and runs the cheapest test that should notice each. Prints a table, fault by test and
# message. Takes a build from nothing and some minutes; no part of ctest.
#   tests/emulated_device/can_tell.sh                 all of it, in a temporary folder
#   tests/emulated_device/can_tell.sh --plant TREE    only plants them in a copy of the tree
#   tests/emulated_device/can_tell.sh --build FOLDER  only runs the programs that such a tree gave (its target emulated_short)
#   tests/emulated_device/can_tell.sh --only 3,7      only these faults
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
. "$source/tests/planting.sh"
build='' plant='' only=''
while [[ $# -gt 0 ]]; do
  case $1 in
    --plant) plant=${2:?--plant TREE} && shift ;;
    --build) build=$(realpath "${2:?--build FOLDER}") && shift ;;
    --only) only=,${2:?--only NUMBER,...}, && shift ;;
    *) sed -n '2,/^set -/{/^set -/d;s/^# \?//p}' "$0" && exit 64 ;;
  esac
  shift
done

# ---- the faults: number, what is wrong, the test that should notice it (a line of the table of tests below)

faults=(
  '1|a collective does not wait for the work that writes its input|steps Float32'
  '2|a stream does not wait for the end of its collective|steps Float32'
  '3|weights for writing are overwritten while they are read|writing'
  '4|weights for writing are read before they have come|writing'
  '5|a staging buffer is filled again before the copy from it is done|device Copies.LargeOnes*'
  '6|a part of a copy to the host is read before it has come|device Copies.LargeOnes*'
  '7|the host does not wait for the end of a stream|device Copies.TheHostWaits*'
  '8|fresh memory is given out before it is cleared|device Copies.FreshMemory*'
  '9|fresh memory of NCCL is given out before it is cleared|nccl 2.28 NcclRanks.MemoryOfNccl*'
  '10|memory of NCCL is freed while work uses it|nccl 2.28 NcclRanks.MemoryOfNccl*'
  '11|the time of a product is asked for before the product is done|ops *LinearTest.Forward*'
  '12|a registration ends while a collective uses the memory|nccl 2.28 NcclRanks.RegisteredMemory*'
  '13|a call of NCCL is not polled until it is done|nccl 2.28 NcclRanks.AllGatherAsOverMpi'
  '14|NCCL before 2.26 is not asked to end the group of a call|nccl 2.19 NcclRanks.AnotherGroup*'
  '15|gathered weights are used before they have come|steps Float32'
  '16|a slot of gradients is given back before its reduction is done|steps Float32'
  '17|a sum over replicas does not begin behind the reduction of its gradient|steps4 Float32'
  '18|gradients are used before they are summed over replicas|steps Float32'
  '19|the input of a tensor-parallel layer is used before it is gathered again|steps Float32'
  '21|rows of a peer are used before they have come|steps TiedAndOverlapping'
  '22|pieces of the peers are summed before they have come|steps TiedAndOverlapping'
  '23|what NCCL sends in bfloat16 is summed before it has come|nccl 2.28 NcclRanks.ReduceScatterAsOverMpi'
  '24|D1: nobody waits for the thread that splits a group|nccl 2.28 NcclRanks.SplitsOfSplits'
  '25|D2: nobody waits for the thread that registers a window|nccl 2.28 NcclRanks.RegisteredMemory*'
  '26|a message of a pipeline is received while its memory is in use|pipeline Float32'
  '27|a message of a pipeline is sent before it is computed|pipeline Float32'
  '28|a stage computes on a message before it has come|pipeline Float32'
  '29|a stage writes over a message that is being sent|pipeline Float32'
  '31|a barrier: sums of the warps are read before they are written|ops *NormTest*'
  '32|a barrier: sums of the warps are written again while they are read|ops *NormTest*'
  '33|a barrier: statistics of the warps are read before they are written|ops *VocabularyTest.CrossEntropy*'
  '34|a barrier: partial gradients of the weight are read before they are written|ops *NormTest.Backward*'
  '35|a barrier: weights of the softmax are read before they are written|ops *AttentionTest.Forward*float32'
  '36|a barrier: the query of cached attention is read before it is written|ops *AttentionTest.Cached*'
  '37|a barrier: parts of cached attention are joined before they are written|ops *AttentionTest.Cached*'
  '41|attention: keys and values with exchanged strides|ops *AttentionTest.Forward*bfloat16'
  '42|attention: log-sum-exp with the strides of another layout|ops *AttentionTest.Forward*bfloat16'
  '43|attention: values at the offset of keys|ops *AttentionTest.Forward*bfloat16'
  '44|attention: gradients of keys at the offsets of queries|ops *AttentionTest.Backward*bfloat16'
  '51|a product: the leading dimension of the weight|ops *LinearTest.Forward*'
  '52|a product: the gradient of the weight is transposed|ops *LinearTest.BackwardWeight*'
  '53|a product: the leading dimension of what backward multiplies|ops *LinearTest.BackwardInput*'
)

plant_faults() {
  begin_planting "$1" model/device/cuda_device.cpp parallel/{nccl_communicator,nccl_group,nccl_library}.cpp \
    parallel/{fsdp_unit,pipeline_links,sharded_transformer,sharded_transformer_weights,tensor_parallel}.cpp \
    model/kernels/cuda/{reduce.cuh,head_loss.cu,row_sums.cuh,plain_attention.cuh,cached_attention.cu} \
    model/kernels/cuda/{attention_graph,attention_plans,gemm,gemm_plans}.cpp
  change parallel/nccl_group.cpp 'issued_.make_wait(native());' '  if (!planted(1)) issued_.make_wait(native());'
  change parallel/nccl_communicator.cpp 'collective.end.make_wait(stream);' \
    '    if (!planted(2)) collective.end.make_wait(stream);'
  change parallel/sharded_transformer_weights.cpp 'stream_.wait_for(whole.stream_);  //' \
    '  if (!planted(3)) stream_.wait_for(whole.stream_);'
  change parallel/sharded_transformer_weights.cpp 'whole.stream_.wait_for(stream_);' \
    '  if (!planted(4)) whole.stream_.wait_for(stream_);'
  change model/device/cuda_device.cpp 'wait_for(staging_[current_].left);' \
    '  if (!planted(5)) wait_for(staging_[current_].left);'
  change model/device/cuda_device.cpp 'wait_for(staging_[part.buffer].left);' \
    '    if (!planted(6)) wait_for(staging_[part.buffer].left);'
  change model/device/cuda_device.cpp 'wait_for(end_);' '  if (!planted(7)) wait_for(end_);'
  change model/device/cuda_device.cpp 'check_cuda(cudaStreamSynchronize(nullptr), "cudaMemset");' \
    '  if (!planted(8)) check_cuda(cudaStreamSynchronize(nullptr), "cudaMemset");'
  change parallel/nccl_library.cpp 'check_cuda(cudaStreamSynchronize(nullptr), "cudaMemset");' \
    '  if (!planted(9)) check_cuda(cudaStreamSynchronize(nullptr), "cudaMemset");'
  change parallel/nccl_library.cpp 'static_cast<void>(cudaDeviceSynchronize());' \
    '  if (!planted(10)) static_cast<void>(cudaDeviceSynchronize());'
  change model/kernels/cuda/gemm_plans.cpp 'end.synchronize();' \
    '      if (!planted(11)) end.synchronize();'
  change parallel/nccl_group.cpp 'group_.stream().synchronize();' \
    '      if (!planted(12)) group_.stream().synchronize();'
  change parallel/nccl_group.cpp 'if (result == ncclInProgress) {' \
    '  if (planted(13) && result == ncclInProgress) return;
&LINE&'
  change parallel/nccl_group.cpp 'if (result == ncclSuccess) result = ncclCommCount(comm_, &ranks);' \
    '    if (result == ncclSuccess && !planted(14)) result = ncclCommCount(comm_, &ranks);'
  change parallel/fsdp_unit.cpp 'gathering_.wait();' '  if (!planted(15)) gathering_.wait();'
  change parallel/fsdp_unit.cpp 'reducing_.wait();' '  if (!planted(16)) reducing_.wait();'
  change parallel/fsdp_unit.cpp 'sum_scratch_, reduces_on());' \
    '      replicate.start_all_reduce(resources_.stream, gradient_, needs.travel, sum_scratch_,
                                 planted(17) ? &resources_.stream : reduces_on());'
  change parallel/fsdp_unit.cpp 'summing_.wait();' '  if (!planted(18)) summing_.wait();'
  change parallel/tensor_parallel.cpp 'gathering.wait();' '    if (!planted(19)) gathering.wait();'
  change parallel/tensor_parallel.cpp 'nearer.wait();' '  if (!planted(21)) nearer.wait();'
  change parallel/tensor_parallel.cpp 'first.wait();
  others.wait();' \
    '  if (!planted(22)) first.wait(), others.wait();'
  change parallel/nccl_communicator.cpp 'reduce_pieces(group_->stream(), pieces, own, accumulate);' \
    '  if (planted(23)) return reduce_pieces(Stream(whole.device), pieces, own, accumulate);
&LINE&'
  change parallel/nccl_group.cpp 'comm_ = static_cast<ncclComm_t>(whole.wait_for_result("ncclCommSplit"' \
    '  if (planted(24)) {
    whole.check(ncclCommSplit(whole.comm_, part, static_cast<int>(key), &comm_, &chosen), "ncclCommSplit");
    if (!alone) check(ncclInProgress, "ncclCommSplit");
    return;
  }
&LINE&'
  change parallel/nccl_group.cpp 'window_ = group.wait_for_result("ncclCommWindowRegister", [&](void** place) {
      return register_window(group.comm(), data, bytes, place);
    });' \
    '    if (planted(25))
      group.check(register_window(group.comm(), data, bytes, &window_), "ncclCommWindowRegister");
    else
&LINE&'
  change parallel/nccl_group.cpp 'if (behind != nullptr) return behind->make_wait(stream_);' \
    '  if (planted(26) && behind != nullptr) return;
&LINE&'
  change parallel/nccl_communicator.cpp 'group_->begin(stream);
  group_->check(send(x, to), "ncclSend");' \
    '  if (!planted(27)) group_->begin(stream);
  group_->check(send(x, to), "ncclSend");'
  change parallel/pipeline_links.cpp 'end(message.pending);
  return message.buffer;' \
    '  if (planted(28)) message.pending.leave();
&LINE&'
  change parallel/pipeline_links.cpp 'left_[buffer].make_wait(context_.stream);' \
    '  if (!planted(29)) left_[buffer].make_wait(context_.stream);'
  change model/kernels/cuda/reduce.cuh 'of_warp[warp_number()] = x;
  __syncthreads();' \
    '  if (lane_number() == 0) of_warp[warp_number()] = x;
  if (!planted(31)) __syncthreads();'
  change model/kernels/cuda/reduce.cuh '__syncthreads();  //' '  if (!planted(32)) __syncthreads();'
  change model/kernels/cuda/head_loss.cu '__syncthreads();' '  if (!planted(33)) __syncthreads();'
  change model/kernels/cuda/row_sums.cuh '__syncthreads();' '  if (!planted(34)) __syncthreads();'
  change model/kernels/cuda/plain_attention.cuh '    __syncwarp();' '    if (!planted(35)) __syncwarp();'
  change model/kernels/cuda/cached_attention.cu '__syncthreads();
  const int64_t count' \
    '  if (!planted(36)) &LINE&'
  change model/kernels/cuda/cached_attention.cu '__syncthreads();
  // A warp without' \
    '  if (!planted(37)) &LINE&'
  change model/kernels/cuda/attention_graph.cpp '{s.length * row(), s.head_size, 1, row()}, id, row_offset());' \
    '    const Extents exchanged{s.length * row(), s.head_size, row(), 1};
    if (planted(41)) return graph.tensor(kBFloat16, extents, exchanged, id, row_offset());
&LINE&'
  change model/kernels/cuda/attention_graph.cpp 'const Extents strides{s.length * s.query_heads, 1, s.query_heads, 1};' \
    '    const Extents strides{s.length * s.query_heads, planted(42) ? s.length : 1, planted(42) ? 1 : s.query_heads, 1};'
  change model/kernels/cuda/attention_plans.cpp 'bind(kValue, place(o.qkv.data, bytes * (o.heads.query + o.heads.key_value)));' \
    '    bind(kValue, place(o.qkv.data, bytes * (o.heads.query + (planted(43) ? 0 : o.heads.key_value))));'
  change model/kernels/cuda/attention_plans.cpp 'bind(kOffsetKeyValue, offsets.key_value + first);' \
    '    if (backward) bind(kOffsetKeyValue, (planted(44) ? offsets.query : offsets.key_value) + first);'
  change model/kernels/cuda/gemm.cpp '.lda = w.stride(),
                  .ldb = x.stride(),' \
    '                  .lda = planted(51) ? w.rows() : w.stride(),
                  .ldb = x.stride(),'
  change model/kernels/cuda/gemm.cpp '.transpose_b = true' '                  .transpose_b = !planted(52)},'
  change model/kernels/cuda/gemm.cpp '.lda = w.stride(),
                  .ldb = dy.stride(),' \
    '                  .lda = w.stride(),
                  .ldb = planted(53) ? dy.rows() : dy.stride(),'
}

if [[ $plant ]]; then
  plant_faults "$plant"
  exit
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [[ -z $build ]]; then
  copy_source "$source" "$work/tree"
  (plant_faults "$work/tree")
  (cd "$work/tree" && cmake --preset cpu-release -D RIPSTOP_UNITY=ON -D RIPSTOP_EMULATED_CUDA=ON >"$work/log" 2>&1 &&
    cmake --build --preset cpu-release --target emulated_short >>"$work/log" 2>&1) || { tail -n 20 "$work/log" && exit 1; }
  build=$work/tree/build/cpu-release
fi

# ---- the table

export OMP_NUM_THREADS=1 RIPSTOP_LAUNCHER=mpirun RIPSTOP_CACHE=$work/cache GTEST_COLOR=no
programs=$build/tests/emulated_device
# run FAULT SEED TEST: exit code into `code`, what it said into $work/out
run() {
  local ranks=2 command=() words settings=(RIPSTOP_PLANTED="$1" RIPSTOP_EMULATED_SEED="$2" RIPSTOP_EMULATED_SEEDS=$(($1 == 0 ? 2 : 10 * $2)))
  read -ra words <<<"$3"
  case ${words[0]} in
    device) command=("$programs/emulated_device_test" --gtest_filter="${words[1]}") ;;
    ops) command=("$programs/emulated_op_tests" --gtest_filter="${words[1]}") ;;
    nccl)
      command=("$programs/emulated_rank_tests" --device=cuda --gtest_filter="${words[2]}")
      settings+=(RIPSTOP_EMULATED_NCCL="${words[1]}")
      ;;
    writing) command=("$programs/emulated_rank_tests" --device=cuda --gtest_filter='EmulatedWriting*') ;;
    steps* | pipeline) command=("$programs/emulated_rank_tests" --device=cuda --gtest_filter="*EmulatedSteps*/${words[1]}") ;;
  esac
  case ${words[0]} in
    steps4) ranks=4 settings+=(RIPSTOP_EMULATED_MESH="replicate 2 x fsdp 2 x tensor 1") ;;
    pipeline) settings+=(RIPSTOP_EMULATED_MESH="replicate 1 x pipeline 2 x fsdp 1 x tensor 1") ;;
    device | ops) ranks=1 ;;
  esac
  if ((ranks > 1)); then command=("$source/slurm/launch.sh" "$ranks" "${command[@]}"); fi
  code=0
  rm -rf "$RIPSTOP_CACHE" # algorithms are timed in each run
  env "${settings[@]}" timeout -k 5 300 "${command[@]}" >"$work/out" 2>&1 || code=$?
}

# The test that failed first, and its message in one line.
reason() {
  awk '
    /^\[ RUN/ { test = $NF }
    /emulated device, rank|FATAL|AddressSanitizer/ { if (line == "") of = test; line = $0; exit }
    /Failure$|^rank [0-9]+: [^ ]+:[0-9]+: / {
      if (line != "") exit
      of = test
      sub(/^rank [0-9]+: /, ""); sub(/.*\/tests\//, "tests/"); sub(/: Failure$/, ":")
      line = $0; more = 3; next
    }
    more > 0 { sub(/^ +/, ""); line = line " " $0; if (--more == 0) exit }
    END { gsub(/[|]/, "/", line); print (of == "" ? test : of) ": " substr(line, 1, 160) }' "$work/out"
}

failed=0 sound=' '
for row in "${faults[@]}"; do
  IFS='|' read -r number what test <<<"$row"
  if [[ $only && $only != *",$number,"* ]]; then continue; fi
  if [[ $sound != *" [$test] "* ]]; then
    run 0 1 "$test"
    if ((code != 0)); then echo "without a fault, '$test' ends with $code:" && tail -n 20 "$work/out" && exit 1; fi
    if ! grep -q 'PASSED.* [1-9]' "$work/out"; then echo "'$test' runs no test" && exit 1; fi
    sound+="[$test] "
  fi
  for seed in 1 2 3; do
    run "$number" $seed "$test"
    if ((code != 0)); then break; fi
  done
  if ((code == 0)); then
    verdict='NOT NOTICED' failed=1
  else
    verdict=$(reason)
  fi
  printf '| %s | %s | %s |\n' "$number" "$what" "$verdict"
done
exit $failed
