#pragma once
#include <cstdint>
#include <string>

#include "data/tokenizer/tokenizer.h"
#include "train/commands/command_line.h"
#include "train/exchange/read/open_model.h"

namespace ripstop {

/// The help of --base.
inline constexpr const char* kBaseOptionHelp =
    "of a run of adapters: the directory of the model that they were trained with; default: where it was";

/// Options of `evaluate` and `summarize` that choose a trained model, its device and summary settings.
struct ModelArguments {
  std::string path;
  std::vector<std::string> overrides;  ///< "generation.key=value"
  std::string checkpoint = "best";
  /// --base: directory of the adapters' model; empty: where training found it.
  std::string base;
  std::string device;  ///< --device; empty: not given
  int64_t batch_size = 0;
  std::vector<std::string> generation;  ///< the values of kGenerationOptions; "": not given
  bool do_sample = false;

  /// Adds the options to `verb`. `batch`: the default of --batch-size.
  void add_to(Verb& verb, int64_t batch);

  /// Finds the trained model, and applies the overrides and options to its config. With
  /// `reads_generation_file`, a Hugging Face model's generation_config.json decides settings that the command
  /// line does not. Rank 0 prints notes on that file, on settings without effect, on superseded checkpoints.
  /// Throws the errors of find_trained_model and read_generation_file, and Error(kUsage) if an override is
  /// outside [generation], sets validate_examples or repeats an option. Collective.
  TrainedModel find(Io& io, Communicator& world, bool reads_generation_file) const;

  /// The device of this rank: --device if given; else the CPU if the run was configured for it or a rank has
  /// no GPU; else a GPU. Throws the errors of choose_device. Collective.
  Device choose_rank_device(MpiWorld& world, const TrainedModel& trained) const;

 private:
  std::vector<std::string> all_overrides() const;
};

/// Prints on rank 0 each of `notes` that is not empty, and the notes on the tokenizer and on the model's
/// files. With `writes_texts`, also prints at which tokens texts end according to a Hugging Face model's
/// files, unless that is only the EOS of `tokenizer` or generation.eos_token_id is set instead. Throws like
/// read_end_tokens. Collective.
void print_notes(Communicator& world, std::vector<std::string> notes, const Tokenizer& tokenizer,
                 const TrainedModel& trained, bool writes_texts);

}  // namespace ripstop
