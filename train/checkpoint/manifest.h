// manifest.json: what a checkpoint is.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/io.h"
#include "model/config.h"
#include "model/parameter.h"
#include "train/checkpoint/checkpoint_layout.h"

namespace ripstop {

/// The best validation so far.
struct BestSoFar {
  std::string metric;  ///< "loss" or "rougeL"
  double value = 0;
  int64_t step = 0;  ///< the checkpoint that has it
  bool operator==(const BestSoFar&) const = default;
};

/// Everything of a run that is not an array: what a run needs to go on as if it had never stopped. Texts are
/// UTF-8; what is unknown may be empty.
struct CheckpointState {
  int64_t step = 0;     ///< steps done
  int64_t updates = 0;  ///< optimizer updates done: steps less those skipped for a value that was not finite
  int64_t epoch = 0;    ///< cursor: the next sequence to train on
  int64_t sequence = 0;
  int64_t tokens = 0;  ///< tokens seen
  ModelConfig model;
  std::string config;  ///< the resolved config as TOML
  std::string data_content_hash;
  std::string tokenizer_sha256;
  std::string pack_plan_hash;
  std::string validation_content_hash;  ///< "none" without a validation set, empty where unknown
  int64_t validated_step = 0;           ///< the last step whose weights were validated; 0: none was
  std::optional<BestSoFar> best;
  bool operator==(const CheckpointState&) const = default;
};

/// A rank's file and its sidecar, as committed.
struct StoredFile {
  int64_t rank = 0;
  int64_t bytes = 0;          ///< of rank_*.h5
  int64_t sidecar_bytes = 0;  ///< of rank_*.blocks
  std::string sidecar_hash;   ///< XXH3-128 of rank_*.blocks, 32 hexadecimal digits
  bool operator==(const StoredFile&) const = default;
};

struct Manifest {
  /// 2: `validation`. Version 1 had none; a run that goes on from there counts as validated.
  static constexpr int kVersion = 2;
  static constexpr const char* kFileName = "manifest.json";
  static constexpr int64_t kMostBytes = int64_t{16} << 20;

  CheckpointState state;
  MeshSizes mesh;
  std::string written_by;         ///< version and commit of ripstop
  std::vector<UnitSpec> units;    ///< names, shapes, cuts and grains; nothing on initial values
  std::vector<StoredFile> files;  ///< by rank; of those that have something to store
  int64_t bytes() const;          ///< of all files but the manifest
};

/// "step_00001000".
std::string step_directory_name(int64_t step);
/// The step of a name that step_directory_name gives; nothing for any other name.
std::optional<int64_t> parse_step_directory_name(const std::string& name);
/// "rank_00000.h5", "rank_00000.blocks".
std::string rank_file_name(int64_t rank);
std::string sidecar_file_name(int64_t rank);

/// The file's bytes. Its last member is the XXH3-128 of all bytes before that member.
std::string manifest_text(const Manifest& manifest);

/// Reads what manifest_text wrote, of this or any earlier version. Strict, as the bytes may come from
/// anywhere: hash, size, depth, no key twice, none missing or unknown, whole numbers in range, a parameter
/// table that can be laid out, the very files that table and mesh ask for. Throws Error(kStorage), naming
/// `name`.
Manifest parse_manifest(const std::string& text, const std::string& name);

/// parse_manifest of DIRECTORY/manifest.json. Throws Error(kStorage).
Manifest read_manifest(Io& io, const std::filesystem::path& directory);

}  // namespace ripstop
