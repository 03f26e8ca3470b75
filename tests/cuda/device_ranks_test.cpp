// Compares training on GPUs with training on the CPU, for any number of ranks. Ranks may share a GPU; then
// they communicate through host memory. Skipped if there is no GPU.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "model/device/cuda_machine.h"
#include "parallel/group_memory.h"
#include "parallel/rank_device.h"
#include "tests/train/step/mesh_training.h"

namespace ripstop {
namespace {

using mesh_training::MeshTraining;
using mesh_training::Sequence;

constexpr int64_t kPositions = 64, kSequences = 8, kSteps = 20;

class DeviceRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU: " << look_at_cuda().problem;
    device = choose_cuda_device(test_world());
  }
  Device device;
};

ModelConfig model(bool tied) {
  return {.hidden_size = 64,
          .intermediate_size = 172,
          .num_hidden_layers = 2,
          .num_attention_heads = 8,
          .num_key_value_heads = 4,
          .vocab_size = 131,
          .max_position_embeddings = kPositions,
          .tie_word_embeddings = tied};
}

std::vector<Sequence> sequences_of_step(int64_t step) {
  return mesh_training::chained_sequences(step, kSequences, kPositions);
}

struct Losses {
  std::vector<double> of_step;
  double validation = 0;
};

Losses train(MeshTraining& run) {
  Losses losses;
  run.step->model().initialize(7);
  for (int64_t s = 1; s <= kSteps; ++s) losses.of_step.push_back(run.run(sequences_of_step(s), 1e-3, s).loss);
  const mesh_training::DealtSequences dealt(sequences_of_step(0), {0, 1}, kPositions);
  losses.validation = run.step
                          ->evaluate(
                              1, [&](int64_t) { return dealt.view(); }, [] { return false; })
                          .mean();
  return losses;
}

// The mesh with as many axes above 1 as the number of ranks allows.
MeshSizes mesh_of(int64_t ranks) {
  const int64_t tensor = ranks % 2 == 0 ? 2 : 1;
  return {.replicate = 1, .fsdp = ranks / tensor, .tensor = tensor};
}

TEST_F(DeviceRanks, TrainsAsOnTheCpu) {
  const MeshSizes mesh = mesh_of(test_world().communicator().size());
  for (const bool tied : {false, true})
    for (const bool overlap : {false, true})
      for (const DType compute : {DType::kFloat32, DType::kBFloat16}) {
        StepOptions options;
        options.sharding = {.compute = compute,
                            .sequence_count = 2,
                            .sequence_length = kPositions,
                            .overlap_tensor = overlap};
        MeshTraining on_cpu(model(tied), options, mesh, kSequences),
            on_gpu(model(tied), options, mesh, kSequences, device);
        const Losses expected = train(on_cpu), found = train(on_gpu);
        const double allowed = compute == DType::kFloat32 ? 1e-5 : 2e-2;
        for (size_t s = 0; s < expected.of_step.size(); ++s)
          ASSERT_NEAR(found.of_step[s], expected.of_step[s], allowed * expected.of_step[s])
              << "step " << s + 1;
        EXPECT_NEAR(found.validation, expected.validation, allowed * expected.validation);
        EXPECT_EQ(on_gpu.mesh.bytes_sent(), on_cpu.mesh.bytes_sent());
        if (compute == DType::kFloat32) {
          EXPECT_EQ(on_gpu.stream.take_notes().size(), 2U) << "attention and its gradient";
        }
      }
}

TEST_F(DeviceRanks, PlanEqualsWhatAStepUses) {
  StepOptions options;
  options.sharding = {.compute = DType::kBFloat16, .sequence_count = 2, .sequence_length = kPositions};
  MeshTraining run(model(false), options, mesh_of(test_world().communicator().size()), kSequences, device);
  train(run);
  EXPECT_EQ(run.step->arena().peak(), run.plan.arena);
  EXPECT_EQ(run.ledger.peak(), run.plan.memory);
}

// NCCL with one rank: every collective is a copy.
TEST_F(DeviceRanks, NcclOfOneRank) {
  if (test_world().communicator().rank() != 0) return;
  const auto group = make_nccl_communicator(make_self_communicator("fsdp"), device);
  const Stream stream(device);
  MemoryLedger ledger;
  constexpr int64_t kCount = 1000;
  std::vector<float> host(kCount), back(kCount);
  for (size_t i = 0; i < host.size(); ++i) host[i] = std::sin(static_cast<float>(i));
  const Buffer from(device, ledger, MemoryCategory::kActivations, 4 * kCount);
  const Buffer to(device, ledger, MemoryCategory::kActivations, 4 * kCount);
  const Buffer room(device, ledger, MemoryCategory::kCommunication, 4 * kCount);
  const auto view = [&](const Buffer& buffer) { return tensor_in(buffer, 0, DType::kFloat32, {kCount}); };
  const auto expect = [&](float factor) {
    copy_bytes(stream, back.data(), to.data(), 4 * kCount);
    stream.synchronize();
    for (size_t i = 0; i < host.size(); ++i) ASSERT_EQ(back[i], factor * host[i]);
  };
  copy_bytes(stream, from.data(), host.data(), 4 * kCount);
  group->all_gather(stream, view(from), view(to)).wait();
  expect(1);
  group->reduce_scatter(stream, view(from), view(to), DType::kFloat32, Accumulate::kYes, view(room)).wait();
  expect(2);
  group->all_reduce(stream, view(to), view(room));
  group->broadcast(stream, view(to), 0);
  group->exchange(stream, view(to), 0, view(room), 0);
  expect(2);
  EXPECT_EQ(group->bytes_sent(), 0);
}

