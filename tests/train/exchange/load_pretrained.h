// Reads weights of Hugging Face into a sharded model.
#pragma once
#include <filesystem>
#include <vector>

#include "data/files/io.h"
#include "parallel/sharded_transformer.h"
#include "train/exchange/read/open_model.h"
#include "train/exchange/read/weights_reader.h"

namespace ripstop {

/// Fills this rank's shards of `model`, except adapters, with the weights in `directory`. Collective, like
/// ShardedTransformer::weights_changed.
inline void load_pretrained(const std::filesystem::path& directory, ShardedTransformer& model, Arena& arena) {
  const auto units = model.frozen_units().empty() ? model.trained_units() : model.frozen_units();
  std::vector<std::vector<float>> shards;
  std::vector<UnitStates> states;
  for (const FsdpUnit& unit : units) {
    // Not zeros: every element must be overwritten.
    shards.emplace_back(static_cast<size_t>(unit.layout().shard_elements()), 7.0F);
    states.push_back({.layout = &unit.layout(), .master = shards.back().data()});
  }
  Io io;
  read_weights(io, open_stored_model(io, directory), model.mesh().coordinates().fsdp, states);
  for (size_t u = 0; u < shards.size(); ++u) units[u].set_shard(0, shards[u]);
  model.weights_changed(arena);
}

}  // namespace ripstop
