// Fifty steps from pretrained weights on every mesh of the ranks at hand, against transformers and PyTorch
// (tests/golden/make_finetuning.py packs the same sequences).
#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/tokenizer.h"
#include "tests/test_files.h"
#include "tests/train/exchange/load_pretrained.h"
#include "tests/train/step/mesh_training.h"
#include "train/exchange/pretrained_config.h"
#include "train/step/lr_schedule.h"

namespace ripstop {
namespace {

using mesh_training::MeshTraining;
using mesh_training::Sequence;
using nlohmann::json;

constexpr int32_t kBegin = 1, kEnd = 2;

/// A document and its summary as ids.
struct IdPair {
  std::vector<int32_t> document, summary;
};

/// What both programs must have read: a digest of all ids.
uint32_t checksum(const std::vector<IdPair>& pairs) {
  uint32_t value = 0;
  for (const IdPair& pair : pairs) {
    for (const int32_t id : pair.document) value = value * 31 + static_cast<uint32_t>(id);
    value = value * 31 + kBegin;
    for (const int32_t id : pair.summary) value = value * 31 + static_cast<uint32_t>(id);
    value = value * 31 + kEnd;
  }
  return value;
}

/// The next example of a sequence: a row for each id but the last. Only the summary and its end count.
void append(Sequence& sequence, const IdPair& pair) {
  std::vector<int32_t> ids = {kBegin};
  ids.insert(ids.end(), pair.document.begin(), pair.document.end());
  ids.insert(ids.end(), pair.summary.begin(), pair.summary.end());
  ids.push_back(kEnd);
  sequence.document.push_back(static_cast<int32_t>(sequence.token.size()));
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    sequence.token.push_back(ids[i]);
    sequence.target.push_back(i >= pair.document.size() ? ids[i + 1] : -1);
    sequence.position.push_back(static_cast<int32_t>(i));
  }
}

/// Fills sequences in order; what stays free is a document of its own, without targets.
std::vector<Sequence> packed(const std::vector<IdPair>& pairs, int64_t positions) {
  std::vector<Sequence> sequences(1);
  const auto close = [&] {
    Sequence& last = sequences.back();
    for (int32_t i = 0; std::ssize(last.token) < positions; ++i) {
      if (i == 0) last.document.push_back(static_cast<int32_t>(last.token.size()));
      last.token.push_back(0);
      last.target.push_back(-1);
      last.position.push_back(i);
    }
  };
  for (const IdPair& pair : pairs) {
    const int64_t rows = std::ssize(pair.document) + std::ssize(pair.summary) + 1;
    if (std::ssize(sequences.back().token) + rows > positions) {
      close();
      sequences.emplace_back();
    }
    append(sequences.back(), pair);
  }
  close();
  return sequences;
}

/// Takes the steps of one case of the file on every mesh.
void expect_steps(const json& golden, const json& one, const std::filesystem::path& directory,
                  const std::vector<IdPair>& pairs) {
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
    for (int64_t s = 1; s <= steps; ++s) {
      const auto at = static_cast<size_t>(s - 1);
      std::vector<Sequence> batch;
      for (int64_t i = 0; i < count; ++i)
        batch.push_back(sequences[static_cast<size_t>((s - 1) * count + i) % sequences.size()]);
      const double rate = one["learning_rate"].get<double>() * learning_rate_factor(schedule, s, steps);
      const StepResult result = run.run(batch, rate, s);
      const double loss = one["losses"][at], norm = one["gradient_norms"][at];
      ASSERT_EQ(result.target_count, one["targets"][at].get<int64_t>()) << "step " << s;
      ASSERT_NEAR(result.loss, loss, 1e-4 * loss) << "step " << s;
      ASSERT_NEAR(result.gradient_norm, norm, 1e-3 * norm) << "step " << s;
    }
  }
}

TEST(FinetuningRanks, FiftyStepsOfTransformers) {
  const json golden = json::parse(std::ifstream(golden_file("finetuning.json")));
  std::vector<IdPair> pairs;
  for (const json& pair : golden["synthetic"]["pairs"]) pairs.push_back({pair[0], pair[1]});
  expect_steps(golden, golden["synthetic"], golden_file("pretrained/untied_bf16"), pairs);
}

TEST(FinetuningRanks, FiftyStepsOfAPublishedModelOnArticles) {
  const json golden = json::parse(std::ifstream(golden_file("finetuning.json")));
  const json& one = golden["stories"];
  const auto model = shared_file("data/models/stories260K");
  const auto articles = shared_file(one["file"]);
  if (!model || !articles) GTEST_SKIP() << "no shared/data/models and shared/data/xsum beside the checkout";
  const Tokenizer tokenizer(*model / "tok512.model");
  std::vector<IdPair> pairs;
  std::ifstream lines(*articles);
  for (std::string line; std::ssize(pairs) < one["count"].get<int64_t>() && std::getline(lines, line);) {
    const json article = json::parse(line);
    IdPair pair{tokenizer.encode(article["document"].get<std::string>()),
                tokenizer.encode(article["summary"].get<std::string>())};
    pair.document.resize(std::min(pair.document.size(), one["document_tokens"].get<size_t>()));
    pairs.push_back(std::move(pair));
  }
  expect_steps(golden, one, *model / "hf", pairs);
}

}  // namespace
}  // namespace ripstop
