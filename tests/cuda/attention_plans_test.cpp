// cuDNN's plans for attention, made without a GPU, for GPUs that the test describes
// (driver_without_device.c). For every shipped config and preset, a plan is made within the workspace that
// the memory plan counts, or it is refused as expected. Only a GPU can show that the plans compute the right
// numbers (device_op_tests.cpp).
#include "model/kernels/cuda/attention_plans.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <tuple>

#include "model/config.h"
#include "tests/cuda/described_gpu.h"
#include "tests/expect_has.h"

namespace ripstop::cuda {
namespace {

Descriptor properties(const DescribedGpu& gpu) {
  return device_properties(gpu.json());
}

AttentionShape shape(const Heads& heads, int64_t documents, int64_t length, bool dense, Sums sums) {
  return {.query_heads = heads.query,
          .key_value_heads = heads.key_value,
          .head_size = heads.size,
          .documents = documents,
          .length = length,
          .dense = dense,
          .sums = sums};
}

class AttentionPlansTest : public testing::Test {
 protected:
  AttentionGpu gpu(const DescribedGpu& described) const { return {described.major, cudnnGetVersion()}; }

  /// The reason why cuDNN refuses forward or backward of such documents; empty if it refuses neither.
  std::string refusal(const DescribedGpu& on, const Heads& heads, int64_t documents, int64_t longest,
                      bool dense, bool deterministic = false) {
    const Descriptor described = properties(on);
    const PlanTarget target{.properties = &described, .major = on.major};
    const int64_t rows = documents * longest;
    const int64_t length = dense ? longest : padded_length(longest);
    const auto sums = attention_sums(gpu(on), heads.size, dense, deterministic);
    if (!sums) return "no sums";
    const AttentionWorkspace forward = attention_workspace(rows, heads);
    const Plan plan =
        attention_plan(Direction::kForward, shape(heads, documents, length, dense, Sums::kByRow), target,
                       forward.bytes - forward.plan);
    if (!plan.ok()) return "forward: " + plan.refusal();
    left_out_ = plan.left_out();
    const AttentionWorkspace backward = attention_backward_workspace(rows, longest, heads, deterministic);
    const bool takes_grouped = dense || *sums == Sums::kByPlace;
    const int64_t own = backward.bytes - (takes_grouped ? backward.dkey_grouped : backward.plan);
    const Plan gradient =
        attention_plan(Direction::kBackward, shape(heads, documents, length, dense, *sums), target, own);
    left_out_ += gradient.left_out();
    return gradient.ok() ? "" : "backward: " + gradient.refusal();
  }

