#include "train/plan/step_time.h"

#include <gtest/gtest.h>

#include <map>

namespace ripstop {
namespace {

constexpr double kFree = 1e30;  // a rate at which work takes no time

PlanRequest small_request(const MeshSizes& mesh = {1, 1, 1}) {
  PlanRequest request{.model = {.hidden_size = 32,
                                .intermediate_size = 48,
                                .num_hidden_layers = 3,
                                .num_attention_heads = 4,
                                .num_key_value_heads = 4,
                                .vocab_size = 512,
                                .max_position_embeddings = 64},
                      .step = {},
                      .mesh = mesh};
  request.step.sharding.compute = DType::kFloat32;
  request.step.sharding.sequence_count = 2;
  request.step.sharding.sequence_length = 64;
  request.step.sharding.reshard_after_forward = true;
  return request;
}

Rates rates_of(double flops, double memory, double link) {
  Rates rates;
  rates.flops_per_second = flops;
  rates.memory_bytes_per_second = memory;
  rates.inside_node = LinkRate{.latency_seconds = 0, .bytes_per_second = link, .compute_share = 1};
  return rates;
}

// The work of a step, by kernel, as another observer counts it.
class Count final : public KernelObserver {
 public:
  explicit Count(const PlanRequest& request, const MeshCoordinates& at = {}) {
    const Stream stream(planned_device(request), false, this);
    DeviceMesh mesh = DeviceMesh::planned(request.mesh, at, request.device);
    MemoryLedger ledger;
    TrainingStep step(request.model, request.step, mesh, stream, ledger);
    step.run(
        request.micro_batches, [](int64_t) { return HostTokens{}; }, 0.0, {1}, [] { return false; });
  }
  void run(const KernelWork& work, FunctionRef<void()>) override {
    flops[work.kernel] += static_cast<double>(work.flops);
    bytes += static_cast<double>(work.bytes);
    seconds += std::max(static_cast<double>(work.flops) / 1e9, static_cast<double>(work.bytes) / 1e10);
  }
  std::map<std::string, double> flops;
  double bytes = 0, seconds = 0;
};

// All bytes that a rank sends in a step, with the sums over the world.
double sent_bytes_of(const PlanRequest& request) {
  double sum = 0;
  for (const SentByOperation& each : sent_by_operation(request, {})) sum += static_cast<double>(each.bytes);
  return sum;
}

double seconds_of(const PlanRequest& request, const Rates& rates, int64_t ranks_per_node = 0) {
  return plan_step_time(request, rates, ranks_per_node).seconds;
}

void expect_equal(double found, double expected) {
  EXPECT_NEAR(found, expected, 1e-9 * expected);
}

// The products of a step are those of the formula that metrics.jsonl has.
TEST(StepTime, CountsTheFlopsOfTheFormula) {
  const PlanRequest request = small_request();
  const Count count(request);
  const double rows = 2 * 64;
  double products = 0;
  for (const char* kernel : {"linear", "linear_backward_input", "linear_backward_weight"})
    products += count.flops.at(kernel);
  // The formula counts three forwards of attention; the kernels multiply 2 + 5 pairs of matrices, not 2 + 4.
  const double attention = count.flops.at("attention") * 3;
  EXPECT_EQ(count.flops.at("attention_backward"), 2.5 * count.flops.at("attention"));
  const double norms = (2 * 3 + 1) * 32;  // parameters that the formula counts and no product has
  expect_equal(products + attention, rows * (training_flops_per_token(request.model, 64).causal - 6 * norms));
}

TEST(StepTime, OfOneRankIsTheSumOfItsKernels) {
  const PlanRequest request = small_request();
  const Count count(request);
  expect_equal(seconds_of(request, rates_of(kFree, 1e10, 1)), count.bytes / 1e10);
  double flops = 0;
  for (const auto& [kernel, each] : count.flops) flops += each;
  expect_equal(seconds_of(request, rates_of(1e9, kFree, 1)), flops / 1e9);
  expect_equal(seconds_of(request, rates_of(2e9, kFree, 1)), flops / 2e9);
  expect_equal(seconds_of(request, rates_of(1e9, 1e10, 1)), count.seconds);  // the longer of both, each
}

// Alone, messages take their planned bytes over the rate; beside endless computing they take nothing.
TEST(StepTime, OfMessagesIsExposedOrHidden) {
  for (const MeshSizes& mesh :
       {MeshSizes{1, 2, 1}, MeshSizes{2, 1, 1}, MeshSizes{1, 1, 2}, MeshSizes{2, 2, 2}}) {
    const PlanRequest request = small_request(mesh);
    const StepTime exposed = plan_step_time(request, rates_of(kFree, kFree, 1e6), 0);
    EXPECT_NEAR(exposed.seconds, sent_bytes_of(request) / 1e6, 1e-6 * exposed.seconds) << mesh.to_text();
    EXPECT_NEAR(exposed.exposed_seconds, exposed.seconds, 1e-9 * exposed.seconds);
    EXPECT_TRUE(exposed.left_out.empty());
  }
  const PlanRequest request = small_request({1, 2, 1});
  const double compute = seconds_of(request, rates_of(1e9, kFree, kFree));
  const double messages = sent_bytes_of(request) / 1e9;
  ASSERT_LT(messages, compute / 10);
  const StepTime both = plan_step_time(request, rates_of(1e9, kFree, 1e9), 0);
  // The first gather and the last reduction have nothing beside them.
  EXPECT_LT(both.seconds, compute + messages / 2);
  EXPECT_NEAR(both.seconds, compute + both.exposed_seconds, 1e-9);
}

// Messages that take the whole processor hide nothing.
TEST(StepTime, MessagesMayTakeTheTimeOfComputing) {
  const PlanRequest request = small_request({1, 2, 1});
  const double compute = seconds_of(request, rates_of(1e9, kFree, kFree));
  Rates rates = rates_of(1e9, kFree, 1e9);
  const double hidden = seconds_of(request, rates);
  const double messages = sent_bytes_of(request) / 1e9;
  rates.inside_node->compute_share = 0;
  expect_equal(seconds_of(request, rates), compute + messages);
  rates.inside_node->compute_share = 0.5;
  const double half = seconds_of(request, rates);
  EXPECT_GT(half, hidden);
  EXPECT_LT(half, compute + messages);
}

// Each collective waits once for its latency, an all-reduce twice.
TEST(StepTime, LatencyCountsForEachRoundOfMessages) {
  const PlanRequest request = small_request({1, 1, 2});
  Rates rates = rates_of(kFree, kFree, kFree);
  rates.inside_node->latency_seconds = 1;
  double rounds = 0;
  for (const SentByOperation& each : sent_by_operation(request, {}))
    rounds += static_cast<double>(each.calls * (each.operation == "all_reduce" ? 2 : 1));
  const double seconds = seconds_of(request, rates);
  EXPECT_LE(seconds, rounds + 1e-6);
  EXPECT_GT(seconds, 0.8 * rounds);  // only a gather beside a sum may overlap
}

// A message that arrives takes as long as one that leaves, and both move at once beside computing.
TEST(StepTime, MessagesOfTwoRanksMoveBothWaysAtOnce) {
  Rates rates = rates_of(1e9, kFree, 1e6);
  rates.inside_node->latency_seconds = 0.25;
  PlannedClock clock(rates, {2, 1, 1}, 0, DeviceKind::kCpu);
  const auto group = make_planned_communicator("replicate", 0, 2, DeviceKind::kCpu, {},
                                               &clock.link({.name = kReplicateAxis, .rank = 0, .size = 2}));
  const Stream stream(Device::meta(DeviceKind::kCpu));
  const Tensor x{nullptr, DType::kFloat32, {250'000}, stream.device()};  // a second
  Pending receive = group->start_receive(stream, x, 1, nullptr);
  Pending send = group->start_send(stream, x, 1);
  EXPECT_FALSE(receive.poll());
  clock.run({.kernel = "linear", .dtype = DType::kFloat32, .flops = 500'000'000}, [] {});
  EXPECT_EQ(clock.seconds(), 0.5);
  send.wait();
  EXPECT_EQ(clock.seconds(), 1.25);
  EXPECT_TRUE(receive.poll());
  receive.wait();
  EXPECT_EQ(clock.exposed_seconds(), 0.75);
  Pending first = group->start_receive(stream, x, 1, nullptr),
          second = group->start_receive(stream, x, 1, nullptr);
  second.wait();
  EXPECT_EQ(clock.seconds(), 1.25 + 2.25) << "one after another";
  first.wait();
  EXPECT_EQ(clock.seconds(), 3.5);
  // Beside either way, computing gets its share of the host.
  rates.inside_node->compute_share = 0.5;
  PlannedClock shared(rates, {2, 1, 1}, 0, DeviceKind::kCpu);
  shared.link({.name = kReplicateAxis, .rank = 0, .size = 2}).start_receive(1'000'000);
  shared.run({.kernel = "linear", .dtype = DType::kFloat32, .flops = 750'000'000}, [] {});
  EXPECT_EQ(shared.seconds(), 1.25);
}

// With 4 fsdp ranks on 2 nodes a rank sends one third to its own node; a library's ring crosses with all.
TEST(StepTime, LinksBetweenNodesCarryTheirPart) {
  PlanRequest request = small_request({1, 4, 1});
  Rates rates = rates_of(kFree, kFree, kFree);
  rates.between_nodes = LinkRate{.latency_seconds = 0, .bytes_per_second = 1e6, .compute_share = 1};
  double fsdp = 0, world = 0;
  for (const SentByOperation& each : sent_by_operation(request, {}))
    (each.axis == "fsdp" ? fsdp : world) += static_cast<double>(each.bytes);
  expect_equal(seconds_of(request, rates, 4) + 1, 1);
  expect_equal(seconds_of(request, rates, 2), (fsdp + world) * 2 / 3 / 1e6);
  expect_equal(seconds_of(request, rates, 1), (fsdp + world) / 1e6);
  request.device = DeviceKind::kCuda;
  expect_equal(seconds_of(request, rates, 2), (fsdp + world) / 2 / 1e6);
  // Groups of the faster axis stay inside the nodes.
  request = small_request({2, 1, 2});
  double replicate = 0;
  for (const SentByOperation& each : sent_by_operation(request, {}))
    if (each.axis == "replicate") replicate += static_cast<double>(each.bytes);
  const double seconds = seconds_of(request, rates, 2);
  EXPECT_GE(seconds, replicate / 1e6);
  EXPECT_LT(seconds, 1.05 * replicate / 1e6);
}

// Each micro-batch between the first and the last takes as long.
TEST(StepTime, GrowsWithTheMicroBatches) {
  PlanRequest request = small_request({2, 2, 1});
  const auto of = [&](int64_t micro_batches) {
    request.micro_batches = micro_batches;
    return seconds_of(request, rates_of(1e9, 1e10, 1e7));
  };
  EXPECT_GT(of(4), of(3));
  expect_equal(of(9) - of(8), of(4) - of(3));
}

// The work of a stage with `layers` layers, and of all.
double stage_seconds(PlanRequest request, int64_t stage) {
  request.micro_batches = 2;
  const auto flops = [&](int64_t micro_batches) {
    request.micro_batches = micro_batches;
    const Count count(request, {.pipeline = stage});
    double sum = 0;
    for (const auto& [kernel, each] : count.flops) sum += each;
    return sum / 1e9;
  };
  return flops(2) - flops(1);
}

// Without messages a step of equal stages takes M + P - 1 times as long as a micro-batch in one of them.
TEST(StepTime, OfAPipelineHasItsIdleTime) {
  PlanRequest request = small_request({1, 1, 1, 3});
  request.model.num_hidden_layers = 6;
  request.model.vocab_size = 4;
  const double one = stage_seconds(request, 1);
  for (const int64_t micro_batches : {1, 2, 6, 600}) {
    request.micro_batches = micro_batches;
    const StepTime time = plan_step_time(request, rates_of(1e9, kFree, kFree), 0);
    const auto count = static_cast<double>(micro_batches);
    EXPECT_NEAR(time.seconds, (count + 2) * one, 0.02 * time.seconds) << "the head is small";
    EXPECT_NEAR(time.exposed_seconds, 2 * one, 0.03 * (count + 2) * one);
  }
}

// Two stages on each rank idle half as long, and pay for twice as many messages.
TEST(StepTime, OfTwoStagesOnARankHasHalfTheIdleTime) {
  PlanRequest request = small_request({1, 1, 1, 3});
  request.model.num_hidden_layers = 6;
  request.model.vocab_size = 4;
  request.micro_batches = 6;
  const double one = stage_seconds(request, 1), boundary = 4 * 2 * 64 * 32;
  const auto of = [&](int64_t stages_per_rank, double link) {
    request.step.sharding.stages_per_rank = stages_per_rank;
    return plan_step_time(request, rates_of(1e9, kFree, link), 0);
  };
  const StepTime free = of(2, kFree);
  EXPECT_NEAR(free.seconds, (6 + 1) * one, 0.02 * free.seconds);
  EXPECT_NEAR(free.exposed_seconds, one, 0.03 * free.seconds);
  const double full = boundary / one;  // bytes per second of a link that a micro-batch of one stage fills
  EXPECT_GT(of(2, full).seconds, of(1, full).seconds);
}

// The longest stage decides about the time of many micro-batches.
TEST(StepTime, OfAPipelineFollowsItsLongestStage) {
  PlanRequest request = small_request({1, 1, 1, 2});
  const auto each = [&](std::vector<int64_t> layers) {
    request.step.sharding.stage_layers = std::move(layers);
    const auto of = [&](int64_t micro_batches) {
      request.micro_batches = micro_batches;
      return seconds_of(request, rates_of(1e9, kFree, kFree));
    };
    const double longest = std::max(stage_seconds(request, 0), stage_seconds(request, 1));
    EXPECT_NEAR(of(50) - of(40), 10 * longest, 1e-6);
    return longest;
  };
  EXPECT_GT(each({1, 2}), each({2, 1}));
}

// Messages shorter than a forward hide behind more micro-batches in flight; a full link decides the time.
TEST(StepTime, OfAPipelineHidesMessagesThatAreShortEnough) {
  PlanRequest request = small_request({1, 1, 1, 3});
  request.model.num_hidden_layers = 6;
  request.model.vocab_size = 4;
  request.micro_batches = 30;
  const auto of = [&](double link, double ahead) {
    request.step.sharding.pipeline_ahead = ahead;
    return seconds_of(request, rates_of(1e9, kFree, link));
  };
  const double boundary = 4 * 2 * 64 * 32, forward = stage_seconds(request, 1) / 3;
  const double half = boundary / (forward / 2);  // bytes per second with which a message takes half of it
  const double free = of(kFree, 1);
  EXPECT_GT(of(half, 0), 1.15 * free);
  EXPECT_LT(of(half, 1), 1.08 * free);
  const double full = of(boundary / (4 * forward), 1);
  EXPECT_NEAR(full, 30 * 4 * forward, 0.4 * full);
  EXPECT_GT(full, 30 * 4 * forward);
  EXPECT_EQ(plan_step_time(request, rates_of(1e9, kFree, 0), 0).left_out,
            std::vector<std::string>{"messages inside a node"});
  EXPECT_EQ(plan_step_time(request, rates_of(1e9, kFree, kFree), 1).left_out,
            std::vector<std::string>{"messages between nodes"});
}

// Weights that are gathered, and gradients that are summed, take their time in each stage.
TEST(StepTime, OfAPipelineHasTheMessagesOfItsStages) {
  PlanRequest request = small_request({2, 2, 1, 3});
  request.micro_batches = 6;
  const double free = seconds_of(request, rates_of(1e9, kFree, kFree));
  Rates rates = rates_of(1e9, kFree, kFree);
  rates.between_nodes = LinkRate{.latency_seconds = 0, .bytes_per_second = 1e4, .compute_share = 1};
  const AxisBytes sent = plan_rank(request, {.pipeline = 1}).traffic_per_step;
  const auto replicate = static_cast<double>(sent.replicate), fsdp = static_cast<double>(sent.fsdp);
  EXPECT_GT(seconds_of(request, rates, 6), free + 0.8 * replicate / 1e4) << "sums between nodes";
  rates.inside_node = LinkRate{.latency_seconds = 0, .bytes_per_second = 1e4, .compute_share = 1};
  EXPECT_GT(seconds_of(request, rates), 0.8 * (fsdp + replicate) / 1e4);
}

TEST(StepTime, RowsWithoutATargetTakeNoHead) {
  PlanRequest request = small_request();
  request.step.sharding.sequence_count = 16;  // the head multiplies whole pieces of a chunk
  const Rates rates = rates_of(1e9, kFree, kFree);
  const double all = plan_step_time(request, rates, 0).seconds,
               half = plan_step_time(request, rates, 0, {.target_share = 0.5}).seconds;
  const double head = 3.0 * 2 * 512 * 32 * (16 * 64) / 1e9;
  expect_equal(all - half, head / 2);
}

TEST(StepTime, ShorterDocumentsTakeLessAttention) {
  const PlanRequest request = small_request();
  const Rates rates = rates_of(1e9, kFree, kFree);
  const Count count(request);
  const double attention = (count.flops.at("attention") + count.flops.at("attention_backward")) / 1e9;
  const double all = plan_step_time(request, rates, 0).seconds;
  expect_equal(all - plan_step_time(request, rates, 0, {.document_rows = 16}).seconds, attention * 3 / 4);
}

TEST(StepTime, ARateIsThatOfTheNearestSizes) {
  Rates rates = rates_of(kFree, 1, 1);
  const auto add = [&](int64_t rows, double per_second) {
    rates.kernels.push_back({.kernel = "linear",
                             .dtype = "float32",
                             .rows = rows,
                             .columns = 64,
                             .inner = 64,
                             .per_second = per_second});
  };
  add(64, 1e9);
  add(256, 4e9);
  PlannedClock clock(rates, {1, 1, 1}, 0, DeviceKind::kCpu);
  KernelWork work{.kernel = "linear", .sizes = {64, 64, 64}, .flops = 1000000000, .bytes = 1};
  EXPECT_NEAR(clock.kernel_seconds(work), 1, 1e-6);
  work.sizes[0] = 256;
  EXPECT_NEAR(clock.kernel_seconds(work), 0.25, 1e-6);
  work.sizes[0] = 128;  // the middle
  EXPECT_NEAR(clock.kernel_seconds(work), 0.5, 1e-6);
  work.dtype = DType::kBFloat16;  // not measured
  EXPECT_NEAR(clock.kernel_seconds(work), 1, 1e-6);
}

TEST(StepTime, SaysWhatItLeavesOut) {
  Rates rates;
  const StepTime time = plan_step_time(small_request({1, 4, 1}), rates, 2);
  EXPECT_EQ(time.seconds, 0);
  EXPECT_EQ(time.left_out, (std::vector<std::string>{"products", "memory", "messages inside a node",
                                                     "messages between nodes"}));
  rates = rates_of(1e9, 1e9, 1e9);
  EXPECT_TRUE(plan_step_time(small_request(), rates, 0).left_out.empty());
}

}  // namespace
}  // namespace ripstop
