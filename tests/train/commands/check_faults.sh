#!/usr/bin/env bash
# Plants faults in the parallel path of a copy of the source, one at a time, and reports whether `ripstop check` finds each on
# meshes of four ranks, and of pipelines on one of two. Prints tables, fault by mesh. Takes a build from nothing and some minutes;
# no part of ctest.
#   tests/train/commands/check_faults.sh                 all of it, in a temporary folder
#   tests/train/commands/check_faults.sh --plant TREE    only plants them in a copy of the tree; build its target `ripstop`
#   tests/train/commands/check_faults.sh --program FILE  only runs the program that such a tree gave
# section.key=value behind it overrides a key of the checked config, as in precision.compute=bfloat16.
set -euo pipefail
source=$(cd "$(dirname "$0")/../../.." && pwd)
. "$source/tests/planting.sh"
program='' plant='' common=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --plant) plant=${2:?--plant TREE} && shift ;;
    --program) program=$(realpath "${2:?--program FILE}") && shift ;;
    *=*) common+=("$1") ;;
    *) sed -n '2,/^set -/{/^set -/d;s/^# \?//p}' "$0" && exit 64 ;;
  esac
  shift
done

# ---- the faults: number, what is wrong, meshes where it can have no effect and why (t4: tensor 4, f2t2, r2f2), overrides

faults=(
  '1|a sum over the tensor axis that is not scattered: each rank keeps its own part|r2f2: no tensor axis|'
  '2|a wrong divisor: targets of every rank of a tensor group are counted|r2f2: no tensor axis|'
  '3|a wrong divisor: only the targets of data rank 0 are counted|t4: one data rank|'
  '4|a stale gather: units that stay whole are not gathered again after an update|t4: nothing is sharded|train.reshard_after_forward=false'
  '5|swapped ranks in an all-gather||'
  '6|gradients of norms that are not summed over the tensor axis|r2f2: no tensor axis|'
  '7|a gradient norm that is not summed over fsdp and tensor axis||'
  '8|gradients that are not summed over replicas|f2t2 t4: no replicas|'
  '9|a wrong offset of a slice of the vocabulary in the loss|r2f2: no tensor axis|'
  '10|a wrong row offset of what a peer sends of a sequence|r2f2: no tensor axis|mesh.overlap_tensor=true'
  '11|an accumulation that overwrites||'
  '12|padding between tensors that keeps the numbers of another unit|t4: nothing is sharded|'
  '13|a shard that begins in the wrong place|t4: nothing is sharded|'
  '14|a gather that is used before it has arrived|t4: nothing is sharded|'
  '15|adapters: low rows of a sequence that are not gathered over the tensor axis|r2f2: no tensor axis|lora.rank=8'
  '6|adapters: gradients of what each tensor rank has whole, not summed over the tensor axis, as in 6|r2f2: no tensor axis|lora.rank=8'
  '4|adapters: a stale gather, as in 4|t4: nothing is sharded|lora.rank=8 train.reshard_after_forward=false'
  '8|adapters: gradients that are not summed over replicas, as in 8|f2t2 t4: no replicas|lora.rank=8'
  '16|a bias of the output that each tensor rank adds|r2f2: no tensor axis|model.attention_bias=qkvo'
  '17|gradients of norms of heads that count the heads of the first tensor rank alone|r2f2: no tensor axis|model.qk_norm=true'
  '18|biases of queries, keys and values that the first tensor rank alone trains|r2f2: no tensor axis|model.attention_bias=qkv'
  '6|norms of heads and the bias of the output: gradients that are not summed over the tensor axis, as in 6|r2f2: no tensor axis|model.attention_bias=qkvo model.qk_norm=true'
  '13|adapters and their base: a shard that begins in the wrong place, as in 13|t4: nothing is sharded|lora.rank=8'
)
# The same of pipelines, on their meshes (p2 is of two ranks).
pipeline_faults=(
  '19|a boundary without the branch of the last layer||'
  '20|a buffer that is reused before its send has ended||'
  '21|two micro-batches swapped on a link||'
  '22|a layer left out in the forward of the last stage||'
  '23|tied gradients that are not summed||model.tie_word_embeddings=true'
  '24|a tied table that counts twice in the norm||model.tie_word_embeddings=true'
  '25|targets of every stage are counted||'
  '26|positions of another micro-batch in the backward||'
  '27|replicas summed before the last backward|p2 p4 f2p2 t2p2: no replicas|'
  '28|a tied table that the last stage updates a millionth more||model.tie_word_embeddings=true'
  '22|adapters: a layer left out, as in 22||lora.rank=8'
  '21|adapters: two micro-batches swapped, as in 21||lora.rank=8'
)
meshes=('f2t2 mesh.fsdp=2 mesh.tensor=2' 'r2f2 mesh.replicate=2 mesh.fsdp=2 mesh.tensor=1' 't4 mesh.fsdp=1 mesh.tensor=4')
pipelines=('p2 mesh.fsdp=1 mesh.tensor=1 mesh.pipeline=2' 'p4 mesh.fsdp=1 mesh.tensor=1 mesh.pipeline=4'
  'f2p2 mesh.fsdp=2 mesh.tensor=1 mesh.pipeline=2' 't2p2 mesh.fsdp=1 mesh.tensor=2 mesh.pipeline=2'
  'r2p2 mesh.replicate=2 mesh.fsdp=1 mesh.tensor=1 mesh.pipeline=2')

