// A small model on the ranks of a mesh, for checkpoint tests to save, load and compare. The value of each
// element follows from its parameter, row, column, state and step.
#pragma once
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "data/files/hash.h"
#include "model/lora.h"
#include "model/parameter.h"
#include "parallel/stage_split.h"
#include "parallel/unit_layout.h"
#include "tests/data/scratch_directory.h"
#include "tests/train/checkpoint/memory_writer.h"
#include "tests/train/checkpoint/simulated_ranks.h"
#include "train/checkpoint/checkpoint_directory.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/checkpoint/checkpoint_writer.h"

namespace ripstop {

/// The real file system without its waits for the disk.
class QuickIo : public Io {
 public:
  int fsync(int) override { return 0; }
  void start_writing(int, int64_t, int64_t) override {}
  int wait_written(int, int64_t, int64_t) override { return 0; }
  void forget(int, int64_t, int64_t) override {}
};

inline ModelConfig small_sizes(bool tied = false) {
  return {.hidden_size = 16,
          .intermediate_size = 172,
          .num_hidden_layers = 2,
          .num_attention_heads = 8,
          .num_key_value_heads = 4,
          .vocab_size = 503,
          .max_position_embeddings = 32,
          .tie_word_embeddings = tied};
}

/// small_sizes() with biases and norms of heads.
inline ModelConfig with_all_vectors() {
  ModelConfig model = small_sizes();
  model.attention_bias = AttentionBias::kQkvo;
  model.qk_norm = true;
  return model;
}

inline ModelConfig tiny_model() {
  return {.hidden_size = 4,
          .intermediate_size = 8,
          .num_hidden_layers = 1,
          .num_attention_heads = 2,
          .num_key_value_heads = 1,
          .vocab_size = 11,
          .max_position_embeddings = 8};
}

/// The trained table of a run on `mesh`, with its stages.
inline std::vector<UnitSpec> staged_table(const ModelConfig& model, const MeshSizes& mesh,
                                          const LoraConfig& lora = {}) {
  const StageSplit split = split_stages(model, /*sequence_length=*/32, /*target_share=*/1, mesh.pipeline,
                                        /*stages_per_rank=*/1);
  std::vector<UnitSpec> table = split.staged(unit_table(model, lora));
  std::erase_if(table, [](const UnitSpec& unit) { return unit.frozen; });
  return table;
}

/// The value of one logical element in one state of a run at `step`; never zero.
inline float value_of(const std::string& parameter, int64_t row, int64_t column, int state, int64_t step) {
  const uint64_t key[] = {hash64(parameter.data(), static_cast<int64_t>(parameter.size())),
                          static_cast<uint64_t>(row), static_cast<uint64_t>(column),
                          static_cast<uint64_t>(state), static_cast<uint64_t>(step)};
  const auto bits = static_cast<uint32_t>(hash64(key, sizeof key));
  return std::bit_cast<float>((bits & 0x807fffffu) | 0x3f800000u);  // 1 <= |value| < 2
}

/// Changes the manifest of `checkpoint` to format version 5, with a right hash.
inline void make_older(const std::filesystem::path& checkpoint) {
  std::string text = read_bytes(checkpoint / Manifest::kFileName);
  for (const auto& [key, now, then] :
       {std::tuple{"version", Manifest::kVersion, 5}, {"min_reader", Manifest::kVersion, 1}}) {
    const std::string line = fmt::format("\"{}\": {}", key, now);
    text.replace(text.find(line), line.size(), fmt::format("\"{}\": {}", key, then));
  }
  text.resize(text.rfind(",\n \"hash\""));
  StreamHash hash;
  hash.update(text);
  write_bytes(checkpoint / Manifest::kFileName, text + ",\n \"hash\": \"xxh3-128:" + hash.hex() + "\"\n}\n");
}

/// One rank's arrays of the units of its stage. bfloat16 moments use the first half of their arrays.
class RankMemory {
 public:
  /// `units`: of the whole model. The last stage has a tied table, too.
  RankMemory(const std::vector<UnitSpec>& units, const MeshSizes& mesh, int64_t rank,
             DType moments = DType::kFloat32)
      : rank_(rank), coordinates_(mesh_coordinates(mesh, rank)), moments_(moments) {
    for (const UnitSpec& unit : units)
      if (unit.stage == coordinates_.pipeline ||
          (unit.name == "vocabulary" && coordinates_.pipeline == mesh.pipeline - 1))
        layouts_.push_back(std::make_unique<UnitLayout>(unit, mesh.tensor, coordinates_.tensor, mesh.fsdp));
    for (const auto& layout : layouts_)
      for (int state = 0; state < kUnitStateCount; ++state)
        arrays_.emplace_back(static_cast<size_t>(layout->shard_elements()), -7.0f);
  }