// Registered memory is ready when the constructor returns: a gather may follow at once.
TEST_F(DeviceRanks, RegisteredMemoryOfOneRank) {
  if (test_world().communicator().rank() != 0) return;
  const auto group = make_nccl_communicator(make_self_communicator(kFsdpAxis), device);
  const Stream stream(device);
  MemoryLedger ledger;
  constexpr int64_t kCount = 64 * 1024;
  std::vector<float> host(kCount), back(kCount);
  for (size_t i = 0; i < host.size(); ++i) host[i] = std::sin(static_cast<float>(i));
  MemoryUse use;
  use[MemoryCategory::kWeights] = 8 * kCount;
  for (int turn = 0; turn < 20; ++turn) {
    GroupMemory memory(device, ledger, use, {group.get()});
    const Tensor own = memory.take(MemoryCategory::kWeights, DType::kFloat32, {kCount});
    const Tensor all = memory.take(MemoryCategory::kWeights, DType::kFloat32, {kCount});
    copy_bytes(stream, own.data, host.data(), own.bytes());
    group->all_gather(stream, own, all).wait();
    copy_bytes(stream, back.data(), all.data, all.bytes());
    stream.synchronize();
    ASSERT_EQ(back, host);
  }
  const Buffer memory(device, ledger, use, group->memory_source());
  const auto registration = group->register_memory(memory.data(), memory.bytes());
  ASSERT_NE(registration, nullptr);
  RecordProperty("window", registration->is_window() ? "yes" : "no");
  std::printf("registered as a %s\n", registration->is_window() ? "symmetric window" : "buffer");
}

// An attempt: NCCL refuses two ranks on one GPU, unless they seem to be on two hosts. NVIDIA calls that
// unsafe, so it runs only if asked for.
TEST_F(DeviceRanks, NcclOfTwoRanksOnOneGpu) {
  if (std::getenv("RIPSTOP_TRY_SHARED_GPU") == nullptr) GTEST_SKIP() << "RIPSTOP_TRY_SHARED_GPU is not set";
  Communicator& world = test_world().communicator();
  const int64_t rank = world.rank(), size = world.size();
  setenv("NCCL_HOSTID", fmt::format("ripstop-{}", rank).c_str(), /*overwrite=*/1);
  setenv("NCCL_SOCKET_IFNAME", "lo", /*overwrite=*/0);
  const auto group = make_nccl_communicator(world.split(0, rank, kFsdpAxis), device);
  const Stream stream(device);
  MemoryLedger ledger;
  constexpr int64_t kCount = 10000;
  const Buffer from(device, ledger, MemoryCategory::kActivations, 4 * kCount * size),
      to(device, ledger, MemoryCategory::kActivations, 4 * kCount * size);
  const auto value = [](int64_t of, int64_t i) { return static_cast<float>(of * 1000 + i % 997); };
  std::vector<float> own(kCount), all(static_cast<size_t>(kCount * size));
  for (int64_t i = 0; i < kCount; ++i) own[static_cast<size_t>(i)] = value(rank, i);
  copy_bytes(stream, from.data(), own.data(), 4 * kCount);
  group
      ->all_gather(stream, tensor_in(from, 0, DType::kFloat32, {kCount}),
                   tensor_in(to, 0, DType::kFloat32, {kCount * size}))
      .wait();
  copy_bytes(stream, all.data(), to.data(), to.bytes());
  stream.synchronize();
  for (int64_t i = 0; i < kCount * size; ++i)
    ASSERT_EQ(all[static_cast<size_t>(i)], value(i / kCount, i % kCount)) << i;
  group
      ->reduce_scatter(stream, tensor_in(to, 0, DType::kFloat32, {kCount * size}),
                       tensor_in(from, 0, DType::kFloat32, {kCount}), DType::kFloat32, Accumulate::kNo, {})
      .wait();
  copy_bytes(stream, own.data(), from.data(), 4 * kCount);
  stream.synchronize();
  for (int64_t i = 0; i < kCount; ++i)
    ASSERT_EQ(own[static_cast<size_t>(i)], static_cast<float>(size) * value(rank, i)) << i;
}

}  // namespace
}  // namespace ripstop