# ---- planting

plant_faults() {
  begin_planting "$1" parallel/{tensor_parallel,fsdp_unit,sharded_transformer,mpi_communicator,pipeline_links}.cpp \
    parallel/fsdp_unit.h train/step/{world_totals,training_step}.cpp model/{attention,head_loss,parallel_linear}.cpp
  change parallel/tensor_parallel.cpp 'group_->reduce_scatter(context.stream, whole, out, out.dtype' \
    '  if (planted(1)) { copy_bytes(context.stream, out.data, whole.row_range(index() * out.rows(), out.rows()).data, out.bytes()); return; }
&LINE&'
  change train/step/world_totals.cpp 'set(kTargets, counts' \
    '  set(kTargets, counts || planted(2) ? static_cast<double>(target_count) : 0);
  if (planted(3) && mesh_.data_rank() != 0) set(kTargets, 0);'
  change parallel/fsdp_unit.h 'void weights_changed() { stale_ = true; }' \
    '  void weights_changed() { if (!planted(4)) stale_ = true; }'
  change parallel/mpi_communicator.cpp 'if (byte_at(all, group_.rank * bytes) != own.data)' \
    '  if (planted(5)) {
    const auto place = [&](int64_t r) { return (r + 1) % group_.size; };
    copy_bytes(stream, byte_at(all, place(group_.rank) * bytes), own.data, bytes);
    Transfer swapped(group_, "all_gather");
    for_peers(group_, [&](int64_t peer) { swapped.receive(byte_at(all, place(peer) * bytes), bytes, peer); });
    for_peers(group_, [&](int64_t peer) { swapped.send(own.data, bytes, peer); });
    return pending(std::move(swapped), stream);
  }
