// Weights of Hugging Face's models in a sharded model, as every run that begins with them reads them.
#pragma once
#include <filesystem>
#include <vector>

#include "data/files/io.h"
#include "parallel/sharded_transformer.h"
#include "train/exchange/read/open_model.h"
#include "train/exchange/read/weights_reader.h"

namespace ripstop {

/// Fills this rank's shards of `model`, but for adapters, with the weights in `directory`. Collective only as
/// ShardedTransformer::weights_changed is.
inline void load_pretrained(const std::filesystem::path& directory, ShardedTransformer& model, Arena& arena) {
  std::vector<std::vector<float>> shards;
  std::vector<UnitStates> states;
  for (const FsdpUnit& unit : model.model_units()) {
    // Nothing may lean on zeros that were there before.
    shards.emplace_back(static_cast<size_t>(unit.layout().shard_elements()), 7.0F);
    states.push_back({.layout = &unit.layout(), .master = shards.back().data()});
  }
  PosixIo io;
  read_weights(io, open_stored_model(io, directory), model.mesh().coordinates().fsdp, states);
  for (size_t u = 0; u < shards.size(); ++u) model.model_units()[u].set_shard(0, shards[u]);
  model.weights_changed(arena);
}

}  // namespace ripstop