  std::vector<UnitStates> units() {
    std::vector<UnitStates> units;
    for (size_t u = 0; u < layouts_.size(); ++u)
      units.push_back({layouts_[u].get(), arrays_[3 * u].data(), arrays_[3 * u + 1].data(),
                       arrays_[3 * u + 2].data(), moments_});
    return units;
  }
  int64_t rank() const { return rank_; }
  int64_t fsdp_index() const { return coordinates_.fsdp; }
  const std::vector<std::vector<float>>& arrays() const { return arrays_; }

  /// Sets every element to its value at `step`, and padding to zero.
  void fill(int64_t step) {
    for (size_t u = 0; u < layouts_.size(); ++u) {
      const UnitLayout& layout = *layouts_[u];
      const int64_t begin = coordinates_.fsdp * layout.shard_elements();
      for (int state = 0; state < kUnitStateCount; ++state) {
        std::vector<float>& array = arrays_[3 * u + static_cast<size_t>(state)];
        const bool rounds = state_dtype(static_cast<UnitState>(state), moments_) == DType::kBFloat16;
        std::fill_n(array.begin(), rounds ? std::ssize(array) / 2 : std::ssize(array), 0.0f);
        for (const Box& box : layout.boxes(begin, begin + layout.shard_elements()))
          for (int64_t row = 0; row < box.rows; ++row)
            for (int64_t column = 0; column < box.columns; ++column)
              put(array, box.offset - begin + row * box.stride + column,
                  value_of(box.parameter->name, box.row + row, box.column + column, state, step), rounds);
      }
    }
  }

 private:
  static void put(std::vector<float>& array, int64_t at, float value, bool rounds) {
    if (!rounds) {
      array[static_cast<size_t>(at)] = value;
      return;
    }
    const BFloat16 rounded(value);
    std::memcpy(reinterpret_cast<char*>(array.data()) + 2 * at, &rounded, 2);
  }

  int64_t rank_;
  MeshCoordinates coordinates_;
  DType moments_;
  std::vector<std::unique_ptr<UnitLayout>> layouts_;
  std::vector<std::vector<float>> arrays_;
};

/// The `load` of resume_newest that fills `memory`.
inline std::function<void(const Checkpoint&)> loading_into(Io& io, RankMemory& memory) {
  return [&](const Checkpoint& checkpoint) {
    CheckpointReader(io, checkpoint).read(memory.fsdp_index(), memory.units());
  };
}

inline bool same_bits(const RankMemory& a, const RankMemory& b) {
  if (a.arrays().size() != b.arrays().size()) return false;
  for (size_t i = 0; i < a.arrays().size(); ++i)
    if (a.arrays()[i].size() != b.arrays()[i].size() ||
        std::memcmp(a.arrays()[i].data(), b.arrays()[i].data(), a.arrays()[i].size() * 4) != 0)
      return false;
  return true;
}

inline CheckpointState state_at(int64_t step, const ModelConfig& model) {
  CheckpointState state;
  state.step = step;
  state.updates = step;
  state.cursor = {step / 10, step % 10 * 8, {{step / 10, step % 5, 600 * step}, {step / 10, 3, 400 * step}}};
  state.tokens = step * 1000;
  state.model = model;
  state.config = "[train]\nsteps = 1000\n";
  state.data_content_hash = "0123456789abcdef";
  state.validation_content_hash = "fedcba9876543210";
  state.validated_step = step / 2;
  state.validations_since_best = step / 4;
  state.takeover = 1;
  return state;
}

/// A rank that saves through a Snapshot with a limited number of bytes for copies. `units`: of the model.
struct SavingRank {
  SavingRank(Io& io, const std::filesystem::path& directory, Communicator& world, const MeshSizes& mesh,
             const std::vector<UnitSpec>& units, RankMemory& memory, int64_t most_bytes)
      : snapshot(stream, ledger, memory.units(), mesh, world.rank(), most_bytes),
        writer(io, directory, world, mesh, units, snapshot) {}
  Stream stream{Device::cpu()};
  MemoryLedger ledger;
  Snapshot snapshot;
  CheckpointWriter writer;
};

/// Acts as an optimizer: overwrites the arrays of each unit as soon as the snapshot frees it.
inline void overwrite_when_free(Snapshot& snapshot, RankMemory& memory) {
  const std::vector<UnitStates> units = memory.units();
  for (size_t u = 0; u < units.size(); ++u) {
    snapshot.wait_for(u);
    for (const UnitState state : kUnitStates)
      std::memset(units[u].array(state), 0x5a,
                  static_cast<size_t>(units[u].layout->shard_elements() *
                                      element_bytes(state_dtype(state, units[u].moments))));
  }
}

/// All ranks of a run on a mesh. With adapters, only the adapters are saved.
class SmallRun {
 public:
  SmallRun(const ModelConfig& model, const MeshSizes& mesh, DType moments = DType::kFloat32,
           const LoraConfig& lora = {})
      : model_(model), mesh_(mesh), moments_(moments), units_(staged_table(model, mesh, lora)) {
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) ranks_.emplace_back(units_, mesh, rank, moments);
  }
  SmallRun(const SmallRun&) = delete;
  SmallRun& operator=(const SmallRun&) = delete;

