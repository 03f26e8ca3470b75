// Evaluation on all ranks of this world: neither the number of ranks nor the mesh changes the results.
#include "train/evaluate/write_summaries.h"

#include "tests/train/commands/small_dataset.h"
#include "tests/train/shared_directory.h"
#include "train/generate/write_texts.h"

namespace ripstop {
namespace {

constexpr int64_t kExamples = 23;
constexpr int64_t kNewTokens = 9;
constexpr int64_t kContext = 64;

const ModelConfig kModel{
    .hidden_size = 32,
    .intermediate_size = 44,
    .num_hidden_layers = 2,
    .num_attention_heads = 4,
    .num_key_value_heads = 4,
    .vocab_size = 401,  // does not divide by 2 or 4
    .max_position_embeddings = kContext,
    .initializer_range = 0.5};  // logits far apart, so that rounding picks no other token

// A model with random weights on the mesh replicate x 1 x `tensor`.
struct Model {
  Model(int64_t tensor, int64_t slots, int64_t prefill_tokens, const Device& device = test_device(),
        const GenerationSettings& settings = {.max_new_tokens = kNewTokens})
      : mesh(test_world(),
             {.replicate = test_world().communicator().size() / tensor, .fsdp = 1, .tensor = tensor},
             /*allow_tensor_across_nodes=*/false, device),
        stream(device) {
    const int64_t pieces = Tokenizer(small_model(), "small").vocabulary_size();
    InferenceOptions options =
        InferenceOptions::of(kModel, kContext, DType::kFloat32, slots, settings, pieces);
    options.prefill_tokens = prefill_tokens;
    const InferencePlan plan = plan_inference(kModel, options, mesh.sizes(), mesh.coordinates(), device.kind);
    model.emplace(kModel, options, mesh, stream, ledger, plan.arena);
    model->model().initialize(5);
  }
  DeviceMesh mesh;
  Stream stream;
  MemoryLedger ledger;
  std::optional<InferenceModel> model;
};

std::vector<int64_t> tensors_that_fit() {
  std::vector<int64_t> fit;
  for (const int64_t tensor : {1, 2, 4})
    if (test_world().communicator().size() % tensor == 0) fit.push_back(tensor);
  return fit;
}

class EvaluationRanks : public SharedDirectory {
 protected:
  void fill(const std::filesystem::path& directory) override {
    write_small_dataset(directory / "test.h5", 0, kExamples);
  }

  /// Expects the same predictions from every mesh as from one rank, which it returns, in two passes; the
  /// second resumes the first.
  std::vector<std::string> expect_equal_predictions(const GenerationSettings& settings,
                                                    const std::string& name);

  TokenDataset dataset() { return TokenDataset(directory_ / "test.h5"); }

