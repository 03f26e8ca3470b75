// Tests FsdpUnit over real ranks of the fsdp axis, against plain copies and sums.
#include "parallel/fsdp_unit.h"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>

#include "model/core/rounding.h"
#include "model/ops/tensor_axis.h"
#include "parallel/device_mesh.h"
#include "tests/expect_error.h"
#include "tests/parallel/rank_tests.h"

namespace ripstop {
namespace {

constexpr size_t kUnits = 3;
constexpr int64_t kNorm = 300, kRows = 6, kColumns = 100;  // both leave a gap before the next 256 elements

UnitSpec small_unit(const std::string& name) {
  return {
      .name = name,
      .tensors = {{{{.name = name + ".norm.weight", .rows = 1, .columns = kNorm, .vector = true}}},
                  {{{.name = name + ".wo.weight", .rows = kRows, .columns = kColumns, .cut = Cut::kRows}}}}};
}

struct UnitOptions {
  DType compute = DType::kFloat32;
  DType travel = DType::kFloat32;
  bool training = true;
  bool reshard = true;  ///< units share two slots of weights; false: each keeps its whole
};

// Three units of one vector and one matrix each, with the resources that they share.
struct Units {
  std::array<UnitSpec, kUnits> specs{small_unit("layers.0"), small_unit("layers.1"), small_unit("layers.2")};
  std::array<std::array<Parameter, 2>, kUnits> parameters;
  MemoryLedger ledger;
  std::unique_ptr<GroupMemory> memory;
  std::unique_ptr<SlotPool> weight_slots, gradient_slots, sum_slots;
  std::vector<FsdpUnit> units;

  Units(const Stream& stream, Communicator& gather, Communicator& reduce, Communicator& replicate,
        const UnitOptions& options) {
    const bool alone = gather.size() == 1;
    const UnitLayout layout(specs[0], 1, 0, gather.size());
    const int64_t whole = layout.elements();
    const bool has_weight_slots = !alone && options.reshard, has_gradient_slots = !alone && options.training;
    MemoryUse use;
    for (size_t u = 0; u < kUnits; ++u)
      use += FsdpUnit::memory_use(layout, options.compute, options.training, !alone && !options.reshard);
    if (has_weight_slots) use[MemoryCategory::kWeights] += 2 * whole * element_bytes(options.compute);
    const int64_t scratch =
        has_gradient_slots ? reduce.reduce_scatter_scratch_bytes(whole, options.travel) : 0;
    if (has_gradient_slots) use[MemoryCategory::kGradients] += 2 * whole * 4;
    const auto needs = FsdpUnit::sum_needs(layout.shard_elements(), options.travel, replicate);
    const int64_t sums = round_up(needs.scratch_bytes, kMemoryAlignment);
    use[MemoryCategory::kCommunication] = scratch + 2 * sums;
    memory = std::make_unique<GroupMemory>(stream.device(), ledger, use,
                                           std::initializer_list<Communicator*>{&gather, &reduce});
    if (has_weight_slots)
      weight_slots = std::make_unique<SlotPool>(*memory, MemoryCategory::kWeights, 2, options.compute, whole);
    if (has_gradient_slots)
      gradient_slots =
          std::make_unique<SlotPool>(*memory, MemoryCategory::kGradients, 2, DType::kFloat32, whole);
    if (sums > 0)
      sum_slots =
          std::make_unique<SlotPool>(*memory, MemoryCategory::kCommunication, 2, DType::kInt32, sums / 4);
    const UnitResources resources{
        .memory = *memory,
        .stream = stream,
        .gather = gather,
        .reduce = reduce,
        .replicate = replicate,
        .weight_slots = weight_slots.get(),
        .gradient_slots = gradient_slots.get(),
        .reduce_scratch = scratch == 0
                              ? Tensor{}
                              : memory->take(MemoryCategory::kCommunication, DType::kInt32, {scratch / 4}),
        .sum_slots = sum_slots.get(),
        .compute = options.compute,
        .travel = options.travel,
        .training = options.training};
    for (size_t u = 0; u < kUnits; ++u)
      units.emplace_back(specs[u], std::vector<Parameter*>{&parameters[u][0], &parameters[u][1]}, 1, 0,
                         resources);
    memory->check_all_taken();
  }
};

// At element i of unit u's flat buffer: the weight, and the gradient of one rank in one visit.
float weight(size_t u, int64_t i) {
  return sample(static_cast<int64_t>(u) + 20, i);
}
float gradient(int64_t rank, int64_t visit, int64_t i) {
  return sample(rank + 100 * visit, i);
}

class FsdpUnitTest : public testing::Test {
 protected:
  const DeviceMesh mesh{test_world(), {}};
  Communicator& gather = mesh.fsdp_gather();
  Communicator& reduce = mesh.fsdp_reduce();
  const int64_t ranks = gather.size(), rank = gather.rank();
  const bool alone = ranks == 1;
  const Stream stream{Device::cpu()};
  MemoryLedger ledger;
  Arena arena{Device::cpu(), ledger, arena_use()};
  WholeAxis axis;
  Context context{stream, arena, axis};

