// Checks of the steps of tests/cuda/stream_order.h: there is no race on memory, a unit is gathered while the
// unit before computes, and gradients of a unit are reduced while the next unit computes.
#include "tests/cuda/stream_order.h"
#include "tests/expect_error.h"

namespace ripstop {

TEST_F(StreamOrder, EveryAccessIsOrdered) {
  for (const Variant& variant : {Variant{}, Variant{.tied = true}, Variant{.overlap_tensor = true},
                                 Variant{.reshard = false}, Variant{.reduce = DType::kBFloat16},
                                 Variant{.tied = true, .overlap_tensor = true, .reduce = DType::kBFloat16},
                                 Variant{.mesh = {.replicate = 2, .fsdp = 2, .tensor = 1}},
                                 Variant{.tied = true, .mesh = {.replicate = 2, .fsdp = 1, .tensor = 2}},
                                 Variant{.adapters = true}, Variant{.reshard = false, .adapters = true},
                                 Variant{.tied = true, .overlap_tensor = true, .adapters = true},
                                 Variant{.adapters = true, .mesh = {.replicate = 2, .fsdp = 1, .tensor = 2}},
                                 Variant{.tied = true, .mesh = {.fsdp = 2, .pipeline = 2}}}) {
    recorder.clear();
    train(variant);
    EXPECT_TRUE(races.empty()) << races.size() << " races, the first: " << races.front();
    std::set<int> streams;
    for (const RecordedOperation& operation : log) streams.insert(operation.stream);
    // Host, compute, gather, reduce, tensor and world; without an fsdp axis replicate, not gather and reduce.
    EXPECT_GE(streams.size(), variant.mesh.fsdp > 1 ? 6U : 5U);
    EXPECT_GT(log.size(), 400U);
  }
}

TEST_F(StreamOrder, AMissingWaitIsSeen) {
  for (const bool adapters : {false, true})
    for (const Recorder::Drop dropped : {Recorder::Drop::kOfCommunication, Recorder::Drop::kOfCompute}) {
      recorder.clear();
      drop = dropped;
      train({.adapters = adapters});
      EXPECT_FALSE(races.empty());
    }
}

// Between the gather of a unit and its first use, another unit computes and does not wait for the gather.
TEST_F(StreamOrder, UnitsAreGatheredWhileTheUnitBeforeComputes) {
  train({});
  size_t gathers = 0, beside = 0;
  std::vector<size_t> issued;
  for (size_t i = 0; i < log.size(); ++i)
    if (gathers_unit(log[i])) issued.push_back(i);
  for (const size_t gather : issued) {
    ++gathers;
    bool other_unit = false;
    for (size_t i = gather + 1; i < log.size(); ++i) {
      if (!computes(log[i])) continue;
      if (reads(log[i], log[gather].writes[0])) break;
      for (const size_t earlier : issued)
        if (earlier < gather && log[i].name.rfind("linear", 0) == 0 &&
            reads(log[i], log[earlier].writes[0]) && !log[gather].happens_before(log[i]))
          other_unit = true;
    }
    beside += other_unit ? 1 : 0;
  }
  // Each step and the validation begin with two gathers without a product beside them: the first unit's, and
  // the first block's, which overlaps with the embedding, and that is no product. There are 2 steps x 2
  // micro-batches x 2 passes (forward and backward), and one pass of validation.
  const size_t lists = 3, passes = 5;
  EXPECT_GE(gathers, passes * (kLayers + 2));
  EXPECT_EQ(beside, gathers - 2 * lists);
}

// The case of validation: a model for generation, with its own stream, receives the weights and reads them.
TEST_F(StreamOrder, AModelOnAnotherStreamReadsItsWeightsOnceTheyAreThere) {
  const ModelConfig config = model(false);
  MeshTraining run(config, options_of({}), {.replicate = 1, .fsdp = 2, .tensor = 2}, kSequences,
                   Device::cuda(0));
  run.step->model().initialize(7);
  const MeshSizes sizes{.replicate = 2, .fsdp = 1, .tensor = 2};
  DeviceMesh mesh(test_world(), sizes, /*allow_tensor_across_nodes=*/false, Device::cuda(0));
  const InferenceOptions writing =
      InferenceOptions::of(config, kPositions, DType::kBFloat16, 4, {.max_new_tokens = 8});
  const InferencePlan plan = plan_inference(config, writing, sizes, mesh.coordinates(), DeviceKind::kCuda);
  const Stream stream(Device::cuda(0));
  MemoryLedger ledger;
  InferenceModel writer(config, writing, mesh, stream, ledger, plan.arena);
  run.step->model().copy_weights_to(writer.model());
  const std::vector<int32_t> prompt{1, 2, 3};
  const std::vector<SlotTokens> items{{.slot = 0, .first_position = 0, .tokens = prompt}};
  writer.best(items, config.vocab_size);
  // The next update must wait for the last read of the weights, for which the host did not wait.
  const Tensor& weights = writer.model().units().front().compute_copy();
  const Buffer read(Device::cuda(0), ledger, MemoryCategory::kWorkspace, weights.bytes());
  copy_bytes(stream, read.data(), weights.data, weights.bytes());
  run.step->model().copy_weights_to(writer.model());
  EXPECT_TRUE(recorder.races().empty()) << recorder.races().front();
}

// All memory that the fsdp and the tensor axis move is registered with their communicators at that time.
TEST_F(StreamOrder, WhatTravelsLiesInMemoryThatNcclKnows) {
  for (const Variant& variant : {Variant{}, Variant{.reshard = false}, Variant{.reduce = DType::kBFloat16},
                                 Variant{.overlap_tensor = true}, Variant{.adapters = true}})
    for (const bool windows : {true, false}) {
      recorder.has_windows = windows;
      recorder.clear();
      {
        MeshTraining run(model(false), options_of(variant), variant.mesh, kSequences, Device::cuda(0));
        run.run(sequences(), 1e-3, 1);
        EXPECT_EQ(run.ledger.peak(), run.plan.memory);
        const auto known = [&](const RecordedOperation& operation, const Span& memory) {
          return memory.bytes == 0 ||  // a send writes nothing, a receive reads nothing
                 std::any_of(recorder.registered.begin(), recorder.registered.end(),
                             [&](const Recorder::Registered& r) {
                               return r.comm == operation.comm && r.window == windows &&
                                      r.memory.covers(memory);
                             });
        };
        // One block of memory, registered with the communicators of gather and reduce, and the arena, with
        // that of the tensor axis.
        ASSERT_EQ(recorder.registered.size(), 3U);
        std::map<const std::byte*, size_t> registrations;
        std::map<const void*, const std::byte*> block;  // of a communicator
        for (const Recorder::Registered& r : recorder.registered) {
          block[r.comm] = r.memory.begin;
          ++registrations[r.memory.begin];
        }
        std::map<std::string, size_t> moved;  // by the fsdp axis
        size_t by_tensor = 0;
        for (const RecordedOperation& operation : recorder.log()) {
          if (block.count(operation.comm) == 0) continue;
          if (registrations[block[operation.comm]] == 2)
            ++moved[operation.name];
          else
            ++by_tensor;
          EXPECT_TRUE(known(operation, operation.reads[0])) << operation.name;
          EXPECT_TRUE(known(operation, operation.writes[0])) << operation.name;
        }
        EXPECT_GE(moved["all_gather"], kLayers + 2U);
        EXPECT_GE(by_tensor, 2 * 8U * kLayers);
        for (const char* name : {"send", "receive", "reduce_scatter"}) {
          const bool rounds = variant.reduce == DType::kBFloat16;
          EXPECT_EQ(moved[name] > 0, rounds == (std::string(name) != "reduce_scatter")) << name;
        }
      }
      EXPECT_TRUE(recorder.registered.empty());
      EXPECT_TRUE(recorder.races().empty()) << recorder.races().front();
    }
}

// If NCCL has too little memory, the error is that of any other memory. No other failure gives this error.
TEST_F(StreamOrder, MemoryThatNcclDoesNotGiveIsToldWithItsReason) {
  const std::unique_ptr<Communicator> group =
      make_nccl_communicator(make_self_communicator(kFsdpAxis), Device::cuda(0));
  MemoryLedger ledger;
  MemoryUse use;
  use[MemoryCategory::kWeights] = int64_t{1} << 20;
  const auto refusal = [&](int64_t free_bytes) {
    recorder.free_bytes = free_bytes;
    return what_of([&] { const Buffer buffer(Device::cuda(0), ledger, use, group->memory_source()); },
                   ExitCode::kResources);
  };
  EXPECT_EQ(refusal(int64_t{1} << 36), "");
  recorder.nccl_gives_memory = false;
  EXPECT_EQ(refusal(int64_t{1} << 36).rfind("ncclMemAlloc of 1048576 bytes: an error of the fake", 0), 0U);
  EXPECT_EQ(refusal(int64_t{256} << 20), "cuda:0 cannot allocate 1048576 bytes for weights");
  EXPECT_EQ(ledger.now(), MemoryUse{});
}

// A profiler collects steps 2 and 3 of 4: from the first work on any stream to the end of the last.
TEST_F(StreamOrder, AProfilerCollectsItsStepsAlone) {
  MeshTraining run(model(false), options_of({}), {.replicate = 1, .fsdp = 2, .tensor = 2}, kSequences,
                   Device::cuda(0));
  run.step->model().initialize(7);
  std::optional<ProfiledStretch> profiled;
  std::vector<size_t> ends;  // the ends of steps in the log
  for (int64_t step = 1; step <= 4; ++step) {
    if (step == 2) profiled.emplace(Device::cuda(0));
    run.run(sequences(), 1e-3, step);
    if (step == 3) profiled.reset();
    ends.push_back(recorder.log().size());
  }
  const std::vector<RecordedOperation>& log = recorder.log();
  const auto called = [&](const std::string& name) {
    std::vector<size_t> at;
    for (size_t i = 0; i < log.size(); ++i)
      if (log[i].name == name) at.push_back(i);
    return at;
  };
  ASSERT_EQ(called("cudaProfilerStart"), std::vector<size_t>{ends[0]});
  ASSERT_EQ(called("cudaProfilerStop"), std::vector<size_t>{ends[2] - 1});
  for (size_t i = 0; i < log.size(); ++i) {
    EXPECT_TRUE(i >= ends[0] || log[i].happens_before(log[ends[0]])) << log[i].name;
    EXPECT_TRUE(i >= ends[2] || log[i].happens_before(log[ends[2] - 1])) << log[i].name;
  }
}

TEST_F(StreamOrder, AnExceptionDoesNotWaitForTheProfiler) {
  try {
    const ProfiledStretch stretch(Device::cuda(0));
    throw Error(ExitCode::kCommunication, "a rank is lost");
  } catch (const Error&) {
  }
  ASSERT_EQ(recorder.log().size(), 1U);
  EXPECT_EQ(recorder.log()[0].name, "cudaProfilerStart");
}

// While the gradients of a unit are reduced, products of the next unit's backward run.
TEST_F(StreamOrder, GradientsAreReducedWhileTheNextUnitComputes) {
  train({});
  const auto [reductions, beside] = beside_products([](const RecordedOperation& o) {
    return o.name == "reduce_scatter" && o.writes[0].bytes >= 4 * 64 * 64;
  });
  EXPECT_GT(reductions, 0U);
  EXPECT_GE(beside, reductions / 2);
}

// Rows of the tensor axis travel in two groups of messages, whatever the number of peers, each beside
// products of other rows.
TEST_F(StreamOrder, RowsTravelInTwoGroupsBesideProducts) {
  train({.overlap_tensor = true, .mesh = {.replicate = 1, .fsdp = 1, .tensor = 4}});
  EXPECT_TRUE(races.empty()) << races.front();
  const size_t peers = 3;
  std::map<int, size_t> received, hidden;  // by group
  for (size_t i = 0; i < log.size(); ++i) {
    const RecordedOperation& operation = log[i];
    if (operation.name != "receive") continue;
    ++received[operation.group];
    for (size_t j = i + 1; j < log.size() && !reads(log[j], operation.writes[0]); ++j)
      if (computes(log[j]) && log[j].name.rfind("linear", 0) == 0 && !operation.happens_before(log[j])) {
        ++hidden[operation.group];
        break;
      }
  }
  size_t beside = 0;
  for (const auto& [group, count] : hidden) {
    EXPECT_LT(received[group], peers);
    beside += count;
  }
  // Four collectives of each layer forward and four backward, in 2 steps of 2 micro-batches.
  const size_t collectives = 2 * 2 * 8 * kLayers;
  EXPECT_GE(beside, peers * collectives);
  EXPECT_GE(hidden.size(), 2 * collectives);
}

// A receive between stages does not wait for the kernels given before it, and kernels do not wait for a send.
TEST_F(StreamOrder, MessagesBetweenStagesTravelBesideKernels) {
  for (const auto& [mesh, stages_per_rank] : {std::pair{MeshSizes{.fsdp = 2, .pipeline = 2}, 1},
                                              {MeshSizes{.fsdp = 1, .tensor = 2, .pipeline = 2}, 1},
                                              {MeshSizes{.fsdp = 1, .pipeline = 4}, 1},
                                              {MeshSizes{.fsdp = 2, .pipeline = 2}, 2}}) {
    SCOPED_TRACE(fmt::format("{}, {} stages a rank", mesh.to_text(), stages_per_rank));
    recorder.clear();
    train({.mesh = mesh, .stages_per_rank = stages_per_rank});
    EXPECT_TRUE(races.empty()) << races.front();
    size_t messages = 0, beside = 0;
    for (size_t i = 0; i < log.size(); ++i) {
      const bool sends = log[i].name == "send";
      if (log[i].group != 0 || (!sends && log[i].name != "receive")) continue;
      ++messages;
      const auto computes_here = [&](const RecordedOperation& other) { return computes(other); };
      const auto here = log.begin() + static_cast<std::ptrdiff_t>(i);
      const auto after = std::find_if(here, log.end(), computes_here);
      const auto before = std::find_if(std::make_reverse_iterator(here), log.rend(), computes_here);
      if (sends ? after != log.end() && !here->happens_before(*after) : !before->happens_before(*here))
        ++beside;
    }
    // At its ends a step has nothing to compute beside a message.
    EXPECT_GT(messages, 2 * 8U / static_cast<size_t>(mesh.fsdp));
    EXPECT_GT(beside, messages / 2) << messages;
  }
}

// While a unit is summed over the replicas, products of other units' backward run.
TEST_F(StreamOrder, ReplicasAreSummedWhileUnitsCompute) {
  train({.mesh = {.replicate = 2, .fsdp = 1, .tensor = 2}});
  EXPECT_TRUE(races.empty()) << races.front();
  const auto [sums, beside] = beside_products(
      [](const RecordedOperation& o) { return o.name == "all_reduce" && o.writes[0].bytes >= 4 * 64 * 64; });
  // One of each step for each unit. Behind the last two (first block, embedding) comes no product of a unit.
  const size_t steps = 2;
  EXPECT_EQ(sums, steps * (kLayers + 2));
  EXPECT_EQ(beside, steps * kLayers);
}

// Replicas of several shards: NCCL begins collectives in the order in which they are given.
TEST_F(StreamOrder, SumsOverReplicasAreGivenBehindTheGathersOfTheNextVisit) {
  train({.mesh = {.replicate = 2, .fsdp = 2, .tensor = 1}});
  size_t sums = 0, behind = 0;
  for (size_t i = 0; i < log.size(); ++i) {
    if (log[i].name != "all_reduce" || log[i].writes[0].bytes < 2 * 64 * 64) continue;
    ++sums;
    bool gathered = false, computed = false;
    for (size_t j = i - 1; log[j].name.rfind("reduce_", 0) != 0 || !reads(log[i], log[j].writes[0]); --j) {
      gathered = gathered || gathers_unit(log[j]);
      computed = computed || (computes(log[j]) && log[j].name == "linear_backward_weight");
    }
    behind += gathered && computed ? 1 : 0;
  }
  // One of each step for each unit. Behind the last three reductions no block is gathered.
  const size_t steps = 2;
  EXPECT_EQ(sums, steps * (kLayers + 2));
  EXPECT_EQ(behind, steps * (kLayers - 1));
}

// The squared norm of a unit's gradients is taken while products of units below run, of one replica alone.
TEST_F(StreamOrder, NormsAreTakenWhileUnitsCompute) {
  for (const MeshSizes& mesh : {MeshSizes{1, 2, 2}, MeshSizes{1, 1, 4}, MeshSizes{2, 1, 2}}) {
    recorder.clear();
    train({.mesh = mesh});
    EXPECT_TRUE(races.empty()) << races.front();
    const auto [norms, beside] = beside_products(
        [&](const RecordedOperation& o) { return o.name == "add_squared_norm" && !computes(o); });
    const bool counts = mesh_coordinates(mesh, test_world().communicator().rank()).replicate == 0;
    // One of each step for each unit; behind the last two (first block, embedding) comes no product.
    const size_t steps = 2;
    EXPECT_EQ(norms, counts ? steps * (kLayers + 2) : 0);
    EXPECT_EQ(beside, counts ? steps * kLayers : 0);
  }
}

// In backward a column-parallel layer gathers its input beside the product for the input gradient, and sums
// that one beside the product for the weight gradient.
TEST_F(StreamOrder, TensorParallelBackwardHidesItsGatherAndItsSum) {
  train({});
  size_t gathers = 0, sums = 0;
  for (size_t i = 0; i < log.size(); ++i) {
    const RecordedOperation& operation = log[i];
    const bool gather = operation.name == "all_gather" && !gathers_unit(operation);
    // Activations travel as they are and are summed by a kernel behind their messages.
    const bool sum = operation.name == "reduce_pieces" && !computes(operation);
    if (!gather && !sum) continue;
    const char* product = gather ? "linear_backward_input" : "linear_backward_weight";
    bool hidden = false;
    for (size_t j = i + 1; j < log.size() && !reads(log[j], operation.writes[0]); ++j)
      if (computes(log[j]) && log[j].name == product && !operation.happens_before(log[j])) hidden = true;
    (gather ? gathers : sums) += hidden ? 1 : 0;
  }
  // Attention and feed-forward of each layer, in 2 steps of 2 micro-batches.
  EXPECT_GE(gathers, 2 * 2 * 2 * static_cast<size_t>(kLayers));
  EXPECT_GE(sums, 2 * 2 * 2 * static_cast<size_t>(kLayers));
}

}  // namespace ripstop