  Tokenizer tokenizer_{small_model(), "small"};
};

std::vector<std::string> EvaluationRanks::expect_equal_predictions(const GenerationSettings& settings,
                                                                   const std::string& name) {
  const TokenDataset dataset = this->dataset();
  std::vector<std::string> expected;  // each rank computes them alone on the CPU, one at a time
  {
    Model model(1, 1, kContext, Device::cpu(), settings);
    int64_t next = 0;
    write_texts(
        *model.model, tokenizer_, settings,
        [&]() -> std::optional<DocumentPrompt> {
          if (next == kExamples) return std::nullopt;
          const int64_t example = next++;
          return DocumentPrompt{stored_prompt(dataset, example, kContext), example};
        },
        [&](WrittenText written) { expected.push_back(std::move(written.text)); });
  }
  EXPECT_EQ(std::ssize(expected), kExamples);

  for (const int64_t tensor : tensors_that_fit()) {
    Model model(tensor, 2, 150, test_device(), settings);
    const bool speaks = model.mesh.world().rank() == 0;
    const std::filesystem::path output = directory_ / fmt::format("{}-tensor{}", name, tensor);
    // The first pass writes 11 examples, the second pass the others.
    for (const int64_t examples : {int64_t{11}, kExamples}) {
      std::optional<PredictionFile> file;
      if (speaks) {
        std::filesystem::create_directories(output);
        file.emplace(output);
      }
      EXPECT_TRUE(write_predictions(
          *model.model, dataset, tokenizer_, examples, settings, file ? &*file : nullptr,
          [] { return false; }, [](int64_t, int64_t) {}));
      if (!speaks) continue;
      EXPECT_EQ(file->count(), examples);
      for (int64_t i = 0; i < examples; ++i) {
        const Prediction& prediction = file->predictions()[static_cast<size_t>(i)];
        EXPECT_EQ(prediction.summary, expected[static_cast<size_t>(i)])
            << name << ", tensor " << tensor << " example " << i;
        EXPECT_EQ(prediction.id, fmt::format("id{}", i));
        EXPECT_EQ(prediction.reference, fmt::format("The bridge {} opened.", i));
      }
    }
  }
  return expected;
}

TEST_F(EvaluationRanks, PredictionsDoNotDependOnTheMesh) {
  const std::vector<std::string> written = expect_equal_predictions({.max_new_tokens = kNewTokens}, "greedy");
  EXPECT_NE(written[3], written[4]);
}

TEST_F(EvaluationRanks, AnErrorOfOneRankWithTheTextsIsOfAll) {
  Model model(1, 2, kContext);
  const auto fill = [&](int64_t, const auto&) {
    if (model.mesh.world().rank() == 0) fail(ExitCode::kStorage, "full");
  };
  EXPECT_THROW(write_summaries(*model.model, dataset(), tokenizer_, 0, 1, {.max_new_tokens = kNewTokens},
                               fill, [] { return false; }),
               Error);
}

TEST_F(EvaluationRanks, BeamsDoNotDependOnTheMesh) {
  expect_equal_predictions(
      {.num_beams = 4, .length_penalty = 0.6, .no_repeat_ngram_size = 3, .max_new_tokens = kNewTokens},
      "beams");
}

TEST_F(EvaluationRanks, SamplesDoNotDependOnTheMesh) {
  expect_equal_predictions(
      {.max_new_tokens = kNewTokens, .do_sample = true, .temperature = 1.5, .top_p = 0.95}, "samples");
}

// A seventh of the ids ends a text, the model's last id among them, which is above the tokenizer's pieces.
TEST_F(EvaluationRanks, TextsEndAtTheSameIdsOnEveryMesh) {
  std::vector<int32_t> ends{400};
  for (int32_t id = 3; id < tokenizer_.vocabulary_size(); id += 7) ends.insert(ends.end() - 1, id);
  const auto letters = [](const std::vector<std::string>& texts) {
    size_t sum = 0;
    for (const std::string& text : texts) sum += text.size();
    return sum;
  };
  const GenerationSettings greedy{.max_new_tokens = kNewTokens, .eos_token_id = ends};
  const size_t of_greedy = letters(expect_equal_predictions(greedy, "greedy-ends"));
  EXPECT_GT(of_greedy, 0U);
  EXPECT_LT(of_greedy, letters(expect_equal_predictions({.max_new_tokens = kNewTokens}, "no-ends")) * 3 / 4);
  GenerationSettings at_least = greedy;
  at_least.min_new_tokens = kNewTokens;
  EXPECT_GT(letters(expect_equal_predictions(at_least, "banned-ends")), of_greedy);
  GenerationSettings beams = greedy, samples = greedy;
  beams.num_beams = 3;
  samples.do_sample = true;
  expect_equal_predictions(beams, "beams-ends");
  expect_equal_predictions(samples, "samples-ends");
  // All ends are pieces: the likeliest token is chosen without a list of logits.
  ends.pop_back();
  expect_equal_predictions({.max_new_tokens = kNewTokens, .eos_token_id = ends}, "best-ends");
}

TEST_F(EvaluationRanks, LossDoesNotDependOnTheMesh) {
  const TokenDataset dataset = this->dataset();
  for (const int64_t examples : {kExamples, int64_t{5}}) {
    int64_t targets = 0;
    for (int64_t i = 0; i < examples; ++i) targets += dataset.example_end(i) - dataset.target_begin(i);
    double first = 0;
    for (const int64_t tensor : tensors_that_fit())
      for (const int64_t prefill_tokens : {kContext, 4 * kContext}) {
        Model model(tensor, 1, prefill_tokens);
        const LossSum loss = dataset_loss(
                                 *model.model, dataset, examples, LossOn::kSummary, {}, [] { return false; },
                                 [](int64_t, int64_t) {})
                                 .sum;
        EXPECT_EQ(loss.target_count, targets) << examples << " examples";
        if (first == 0) first = loss.mean();
        EXPECT_GT(loss.mean(), 1);
        EXPECT_NEAR(loss.mean(), first, 1e-5 * first) << "tensor " << tensor;
      }
  }
}

}  // namespace
}  // namespace ripstop
