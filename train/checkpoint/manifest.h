#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset/data_cursor.h"
#include "data/files/io.h"
#include "model/config.h"
#include "model/core/error.h"
#include "model/lora.h"
#include "model/parameter.h"
#include "train/checkpoint/checkpoint_layout.h"

namespace ripstop {

/// The best validation so far.
struct BestSoFar {
  std::string metric;  ///< "loss" or "rougeL"
  double value = 0;
  int64_t step = 0;  ///< step of the validated checkpoint
  bool operator==(const BestSoFar&) const = default;
  static void fields(auto& self, auto& field) {
    field("metric", self.metric);
    field("value", self.value);
    field("step", self.step);
  }
};

/// The adapters' config, and which frozen model is their base, for a checkpoint that has only adapters.
struct AdaptedBase {
  LoraConfig lora;
  std::string directory;  ///< directory of the base model when the run last started
  std::string hash;       ///< StoredModel::weights_hash of the base; empty until the run has read it
  std::string samples;    ///< StoredModel::samples_hash of the base; a resume looks for this hash
  std::string dtype;      ///< dtype of the base in memory when the run last started: "bfloat16" or "float32"
  bool operator==(const AdaptedBase&) const = default;
  static void fields(auto& self, auto& field) {
    field("rank", self.lora.rank, 1);
    field("alpha", self.lora.alpha);
    field("dropout", self.lora.dropout);
    field("rslora", self.lora.rslora);
    field.flags("targets", self.lora.targets, kLoraTargets);
    field.group("base", [&](auto& base) {
      base("directory", self.directory, 4096);
      base("hash", self.hash);
      base("samples", self.samples);
      base("dtype", self.dtype);
    });
  }
};

/// A run's state except its weights and moments. Texts are empty if unknown.
struct CheckpointState {
  int64_t step = 0;     ///< steps done
  int64_t updates = 0;  ///< steps done, less the skipped ones (StepResult::skipped)
  DataCursor cursor;    ///< the next sequence to train on
  int64_t tokens = 0;   ///< tokens seen
  ModelConfig model;
  std::optional<AdaptedBase> adapted;  ///< nullopt: the checkpoint has the whole model, not adapters
  std::string config;                  ///< the resolved config as TOML
  /// Hashes of train.h5 and of the PackPlan of its first epoch; several data sets: with spaces between.
  std::string data_content_hash, pack_plan_hash;
  std::string tokenizer_sha256;
  std::string validation_content_hash;  ///< "none" without a validation set; empty if unknown
  int64_t validated_step = 0;           ///< the last step whose weights were validated; 0: no step
  std::optional<BestSoFar> best;
  int64_t validations_since_best = 0;  ///< validations since `best`; with keep_best "none" they do not count
  int64_t takeover = 0;  ///< Takeover::number of the start that saved the checkpoint; 0: no takeover
  bool operator==(const CheckpointState&) const = default;
};

/// The sizes of a rank's file and its sidecar, and the hash of the sidecar.
struct StoredFile {
  int64_t rank = 0;
  int64_t bytes = 0;          ///< size of rank_*.h5
  int64_t sidecar_bytes = 0;  ///< size of rank_*.blocks
  std::string sidecar_hash;   ///< XXH3-128 of rank_*.blocks, 32 hexadecimal digits
  bool operator==(const StoredFile&) const = default;
};

struct Manifest {
  static constexpr int kVersion = 9;  ///< the version that is written, and the first that was released
  static constexpr const char* kFormat = "ripstop checkpoint";
  static constexpr const char* kFileName = "manifest.json";
  static constexpr int64_t kMostBytes = int64_t{16} << 20;

  CheckpointState state;
  MeshSizes mesh;
  DType moments = DType::kFloat32;  ///< dtype of the moments: float32 or bfloat16
  std::string written_by;           ///< version and commit of ripstop
  std::vector<UnitSpec> units;      ///< without initial values
  std::vector<StoredFile> files;    ///< ordered by rank; ranks that store nothing have no file
  int64_t bytes() const;            ///< bytes of all files except the manifest
  std::vector<StoredArray> arrays_of(int64_t rank) const;
};

/// Error(kStorage) for a manifest, not damaged, whose version or layout version this ripstop does not read.
class OtherFormat : public Error {
 public:
  using Error::Error;
};

/// trained_table() of the model in `state`.
std::vector<UnitSpec> stored_table(const CheckpointState& state);

/// "step_00001000".
std::string step_directory_name(int64_t step);
/// The step of a name that step_directory_name makes; nullopt for any other name.
std::optional<int64_t> parse_step_directory_name(const std::string& name);
/// "rank_00000.h5" and "rank_00000.blocks".
std::string rank_file_name(int64_t rank);
std::string sidecar_file_name(int64_t rank);

/// The text of manifest.json, with its hash.
std::string manifest_text(const Manifest& manifest);

/// Parses a manifest of kVersion, or of a later version whose min_reader allows it. `text` may be damaged or
/// forged. Checks hash, size, depth, repeated, missing and (of kVersion) unknown keys, ranges of numbers,
/// that the parameter table can be laid out, and that the files follow from table and mesh. Throws
/// Error(kStorage) with `name`; OtherFormat for any other version.
Manifest parse_manifest(const std::string& text, const std::string& name);

/// Parses `directory`/manifest.json. Throws the errors of read_whole_file and parse_manifest.
Manifest read_manifest(Io& io, const std::filesystem::path& directory);

}  // namespace ripstop
