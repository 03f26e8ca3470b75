// RandomRun: a run of random weights, for tests of the verbs that read one.
#pragma once
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "data/dataset/token_dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "parallel/sharded_transformer.h"
#include "tests/train/checkpoint/memory_writer.h"
#include "tests/train/commands/run_program.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/config/run_config.h"

namespace ripstop {

inline constexpr const char* kRandomRunConfig = R"(
[run]
directory = "RUN"
[model]
hidden_size = 32
intermediate_size = 48
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 4
vocab_size = 400
max_position_embeddings = 256
initializer_range = 0.5
[data]
directory = "DATA"
sequence_length = 256
[train]
steps = 7
global_batch_sequences = 4
[optimizer]
learning_rate = 1e-3
[precision]
compute = "float32"
[generation]
max_new_tokens = 12
)";

inline std::string replaced(std::string text, const std::string& what, const std::string& by) {
  return text.replace(text.find(what), what.size(), by);
}

/// Writes a run as the trainer leaves it, with random weights.
inline void write_run(const std::filesystem::path& run, const std::filesystem::path& data,
                      const std::string& more_generation = "") {
  std::filesystem::create_directories(run);
  std::filesystem::copy_file(data / "tokenizer.model", run / "tokenizer.model");
  const RunConfig config = parse_run_config(
      replaced(replaced(kRandomRunConfig, "RUN", run.string()), "DATA", data.string()) + more_generation,
      "test");
  MpiWorld world;
  DeviceMesh mesh(world, {.replicate = 1, .fsdp = 1, .tensor = 1});
  const Stream stream(Device::cpu());
  MemoryLedger ledger;
  ShardedTransformer model(
      config.model, mesh, stream, ledger,
      {.compute = DType::kFloat32, .sequence_count = 1, .sequence_length = 256, .training = false});
  Arena arena(Device::cpu(), ledger);
  model.initialize(11);
  std::vector<UnitStates> units;
  std::vector<std::vector<float>> moments;
  for (const FsdpUnit& unit : model.units()) moments.emplace_back(static_cast<size_t>(unit.master().count()));
  for (size_t u = 0; u < moments.size(); ++u) {
    const FsdpUnit& unit = model.units()[u];
    units.push_back({&unit.layout(), unit.master().as<float>(), moments[u].data(), moments[u].data()});
  }
  CheckpointState state;
  state.step = 7;
  state.model = config.model;
  state.config = to_toml(config);
  state.tokenizer_sha256 = Tokenizer(data).sha256();
  state.data_content_hash = TokenDataset(data / "train.h5").content_hash();
  Io io;
  memory_writer(io, run / "checkpoints", mesh.world(), mesh.sizes(), units).save(state, {});
}

/// A data set, and a run on it as the trainer leaves it, with random weights.
class RandomRun : public testing::Test {
 protected:
  void SetUp() override {
    expect_success(
        run_program("prepare --source synthetic --examples 1500 --seed 3 --vocab-size 400 --output " +
                    (scratch_ / "data").string()));
    write_run(scratch_ / "run", scratch_ / "data");
  }
  std::string run() { return (scratch_ / "run").string(); }
  std::string file(const std::string& name) { return (scratch_ / name).string(); }
  /// The scores of an evaluation in the run.
  std::string result(const std::string& name) {
    return read_bytes(std::filesystem::path(run()) / "evaluation" / name);
  }
  std::string write(const std::string& name, const std::string& bytes) {
    write_bytes(scratch_ / name, bytes);
    return file(name);
  }

  ScratchDirectory scratch_;
};

/// The objects of JSON lines.
inline std::vector<nlohmann::json> lines_of(const std::string& text) {
  std::vector<nlohmann::json> objects;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) objects.push_back(nlohmann::json::parse(line));
  return objects;
}

}  // namespace ripstop
