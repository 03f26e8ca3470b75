// Opens the model at a path, with its run, and the model under its adapters (the base).
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset/token_dataset.h"
#include "data/files/io.h"
#include "data/tokenizer/tokenizer.h"
#include "train/config/run_config.h"
#include "train/exchange/read/stored_model.h"

namespace ripstop {

/// `path` if it is a Hugging Face model, else what find_checkpoint finds. Throws like find_checkpoint.
std::filesystem::path find_stored_model(Io& io, const std::filesystem::path& path, const std::string& which);

/// Where open_stored_model looks for the base of a checkpoint of adapters.
struct BaseChoice {
  std::filesystem::path directory = {};  ///< the only place to look; empty: where the base was in training
  /// If false and `directory` is empty, no base is opened, and WeightsReader reads only the adapters.
  bool is_needed = true;
};

/// Opens the model that find_stored_model found; reads the manifest or the headers. Throws Error(kStorage),
/// with a hint, if the manifest is damaged or has other parameters than its model, or if the checkpoint is
/// superseded (Takeovers); Error(kUsage) if `base` names a directory and the model has no adapters; and what
/// open_pretrained_model, StoredModel and find_base throw.
StoredModel open_stored_model(Io& io, const std::filesystem::path& directory, const BaseChoice& base = {});

/// An open model, without weights, and its run.
struct TrainedModel {
  StoredModel stored;
  /// The run's directory, with the tokenizer; for a Hugging Face model, `stored.directory()`.
  std::filesystem::path run;
  RunConfig config;  ///< the config of the training

  const CheckpointState& state() const { return stored.state(); }
  /// Maximum tokens of prompt and summary together in training.
  int64_t context() const;
};

/// The kind of examples that the run was trained on, by its log; for a copied checkpoint, by
/// prepare.json of the data set; for an export, by ripstop_prompt.json. Otherwise kSummary. For several data
/// sets, the kind of the first, or kConversation if that has running text and another has conversations.
ExampleKind trained_kind(const TrainedModel& trained);

/// The tokenizer for conversations of the model in `run`, if the model reads documents in another way
/// (TokenizerFiles::questions); else nullopt. If there is one, adds its end token and that of `tokenizer` to
/// `ends`, which stays in ascending order. Throws the errors of Tokenizer.
std::optional<Tokenizer> question_tokenizer(const std::filesystem::path& run, const Tokenizer& tokenizer,
                                            std::vector<int32_t>& ends);

/// Opens the model that find_stored_model finds. `overrides` ("generation.key=value") replace values in the
/// config of the training. All ranks open the model that rank 0 finds. Collective. Throws like
/// find_stored_model, open_stored_model and require_bases; Error(kInputData) if ranks see different models.
TrainedModel find_trained_model(Io& io, Communicator& world, const std::string& path,
                                const std::string& which, const BaseChoice& base = {},
                                std::span<const std::string> overrides = {});

/// The absolute form of `path`, without "." and "..", and without a "/" at the end.
std::filesystem::path normal_path(const std::filesystem::path& path);

/// The places where a resumed run looks for its base: base.directory, then model.pretrained of the run's
/// config (`pretrained_now`). If the checkpoint's config has another path (`pretrained_then`),
/// `pretrained_now` is the only place, so that another model there is an error.
std::vector<std::filesystem::path> places_of_base(const AdaptedBase& base, const std::string& pretrained_then,
                                                  const std::string& pretrained_now);

/// Opens the base of a checkpoint of adapters: the first of `places` with a model whose samples_hash() is
/// base.samples and whose config is `sizes`, except for max_position_embeddings and initializer_range. Reads
/// headers and samples of weights; require_base_weights must follow. Not collective. If no place has the
/// base, throws Error(kInputData), or Error(kStorage) if a place could not be read, with all findings.
StoredModel find_base(Io& io, const AdaptedBase& base, const ModelConfig& sizes,
                      const std::vector<std::filesystem::path>& places);

/// Throws Error(kInputData) unless `found`, from find_base, has the StoredModel::weights_hash base.hash, and
/// what weights_hash throws, which gets `watch`. Collective over `world`.
void require_base_weights(
    Communicator& world, const StoredModel& found, const AdaptedBase& base,
    FunctionRef<void(int64_t percent)> watch = [](int64_t) {});

/// Calls check_storages for a Hugging Face model, and require_base_weights for the base of `model`, the base
/// of that base, and so on. Collective over `world`.
void require_bases(Communicator& world, const StoredModel& model);

/// Throws unless `directory` has the base or an export of the base: a Hugging Face model of the same sizes,
/// with the weights of the base rounded to the export's dtype. (PEFT cannot load a checkpoint of ripstop.) Of
/// an export, compares three samples of each unit with the base, which must be where it was in training.
/// Throws like find_base and require_base_weights. Collective over `world`.
void require_base_or_export(Io& io, Communicator& world, const AdaptedBase& base, const ModelConfig& sizes,
                            const std::filesystem::path& directory);

}  // namespace ripstop