  static MemoryUse arena_use() {
    MemoryUse use;
    use[MemoryCategory::kCommunication] = 1 << 16;
    return use;
  }

  std::unique_ptr<Units> make(const UnitOptions& options) {
    return std::make_unique<Units>(stream, gather, reduce, mesh.replicate(), options);
  }

  // Sets this rank's shard of every unit.
  void fill(Units& model) const {
    for (size_t u = 0; u < kUnits; ++u) {
      FsdpUnit& unit = model.units[u];
      std::vector<float> values(static_cast<size_t>(unit.layout().shard_elements()));
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = weight(u, unit.shard_begin() + static_cast<int64_t>(i));
      unit.set_shard(0, values);
    }
  }

  static float value_at(const Tensor& t, int64_t i) {
    return t.dtype == DType::kFloat32 ? t.as<float>()[i] : static_cast<float>(t.as<BFloat16>()[i]);
  }

  // Whether the parameters of unit u have the whole weights, in the compute dtype.
  static void expect_whole(const Units& model, size_t u) {
    for (size_t t = 0; t < 2; ++t) {
      const Tensor& value = model.parameters[u][t].value;
      ASSERT_EQ(value.shape, t == 0 ? Shape({kNorm}) : Shape({kRows + 2, kColumns}));
      const int64_t offset = model.units[u].layout().tensor_offsets()[t];
      for (int64_t i = 0; i < value.count(); ++i) {
        const float exact = weight(u, offset + i);
        const bool rounded = value.dtype == DType::kBFloat16;
        ASSERT_EQ(value_at(value, i), rounded ? static_cast<float>(BFloat16(exact)) : exact) << t << " " << i;
      }
    }
  }
  static void expect_no_values(const Units& model, size_t u) {
    for (const Parameter& p : model.parameters[u]) EXPECT_TRUE(p.value.empty());
  }

  // One visit of the backward pass: writes the matrix's gradient or adds to it, as its `accumulate` says, and
  // adds to the norm's.
  void visit(Units& model, size_t u, int64_t number, bool last) {
    FsdpUnit& unit = model.units[u];
    unit.begin_gradients(context);
    for (size_t t = 0; t < 2; ++t) {
      const Parameter& p = model.parameters[u][t];
      const int64_t offset = unit.layout().tensor_offsets()[t];
      for (int64_t i = 0; i < p.gradient.count(); ++i) {
        float& to = p.gradient.as<float>()[i];
        to = gradient(rank, number, offset + i) + (p.accumulate == Accumulate::kYes ? to : 0.0F);
      }
    }
    unit.start_reduce();
    for (const Parameter& p : model.parameters[u]) EXPECT_TRUE(p.gradient.empty());
    unit.finish_reduce();
    if (last) unit.start_sum();
    unit.finish_sum();
  }

  // Whether `visit` writes element i of the flat buffer.
  static bool is_written(const FsdpUnit& unit, int64_t i) {
    const int64_t begin = unit.layout().tensor_offsets()[1];
    return i < kNorm || (i >= begin && i < begin + (kRows + 2) * kColumns);
  }

  // The gradient of one visit, summed over the ranks in rank order.
  float summed(int64_t number, int64_t i) const {
    float sum = gradient(0, number, i);
    for (int64_t r = 1; r < ranks; ++r) sum += gradient(r, number, i);
    return sum;
  }

