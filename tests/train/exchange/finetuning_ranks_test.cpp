// Fifty steps from pretrained weights on every mesh of this world, compared with transformers and PyTorch
// (tests/golden/make_finetuning.py packs the same sequences).
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/test_files.h"
#include "tests/train/exchange/golden_pairs.h"
#include "tests/train/exchange/load_pretrained.h"
#include "tests/train/step/mesh_training.h"
#include "train/exchange/hugging_face/pretrained_model.h"
#include "train/step/lr_schedule.h"

namespace ripstop {
namespace {

using golden_pairs::article_pairs;
using golden_pairs::checksum;
using golden_pairs::IdPair;
using golden_pairs::packed;
using golden_pairs::synthetic_pairs;
using mesh_training::MeshTraining;
using mesh_training::Sequence;
using nlohmann::json;

/// Takes the first `most` steps of one case of the golden file on every mesh.
void expect_steps(const json& golden, const json& one, const std::filesystem::path& directory,
                  const std::vector<IdPair>& pairs, int64_t most) {
  ASSERT_EQ(checksum(pairs), one["checksum"].get<uint32_t>()) << "other ids than PyTorch had";
  const int64_t count = one["sequences"], steps = golden["steps"], positions = one["sequence_length"];
  const std::vector<Sequence> sequences = packed(pairs, positions);
  const ScheduleSection schedule{.kind = ScheduleKind::kCosine,
                                 .warmup_steps = golden["warmup_steps"],
                                 .minimum_ratio = golden["minimum_ratio"]};
  StepOptions options;
  options.sharding = {.compute = DType::kFloat32, .sequence_count = 0, .sequence_length = positions};
  const ModelConfig config = read_pretrained_config(directory);
  for (const MeshSizes& mesh :
       mesh_training::meshes_of(test_world().communicator().size(), tensor_axis_sizes(config))) {
    SCOPED_TRACE(directory.string() + " on " + mesh.to_text());
    MeshTraining run(config, options, mesh, count);
    load_pretrained(directory, run.step->model(), run.step->arena());
    for (int64_t s = 1; s <= std::min(steps, most); ++s) {
      const auto at = static_cast<size_t>(s - 1);
      std::vector<Sequence> batch;
      for (int64_t i = 0; i < count; ++i)
        batch.push_back(sequences[static_cast<size_t>((s - 1) * count + i) % sequences.size()]);
      const double rate = one["learning_rate"].get<double>() * learning_rate_factor(schedule, s, steps);
      const StepResult result = run.run(batch, rate, s);
      const double loss = one["losses"][at], norm = one["gradient_norms"][at];
      ASSERT_EQ(result.sum.target_count, one["targets"][at].get<int64_t>()) << "step " << s;
      ASSERT_NEAR(result.loss, loss, 1e-4 * loss) << "step " << s;
      ASSERT_NEAR(result.gradient_norm, norm, 1e-3 * norm) << "step " << s;
    }
  }
}

TEST(FinetuningRanks, FiftyStepsOfTransformers) {
  const json golden = json::parse(std::ifstream(golden_file("finetuning.json")));
  expect_steps(golden, golden["synthetic"], golden_file("pretrained/untied_bf16"), synthetic_pairs(golden),
               golden["steps"]);
}

// A mesh that differs does so in its first steps: all fifty are compared above on every mesh.
TEST(FinetuningRanks, FiftyStepsOfAPublishedModelOnArticles) {
  const json golden = json::parse(std::ifstream(golden_file("finetuning.json")));
  const json& one = golden["stories"];
  const auto model = shared_file("data/models/stories260K");
  const auto articles = shared_file(one["file"]);
  if (!model || !articles) GTEST_SKIP() << "no shared/data/models and shared/data/xsum beside the checkout";
  expect_steps(golden, one, *model / "hf", article_pairs(*model / "tok512.model", *articles, one),
               test_world().communicator().size() == 1 ? 50 : 10);
}

}  // namespace
}  // namespace ripstop
