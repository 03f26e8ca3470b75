// A model on one rank, for tests that set weights and compare logits.
#pragma once
#include <cstdint>
#include <vector>

#include "model/batch.h"
#include "parallel/mpi_world.h"
#include "parallel/sharded_transformer.h"

namespace ripstop {

/// A float32 model without gradients, of sequences of `positions` tokens.
struct OneRankModel {
  OneRankModel(const ModelConfig& given, int64_t positions)
      : config(given),
        model(config, mesh, stream, ledger,
              {.compute = DType::kFloat32,
               .sequence_count = 1,
               .sequence_length = positions,
               .training = false}) {}

  /// The logits [ids, V] after `token`, one document that fills the sequence.
  std::vector<float> logits(const std::vector<int32_t>& token) {
    const auto rows = std::ssize(token);
    std::vector<int32_t> position, target(token.size(), -1);
    for (int32_t i = 0; i < rows; ++i) position.push_back(i);
    const std::vector<int32_t> documents = {0, static_cast<int32_t>(rows)};
    BatchMemory memory(Device::cpu(), ledger, 1, rows);
    const Batch batch = memory.load(stream, 1, {token, position, target, documents});
    // Rows in memory have padding after the vocabulary.
    const int64_t pieces = config.vocab_size, width = slice_extent(pieces, 1);
    std::vector<float> padded(static_cast<size_t>(rows * width)), values;
    model.logits(arena, batch, {padded.data(), DType::kFloat32, {rows, width}, Device::cpu()});
    for (int64_t row = 0; row < rows; ++row)
      values.insert(values.end(), padded.begin() + row * width, padded.begin() + row * width + pieces);
    return values;
  }

  ModelConfig config;
  MpiWorld world;
  DeviceMesh mesh{world, {.replicate = 1, .fsdp = 1, .tensor = 1}};
  Stream stream{Device::cpu()};
  MemoryLedger ledger;
  Arena arena{Device::cpu(), ledger, MemoryUse{{0, 0, 0, int64_t{16} << 20, 0, 0}}};
  ShardedTransformer model;
};

}  // namespace ripstop