  // Whether the shard's gradient is the sum of the visits `numbers`, each summed over the ranks first.
  void expect_gradient(const FsdpUnit& unit, const std::vector<int64_t>& numbers, int replicas = 1) const {
    for (int64_t i = 0; i < unit.gradient().count(); ++i) {
      const int64_t at = unit.shard_begin() + i;
      float expected = 0;
      if (is_written(unit, at)) {
        expected = summed(numbers[0], at);
        for (size_t k = 1; k < numbers.size(); ++k) expected += summed(numbers[k], at);
        expected *= static_cast<float>(replicas);
      }
      ASSERT_EQ(unit.gradient().as<float>()[i], expected) << "element " << at;
    }
  }

  static void expect_bug(const std::function<void()>& call) { expect_error(call, ExitCode::kBug); }
};

TEST_F(FsdpUnitTest, WeightsAreWholeFromWaitToReshard) {
  for (const DType compute : {DType::kFloat32, DType::kBFloat16})
    for (const bool training : {true, false})
      for (const bool reshard : {true, false}) {
        SCOPED_TRACE(testing::Message() << to_string(compute) << " " << training << " " << reshard);
        const auto model = make({.compute = compute, .training = training, .reshard = reshard});
        fill(*model);
        FsdpUnit& unit = model->units[1];
        const int64_t before = gather.bytes_sent();
        expect_no_values(*model, 1);
        unit.unshard();
        expect_no_values(*model, 1);
        unit.unshard();  // nothing happens
        unit.wait();
        expect_whole(*model, 1);
        unit.wait();
        unit.unshard();
        expect_whole(*model, 1);
        unit.reshard();
        expect_no_values(*model, 1);
        EXPECT_EQ(gather.bytes_sent() - before,
                  unit.layout().shard_elements() * element_bytes(compute) * (ranks - 1));
      }
}

TEST_F(FsdpUnitTest, StatesMustFollowEachOther) {
  const auto model = make({});
  fill(*model);
  FsdpUnit& unit = model->units[0];
  expect_bug([&] { unit.wait(); });
  expect_bug([&] { unit.reshard(); });
  unit.unshard();
  expect_bug([&] { unit.reshard(); });
  unit.wait();
  unit.reshard();
  expect_bug([&] { unit.reshard(); });
}

TEST_F(FsdpUnitTest, AUnitThatKeepsItsWholeGathersOnlyChangedWeights) {
  const auto model = make({.compute = DType::kBFloat16, .reshard = false});
  fill(*model);
  FsdpUnit& unit = model->units[2];
  const auto sent_by_pass = [&] {
    const int64_t before = gather.bytes_sent();
    unit.unshard();
    unit.wait();
    expect_whole(*model, 2);
    unit.reshard();
    return gather.bytes_sent() - before;
  };
  const int64_t shard_bytes = unit.layout().shard_elements() * 2 * (ranks - 1);
  EXPECT_EQ(sent_by_pass(), shard_bytes);
  EXPECT_EQ(sent_by_pass(), 0);
  unit.weights_changed();
  EXPECT_EQ(sent_by_pass(), shard_bytes);
  EXPECT_EQ(sent_by_pass(), 0);
  fill(*model);
  EXPECT_EQ(sent_by_pass(), shard_bytes);
}

TEST_F(FsdpUnitTest, UnitsBorrowTwoSlots) {
  const auto model = make({});
  fill(*model);
  model->units[0].unshard();
  model->units[1].unshard();
  if (!alone) expect_bug([&] { model->units[2].unshard(); });
  for (size_t u = 0; u < 2; ++u) model->units[u].wait();
  for (size_t u = 0; u < 2; ++u) expect_whole(*model, u);
  for (size_t u = 0; u < 2; ++u) model->units[u].reshard();
}

TEST_F(FsdpUnitTest, ASlotGivenBackIsTakenAgain) {
  const auto model = make({});
  fill(*model);
  for (int pass = 0; pass < 2; ++pass)
    for (size_t u = 0; u < kUnits; ++u) {  // a pass over the layers: the next unit is on its way
      model->units[u].unshard();
      if (u + 1 < kUnits) model->units[u + 1].unshard();
      model->units[u].wait();
      expect_whole(*model, u);
      model->units[u].reshard();
    }
}

TEST(SlotPool, RefusesMoreThanItHasAndStrangers) {
  MemoryLedger ledger;
  const auto group = make_self_communicator("fsdp");
  MemoryUse use;
  use[MemoryCategory::kWeights] = 2 * 256 * 4;
  GroupMemory memory(Device::cpu(), ledger, use, {group.get()});
  SlotPool pool(memory, MemoryCategory::kWeights, 2, DType::kFloat32, 256);
  const Tensor first = pool.take(256), second = pool.take(100);
  EXPECT_EQ(second.count(), 100);
  EXPECT_NE(first.data, second.data);
  EXPECT_THROW(pool.take(1), Error);
  pool.give_back(first);
  EXPECT_EQ(pool.take(7).data, first.data);
  pool.give_back(second);
  EXPECT_THROW(pool.give_back(second), Error);
}

TEST_F(FsdpUnitTest, GradientsAreSummedInRankOrder) {
  const auto model = make({});
  visit(*model, 0, 1, true);
  expect_gradient(model->units[0], {1});
}

TEST_F(FsdpUnitTest, EveryVisitOfAStepAddsAndTheNextStepBeginsAnew) {
  const auto model = make({});
  FsdpUnit& unit = model->units[0];
  for (int64_t step = 0; step < 2; ++step) {
    unit.begin_step();
    visit(*model, 0, 10 * step, false);  // unit 0 twice, like a tied vocabulary
    visit(*model, 1, 5, true);           // leaves other numbers in the slots
    visit(*model, 0, 10 * step + 1, true);
    expect_gradient(unit, {10 * step, 10 * step + 1});
  }
}

TEST_F(FsdpUnitTest, BackwardOverwritesMatricesAndAddsToVectors) {
  const auto model = make({});
  for (int64_t number = 0; number < 2; ++number) {
    model->units[0].begin_gradients(context);
    EXPECT_EQ(model->parameters[0][0].accumulate, Accumulate::kYes);
    // On one rank the whole gradient is the shard itself, so only the first visit of a step may overwrite it.
    EXPECT_EQ(model->parameters[0][1].accumulate, alone && number > 0 ? Accumulate::kYes : Accumulate::kNo);
    if (!alone || number == 0) {
      for (int64_t i = 0; i < kNorm; ++i) ASSERT_EQ(model->parameters[0][0].gradient.as<float>()[i], 0.0F);
    }
    std::fill_n(model->parameters[0][0].gradient.as<float>(), kNorm, 3.0F);
    std::fill_n(model->parameters[0][1].gradient.as<float>(), (kRows + 2) * kColumns, 3.0F);
    model->units[0].start_reduce();
    model->units[0].finish_reduce();
  }
}

TEST_F(FsdpUnitTest, GradientsMayTravelInBFloat16) {
  const auto model = make({.travel = DType::kBFloat16});
  const int64_t before = reduce.bytes_sent();
  visit(*model, 0, 1, true);
  const FsdpUnit& unit = model->units[0];
  EXPECT_EQ(reduce.bytes_sent() - before, unit.layout().shard_elements() * 2 * (ranks - 1));
  for (int64_t i = 0; i < unit.gradient().count(); ++i) {
    const int64_t at = unit.shard_begin() + i;
    float expected = 0;
    for (int64_t r = 0; r < ranks && is_written(unit, at); ++r) {
      const float exact = gradient(r, 1, at);
      expected += r == rank ? exact : static_cast<float>(BFloat16(exact));
    }
    ASSERT_EQ(unit.gradient().as<float>()[i], expected) << at;
  }
}

TEST_F(FsdpUnitTest, ReplicasAreSummedAfterTheLastVisitAlone) {
  const int64_t fsdp = ranks % 2 == 0 ? ranks / 2 : 1;  // two replicas, or replicas alone
  const DeviceMesh replicas(test_world(), {.replicate = ranks / fsdp});
  Units model(stream, replicas.fsdp_gather(), replicas.fsdp_reduce(), replicas.replicate(), {});
  FsdpUnit& unit = model.units[0];
  for (const bool last : {false, true}) {
    unit.begin_step();
    unit.begin_gradients(context);
    for (const Parameter& p : model.parameters[0])
      std::fill_n(p.gradient.as<float>(), p.gradient.count(), static_cast<float>(rank + 1));
    unit.start_reduce();
    unit.finish_reduce();
    EXPECT_TRUE(unit.sum_may_follow());
    if (last) unit.start_sum();
    unit.poll();
    unit.finish_sum();
    float expected = 0;  // whole numbers: the order of sums does not matter
    for (int64_t r = 0; r < ranks; ++r)
      if (last || r / fsdp == rank / fsdp) expected += static_cast<float>(r + 1);
    for (int64_t i = 0; i < unit.gradient().count(); ++i)
      ASSERT_EQ(unit.gradient().as<float>()[i], is_written(unit, unit.shard_begin() + i) ? expected : 0.0F);
  }
}

TEST_F(FsdpUnitTest, ReplicatedElementsLeadTheUnit) {
  const auto model = make({});
  const FsdpUnit& unit = model->units[0];
  const int64_t replicated = unit.layout().replicated_elements();
  EXPECT_EQ(replicated, 512);  // kNorm on multiples of 256
  EXPECT_EQ(unit.shard_begin(), rank * unit.layout().shard_elements());
  int64_t expected = 0;
  for (int64_t i = 0; i < unit.layout().shard_elements(); ++i)
    expected += unit.shard_begin() + i < replicated;
  EXPECT_EQ(unit.replicated_in_shard(), expected);
}

TEST_F(FsdpUnitTest, SetShardWritesMasterAndCopy) {
  const auto model = make({.compute = DType::kBFloat16});
  fill(*model);
  FsdpUnit& unit = model->units[0];
  const int64_t elements = unit.layout().shard_elements();
  const std::vector<float> values{1.00390625F, -7.3F, 0.1F};  // none is a bfloat16 number
  unit.set_shard(5, values);
  for (int64_t i = 0; i < elements; ++i) {
    const bool is_new = i >= 5 && i < 8;
    const float expected = is_new ? values[static_cast<size_t>(i) - 5] : weight(0, unit.shard_begin() + i);
    ASSERT_EQ(unit.master().as<float>()[i], expected) << i;
    ASSERT_EQ(unit.compute_copy().as<BFloat16>()[i].bits, BFloat16(expected).bits) << i;
  }
  expect_bug([&] { unit.set_shard(elements - 2, values); });
  expect_bug([&] { unit.set_shard(-1, values); });
}

TEST_F(FsdpUnitTest, OnlyWhatTheModeNeedsIsKept) {
  const auto float32 = make({}), for_inference = make({.compute = DType::kBFloat16, .training = false});
  EXPECT_TRUE(float32->units[0].compute_copy().empty());
  EXPECT_FALSE(float32->units[0].gradient().empty());
  EXPECT_TRUE(for_inference->units[0].master().empty());
  EXPECT_TRUE(for_inference->units[0].gradient().empty());
  EXPECT_FALSE(for_inference->units[0].compute_copy().empty());
}

TEST_F(FsdpUnitTest, TheGatheredUnitIsCopiedToAModelThatHoldsItWhole) {
  for (const DType compute : {DType::kFloat32, DType::kBFloat16}) {
    const auto model = make({.compute = compute});
    fill(*model);
    const auto alone_gather = make_self_communicator("fsdp"), alone_reduce = make_self_communicator("fsdp");
    Units whole(stream, *alone_gather, *alone_reduce, mesh.replicate(),
                {.compute = compute, .training = false});
    expect_bug([&] { model->units[1].copy_whole_to(whole.units[1]); });
    model->units[1].unshard();
    model->units[1].wait();
    model->units[1].copy_whole_to(whole.units[1]);
    model->units[1].reshard();
    whole.units[1].unshard();
    whole.units[1].wait();
    expect_whole(whole, 1);
    if (alone) continue;
    model->units[0].unshard();
    model->units[0].wait();
    expect_bug([&] { model->units[0].copy_whole_to(model->units[1]); });  // unit 1 has only a shard
    model->units[0].reshard();
  }
}

}  // namespace
}  // namespace ripstop
