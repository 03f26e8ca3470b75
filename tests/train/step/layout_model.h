// The model, the sequences and the meshes of the tests that compare every layout with one rank.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/train/step/mesh_training.h"

namespace ripstop::layouts {

using mesh_training::Sequence;

// A fault of accumulation, resident weights or overlap shows in every step, so few are enough. Where results
// are rounded to bfloat16, it shows later.
inline constexpr int64_t kSteps = 50, kFewSteps = 4, kMoreSteps = 10, kPositions = 64, kSequences = 8,
                         kVocabulary = 131;

// Nothing divides by eight: 131 ids, 172 feed-forward columns.
inline ModelConfig model(bool tied, int64_t vocabulary = kVocabulary) {
  return {.hidden_size = 64,
          .intermediate_size = 172,
          .num_hidden_layers = 2,
          .num_attention_heads = 8,
          .num_key_value_heads = 4,
          .vocab_size = vocabulary,
          .max_position_embeddings = kPositions,
          .tie_word_embeddings = tied};
}

/// The tied model with biases, norms of heads, heads of another size than C / H and scaled angles, which no
/// published model has together.
inline ModelConfig model_with_vectors() {
  ModelConfig config = model(true);
  config.attention_bias = AttentionBias::kQkvo;
  config.qk_norm = true;
  config.head_dim = 12;
  config.rope_type = RopeType::kLlama3;
  config.rope_factor = 4;
  config.rope_original_max_position_embeddings = 32;
  return config;
}

/// Sequences that a model can learn: four of five tokens follow from the token before. Documents of several
/// lengths share a sequence. The first tokens of each document have no target.
inline std::vector<Sequence> sequences_of_step(int64_t step, int64_t vocabulary = kVocabulary) {
  uint64_t state = 0x9E3779B97F4A7C15ULL * static_cast<uint64_t>(step + 1);
  const auto next = [&] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<int64_t>(state >> 33);
  };
  std::vector<Sequence> sequences(kSequences);
  for (Sequence& sequence : sequences) {
    int64_t token = next() % vocabulary, in_document = 0, length = 10 + next() % 30;
    for (int64_t i = 0; i < kPositions; ++i, ++in_document) {
      if (i == 0 || in_document == length) {
        sequence.document.push_back(static_cast<int32_t>(i));
        in_document = 0;
        length = 10 + next() % 30;
      }
      const int64_t follows = next() % 5 == 0 ? next() % vocabulary : (token * 3 + 7) % vocabulary;
      sequence.token.push_back(static_cast<int32_t>(token));
      sequence.target.push_back(in_document < 3 ? -1 : static_cast<int32_t>(follows));
      sequence.position.push_back(static_cast<int32_t>(in_document));
      token = follows;
    }
  }
  return sequences;
}

inline StepOptions options(DType compute, int64_t micro = 0) {
  StepOptions step;
  step.sharding = {.compute = compute, .sequence_count = micro, .sequence_length = kPositions};
  return step;
}

/// `expected`: of at least as many steps.
inline void expect_equal_losses(const std::vector<double>& found, const std::vector<double>& expected,
                                double tolerance) {
  ASSERT_FALSE(found.empty());
  ASSERT_LE(found.size(), expected.size());
  for (size_t s = 0; s < found.size(); ++s)
    ASSERT_NEAR(found[s], expected[s], tolerance * expected[s]) << "step " << s + 1;
}

inline std::string reference_file() {
  const char* path = std::getenv("RIPSTOP_LAYOUT_REFERENCE");
  return path == nullptr ? "" : path;
}

/// The losses on one rank, from the file of that run.
inline std::vector<double> reference(const char* what) {
  return nlohmann::json::parse(std::ifstream(reference_file()))[what].get<std::vector<double>>();
}

inline int64_t ranks() {
  return test_world().communicator().size();
}

/// The meshes to test with the ranks of this world.
inline std::vector<MeshSizes> meshes() {
  switch (ranks()) {
    case 1:
      return {{1, 1, 1}};
    case 2:
      return {{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {.fsdp = 1, .pipeline = 2}};
    case 3:
      return {{1, 3, 1}};
    case 4:
      return {{4, 1, 1},
              {1, 4, 1},
              {1, 1, 4},
              {1, 2, 2},
              {2, 2, 1},
              {2, 1, 2},
              {.fsdp = 2, .pipeline = 2},
              {.fsdp = 1, .tensor = 2, .pipeline = 2}};
    case 8:
      return {{2, 2, 2}, {.fsdp = 2, .tensor = 2, .pipeline = 2}};
    default:
      return {};
  }
}

}  // namespace ripstop::layouts