  std::string left_out_;  ///< why engines that cuDNN prefers do not run, of the last plans without a refusal
};

/// The heads of a rank, and the longest sequence on which they are trained.
struct Trained {
  Heads heads;
  int64_t length;
  auto key() const { return std::tuple(heads.query, heads.key_value, heads.size, length); }
  bool operator<(const Trained& other) const { return key() < other.key(); }
};

/// Adds the model without tensor parallelism, and sliced over the 8 ranks of a node.
void add_slices(const ModelConfig& model, int64_t length, std::set<Trained>& all) {
  for (const int64_t tensor : {1, 8})
    if (model.num_key_value_heads % tensor == 0)
      all.insert({{model.num_attention_heads / tensor, model.num_key_value_heads / tensor, model.head_size()},
                  length});
}

int64_t number(const std::string& text, const std::string& key) {
  std::smatch found;
  return std::regex_search(text, found, std::regex("\n" + key + " = ([0-9]+)")) ? std::stoll(found[1]) : 0;
}

ModelConfig model_of(const std::string& text) {
  std::smatch found;
  if (std::regex_search(text, found, std::regex("\npreset = \"([^\"]+)\"")))
    return find_model_preset(found[1].str())->config;
  // Configs that read their sizes from a pretrained model, which is not in the repository.
  for (const auto& [directory, preset] :
       {std::pair{"Llama-2-7b-hf", "llama2-7b"}, std::pair{"tinyllama-1.1b", "tinyllama-1.1b"}})
    if (text.find(std::string("\npretrained = \"models/") + directory) != std::string::npos)
      return find_model_preset(preset)->config;
  return {.hidden_size = number(text, "hidden_size"),
          .num_attention_heads = number(text, "num_attention_heads"),
          .num_key_value_heads = number(text, "num_key_value_heads")};
}

std::set<Trained> shipped() {
  std::set<Trained> all;
  for (const auto& file : std::filesystem::directory_iterator(RIPSTOP_SOURCE_DIR "/configs")) {
    std::ostringstream text;
    text << std::ifstream(file.path()).rdbuf();
    const ModelConfig model = model_of(text.str());
    EXPECT_GT(model.num_attention_heads, 0) << file.path() << ": where are its sizes?";
    if (model.num_attention_heads > 0) add_slices(model, number(text.str(), "sequence_length"), all);
  }
  for (const ModelPreset& preset : model_presets())
    add_slices(preset.config, std::min<int64_t>(preset.config.max_position_embeddings, 4096), all);
  return all;
}

// second_cudnn.sh says which.
TEST_F(AttentionPlansTest, RunWithTheVersionThatIsMeant) {
  const char* expected = std::getenv("RIPSTOP_EXPECTED_CUDNN");
  if (expected == nullptr) GTEST_SKIP() << "the installed cuDNN";
  EXPECT_EQ(std::to_string(cudnnGetVersion()), expected);
}

TEST_F(AttentionPlansTest, OfEveryShippedConfigAreMadeForHopper) {
  for (const Trained& t : shipped()) {
    SCOPED_TRACE(fmt::format("H {} K {} D {}, {} positions", t.heads.query, t.heads.key_value, t.heads.size,
                             t.length));
    if (t.length % 128 == 0) {
      EXPECT_EQ(refusal(kH100, t.heads, 2, t.length, true), "");
    }
    EXPECT_EQ(refusal(kH100, t.heads, 8, t.length, false), "");
  }
}

TEST_F(AttentionPlansTest, TakeManyShortDocuments) {
  EXPECT_EQ(refusal(kH100, {32, 4, 64}, kMostDocuments, 32, false), "");
  EXPECT_EQ(left_out_, "");
  EXPECT_EQ(refusal(kH100, {32, 32, 128}, kMostDocuments, 32, false), "");
  EXPECT_EQ(left_out_, "");
}

TEST_F(AttentionPlansTest, TakeHeadSizesThatAreMultiplesOfEight) {
  for (const int64_t size : {8, 40})
    for (const bool dense : {true, false})
      EXPECT_EQ(refusal(kH100, {8, 4, size}, 4, 1024, dense), "") << "size " << size;
}

TEST_F(AttentionPlansTest, AreMadeForAmpere) {
  for (const Heads& heads : {Heads{32, 32, 128}, Heads{32, 4, 64}, Heads{12, 12, 64}}) {
    EXPECT_EQ(refusal(kA100, heads, 2, 2048, true), "");
    EXPECT_EQ(refusal(kA100, heads, 4, 2048, false), "");
  }
}

// The road of GPUs that do not take buffers by row: compute capability 8.9 and 12.0, and 10.0 beside them.
TEST_F(AttentionPlansTest, AreMadeForOtherGpus) {
  for (const DescribedGpu& gpu : {kL40S, kB200, kRtxPro6000})
    for (const Heads& heads : {Heads{32, 32, 128}, Heads{32, 4, 64}}) {
      EXPECT_EQ(refusal(gpu, heads, 2, 2048, true), "") << gpu.name;
      if (gpu.major != 12) {
        EXPECT_EQ(refusal(gpu, heads, 4, 2048, false), "") << gpu.name;
      }
    }
}

TEST_F(AttentionPlansTest, DeterministicOnesAreMadeWithinTheirWorkspace) {
  for (const Heads& heads : {Heads{32, 32, 128}, Heads{32, 4, 64}}) {
    EXPECT_EQ(refusal(kH100, heads, 2, 2048, true, true), "");
    EXPECT_EQ(refusal(kH100, heads, 4, 2048, false, true), "");
    EXPECT_EQ(refusal(kB200, heads, 2, 2048, true, true), "");
    EXPECT_EQ(refusal(kB200, heads, 4, 2048, false, true), "");
  }
  EXPECT_EQ(refusal(kA100, {32, 32, 128}, 2, 2048, true, true), "");
}

// The plain kernels are the fallback for these.
TEST_F(AttentionPlansTest, AreRefusedForOtherHeads) {
  for (const bool dense : {true, false}) {
    EXPECT_NE(refusal(kH100, {8, 8, 60}, 2, 1024, dense), "") << "size 60";
    EXPECT_NE(refusal(kH100, {8, 8, 4}, 2, 1024, dense), "") << "size 4";
    EXPECT_NE(refusal(kH100, {8, 8, 264}, 2, 1024, dense), "") << "size 264";
    EXPECT_NE(refusal(kH100, {32, 5, 128}, 2, 1024, dense), "") << "5 of 32";
  }
}

TEST_F(AttentionPlansTest, AreRefusedWithoutWorkspace) {
  const Descriptor described = properties(kH100);
  const Plan plan = attention_plan(Direction::kBackward, shape({8, 8, 64}, 8, 1024, false, Sums::kByRow),
                                   {.properties = &described}, 0);
  EXPECT_FALSE(plan.ok());
  EXPECT_HAS(plan.refusal(), "bytes of workspace, 0 allowed");
}

TEST(AttentionUnsupported, WherePackedDocumentsAre) {
  for (const bool dense : {true, false}) {
    EXPECT_NE(attention_unsupported({9, kOldestCudnn - 1}, dense), std::nullopt);
    EXPECT_EQ(attention_unsupported({8, 91801}, dense), std::nullopt);
    EXPECT_EQ(attention_unsupported({9, kOldestCudnn}, dense), std::nullopt);
    EXPECT_EQ(attention_unsupported({10, kOldestCudnn}, dense), std::nullopt);
    EXPECT_EQ(attention_unsupported({8, 91800}, dense).has_value(), !dense);
    EXPECT_EQ(attention_unsupported({12, 92500}, dense).has_value(), !dense);
  }
}

TEST(AttentionSums, FollowGpuVersionAndHeadSize) {
  const AttentionGpu a100{8, 91900}, h100{9, 91900}, newer{9, 92500}, b200{10, 91900};
  EXPECT_EQ(attention_sums(h100, 128, false, false), Sums::kByRow);
  EXPECT_EQ(attention_sums(h100, 24, false, false), Sums::kByPlace);
  EXPECT_EQ(attention_sums(a100, 128, false, false), Sums::kByPlace);
  EXPECT_EQ(attention_sums(b200, 128, false, false), Sums::kByRow);
  EXPECT_EQ(attention_sums(h100, 128, false, true), Sums::kFromScores);
  EXPECT_EQ(attention_sums(newer, 128, false, true), Sums::kOrdered);
  EXPECT_EQ(attention_sums(a100, 128, true, true), Sums::kFromScores);
  EXPECT_EQ(attention_sums(a100, 128, false, true), std::nullopt);
  EXPECT_EQ(attention_sums(b200, 128, true, true), Sums::kFromScores);
  EXPECT_EQ(attention_sums({10, 91701}, 128, true, true), std::nullopt);
}

}  // namespace
}  // namespace ripstop::cuda