  void fill(int64_t step) {
    for (RankMemory& rank : ranks_) rank.fill(step);
  }

  /// Saves the present values of all ranks. Returns the error of each rank.
  std::vector<std::optional<Error>> save(Io& io, const std::filesystem::path& directory,
                                         const CheckpointState& state, const SavePolicy& policy = {},
                                         SaveReport* report = nullptr) {
    return SimulatedRanks(mesh_.ranks()).run([&](Communicator& world) {
      RankMemory& own = ranks_[static_cast<size_t>(world.rank())];
      CheckpointWriter writer = memory_writer(io, directory, world, mesh_, own.units(), units_);
      const SaveReport done = writer.save(state, policy);
      if (report != nullptr && world.rank() == 0) *report = done;
    });
  }
  /// Like `save`, but beside an optimizer that overwrites all arrays, with at most `most_bytes` of copies a
  /// rank.
  std::vector<std::optional<Error>> save_beside_training(Io& io, const std::filesystem::path& directory,
                                                         const CheckpointState& state, SavePolicy policy,
                                                         int64_t most_bytes) {
    policy.in_background = true;
    return SimulatedRanks(mesh_.ranks()).run([&](Communicator& world) {
      RankMemory& own = ranks_[static_cast<size_t>(world.rank())];
      SavingRank rank(io, directory, world, mesh_, units_, own, most_bytes);
      rank.writer.begin(state, policy);
      overwrite_when_free(rank.snapshot, own);
      rank.writer.commit();
    });
  }
  void save_step(Io& io, const std::filesystem::path& directory, int64_t step,
                 const SavePolicy& policy = {}) {
    fill(step);
    for (const std::optional<Error>& error : save(io, directory, state_at(step, model_), policy))
      ASSERT_FALSE(error) << error->what();
  }

  /// Reads the checkpoint `directory` into all ranks.
  void read(Io& io, const std::filesystem::path& directory) {
    const Checkpoint checkpoint{directory, read_manifest(io, directory)};
    for (RankMemory& rank : ranks_) CheckpointReader(io, checkpoint).read(rank.fsdp_index(), rank.units());
  }
  /// Whether every rank has its values of `step`.
  bool is_at(int64_t step) const {
    for (const RankMemory& rank : ranks_) {
      RankMemory expected(units_, mesh_, rank.rank(), moments_);
      expected.fill(step);
      if (!same_bits(rank, expected)) return false;
    }
    return true;
  }

  const ModelConfig& model() const { return model_; }
  const MeshSizes& mesh() const { return mesh_; }
  const std::vector<UnitSpec>& units() const { return units_; }
  std::vector<RankMemory>& ranks() { return ranks_; }

 private:
  ModelConfig model_;
  MeshSizes mesh_;
  DType moments_;
  std::vector<UnitSpec> units_;
  std::vector<RankMemory> ranks_;
};

}  // namespace ripstop