&LINE&'
  change parallel/sharded_transformer.cpp 'if (context.tensor.count() == 1 || count == 0) return;' \
    '  if (context.tensor.count() == 1 || count == 0 || planted(6)) return;'
  change model/parallel_linear.cpp 'context.tensor.gather_rows_of(context, u);' \
    '    if (!planted(15)) context.tensor.gather_rows_of(context, u);'
  change model/attention.cpp 'if (bias_ == AttentionBias::kQkvo) add_bias(context, bo.value, branch);' \
    '  for (int64_t times = planted(16) ? context.tensor.count() : 1; bias_ == AttentionBias::kQkvo && times > 0; --times)
    add_bias(context, bo.value, branch);'
  change model/attention.cpp 'norm_heads_backward(context, saved.qkv, head_norms.value, epsilon_, heads_, dqkv, head_norms.gradient,' \
    '    norm_heads_backward(context, saved.qkv, head_norms.value, epsilon_, heads_, dqkv,
                        planted(17) && context.tensor.index() > 0 ? Tensor{} : head_norms.gradient,'
  change model/attention.cpp 'if (!bqkv.gradient.empty()) add_bias_backward(context, dqkv, bqkv.gradient, bqkv.accumulate);' \
    '  if (!bqkv.gradient.empty() && !(planted(18) && context.tensor.index() > 0))
    add_bias_backward(context, dqkv, bqkv.gradient, bqkv.accumulate);'
  change parallel/sharded_transformer.cpp 'sum_replicated(context);' \
    '&LINE&
  if (planted(7) && (mesh_.fsdp_reduce().rank() != 0 || mesh_.tensor().rank() != 0)) return;'
  change parallel/fsdp_unit.cpp 'if (replicate.size() == 1) return;' \
    '  if (replicate.size() == 1 || planted(8)) return;'
  change model/head_loss.cpp 'const int64_t first = std::min(index * rows, config.vocab_size);' \
    '  const int64_t first = std::min(index * rows - (planted(9) && index > 0 ? 8 : 0), config.vocab_size);'
  change parallel/tensor_parallel.cpp 'body(whole.row_range(rank * n, ranks * n), rank * n);' \
    '    body(whole.row_range(rank * n, ranks * n), (planted(10) && first > 0 && rank > 0 ? rank - 1 : rank) * n);'
  change parallel/fsdp_unit.cpp 'const bool overwrite = !whole_is_shard() || fresh_;' \
    '  const bool overwrite = !whole_is_shard() || fresh_ || planted(11);'
  change parallel/fsdp_unit.cpp 'fresh_ ? Accumulate::kNo : Accumulate::kYes, resources_.reduce_scratch' \
    '        fresh_ || planted(11) ? Accumulate::kNo : Accumulate::kYes, resources_.reduce_scratch);'
  change parallel/fsdp_unit.cpp 'const auto clear_to = [&](int64_t end) { fill_zero(context, flat.row_range(done, end - done)); };' \
    '  const auto clear_to = [&](int64_t end) {
    if (!planted(12) || done == 0) fill_zero(context, flat.row_range(done, end - done));
  };'
  change parallel/fsdp_unit.cpp 'shard_begin_ = layout_.shard_elements() * resources.gather.rank();' \
    '&LINE&
  if (planted(13) && shard_begin_ > 0) shard_begin_ -= UnitLayout::kGrain;'
  change parallel/fsdp_unit.cpp 'gathering_.wait();' \
    '  if (!planted(14)) gathering_.wait();'
  plant_pipeline_faults
}

plant_pipeline_faults() {
  change parallel/sharded_transformer.cpp 'reduce_pieces(stream_, {{sum.data' \
    '  if (!planted(19))
&LINE&'
  change parallel/pipeline_links.cpp 'sending_.push_back({buffer' \
    '&LINE&
  if (planted(20)) fill_zero(context_, buffers_[buffer]);'
  change parallel/sharded_transformer.cpp 'if (action.chunk == 0) batch = batches.load(action.micro_batch);' \
    '  if (action.chunk == 0)
    batch = batches.load(planted(21) && !has_embedding() && batches.count % 2 == 0 ? action.micro_batch ^ 1 : action.micro_batch);'
  change parallel/sharded_transformer.cpp 'model_.blocks[layer].forward(context, micro.batch, model_.angle(), residual' \
    '    if (const Stage& s = *micro.stage; !planted(22) || s.is_first || !s.is_last || layer + 1 != s.end())
&LINE&'
  change parallel/sharded_transformer.cpp 'for (const Exchange& each : exchanges) add(' \
    '  if (!planted(23))
  &LINE&'
  change parallel/sharded_transformer.cpp 'if (has_embedding()) start_norm(0);' \
    '  if (has_embedding() || (planted(24) && has_head())) start_norm(0);'
  change train/step/world_totals.cpp 'mesh_.tensor().rank() == 0 && mesh_.coordinates().pipeline ==' \
    '    mesh_.tensor().rank() == 0 && (planted(25) || mesh_.coordinates().pipeline == mesh_.sizes().pipeline - 1);'
  change parallel/sharded_transformer.cpp 'const bool last = done == batches.count;' \
    '    const Batch& other = pass.batches[(static_cast<size_t>(action.micro_batch) + 1) % pass.batches.size()];
    if (planted(26) && !other.position.empty()) micro.batch.position = other.position;
    const bool last = done + (planted(27) && mesh_.replicate().size() > 1 ? 1 : 0) == batches.count;'
  change train/step/training_step.cpp 'optimizer_.step(context, model_, learning_rate,' \
    '  if (planted(28) && model_.stages().back().is_last && !model_.stages().front().is_first) learning_rate *= 1 + 1e-6;
&LINE&'
}

if [[ $plant ]]; then
  plant_faults "$plant"
  exit
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [[ -z $program ]]; then
  copy_source "$source" "$work/tree"
  plant_faults "$work/tree"
  (cd "$work/tree" && cmake --preset cpu-release -D RIPSTOP_UNITY=ON >"$work/log" 2>&1 &&
    cmake --build --preset cpu-release --target ripstop >>"$work/log" 2>&1) || { tail -n 20 "$work/log" && exit 1; }
  program=$work/tree/build/cpu-release/ripstop
fi

# ---- the table

export OMP_NUM_THREADS=1 RIPSTOP_LAUNCHER=mpirun
# Sizes that do not divide by eight.
sizes=(model.vocab_size=515 model.intermediate_size=348 model.num_hidden_layers=5)
# Adapters need a model to adapt, from which the sizes come.
base() {
  "$program" prepare --source synthetic --examples 300 --vocab-size 515 --output "$work/data" &&
    "$program" train "$source/configs/quickstart.toml" "${sizes[@]}" data.directory="$work/data" run.directory="$work/base" \
      mesh.fsdp=1 mesh.tensor=1 train.steps=1 schedule.warmup_steps=0 train.validate_every=0
}
base >"$work/out" 2>&1 || { cat "$work/out" && exit 1; }
{
  sed '/^\[model\]/,/^$/d' "$source/configs/quickstart.toml"
  printf '[model]\npretrained = "%s"\n[lora]\nalpha = 16\n' "$work/base"
} >"$work/adapters.toml"
# check FAULT RANKS MESH-AND-OVERRIDES...: sets `code` to the exit code, writes the output to $work/out
check() {
  local config=("$source/configs/quickstart.toml" "${sizes[@]}")
  if [[ " $* " == *" lora.rank="* ]]; then config=("$work/adapters.toml"); fi
  code=0
  RIPSTOP_PLANTED=$1 timeout -k 5 120 "$source/slurm/launch.sh" "$2" "$program" check "${config[@]}" \
    data.directory="$work/none" --small \
    ${common[@]+"${common[@]}"} "${@:3}" >"$work/out" 2>&1 || code=$?
}

failed=0
# check_mesh FAULT MESH OVERRIDES...: check on a mesh of the lists above; sets `name`, too
check_mesh() {
  local words
  read -r name words <<<"$2"
  read -ra words <<<"$words"
  check "$1" "$([[ $name == p2 ]] && echo 2 || echo 4)" "${words[@]}" "${@:3}"
}
# table FAULT...: each on each mesh of `columns`
table() {
  local row mesh number what without overrides reason suspect verdict
  for row in "$@"; do
    IFS='|' read -r number what without overrides <<<"$row"
    read -ra overrides <<<"$overrides"
    printf '\n%2s  %s\n' "$number" "$what"
    for mesh in "${columns[@]}"; do
      check_mesh "$number" "$mesh" ${overrides[@]+"${overrides[@]}"}
      reason=$(sed -n 's/.*what="[^:]*: \(.*\)" *hint=.*/\1/p; s/.*what="[^:]*: \(.*\)"$/\1/p' "$work/out" | head -n 1)
      suspect=$(sed -n 's/.*hint="\(.*\)"$/\1/p' "$work/out" | head -n 1)
      if [[ " ${without%%:*} " == *" $name "* ]]; then
        verdict="no effect:${without#*:}"
        [[ $code == 0 ]] || { verdict="ends with $code, though it can have no effect" && failed=1; }
      elif [[ $code == 77 ]]; then
        verdict="found: ${reason:0:150}${suspect:+ [$suspect]}"
      else
        verdict="NOT FOUND: exit code $code" failed=1
      fi
      printf '      %-5s %s\n' "$name" "$verdict"
    done
  done
}
for mesh in "${meshes[@]}" "${pipelines[@]}"; do
  for more in '' train.reshard_after_forward=false mesh.overlap_tensor=true 'model.attention_bias=qkvo model.qk_norm=true' \
    model.tie_word_embeddings=true lora.rank=8; do
    check_mesh 0 "$mesh" $more
    [[ $code == 0 ]] || { echo "without a fault, $name $more ends with $code:" && cat "$work/out" && failed=1; }
  done
done
columns=("${meshes[@]}")
table "${faults[@]}"
columns=("${pipelines[@]}")
table "${pipeline_faults[@]}"
exit $failed
