// Options that evaluate and summarize share.
#pragma once
#include <cstdint>
#include <string>

#include "train/commands/command_line.h"
#include "train/exchange/read/open_model.h"

namespace ripstop {

/// The help of --base.
inline constexpr const char* kBaseOptionHelp =
    "of a run of adapters: the directory of the model that they were trained with; default: where it was";

/// Which trained model to take, and how it writes summaries.
struct ModelArguments {
  std::string path;
  std::vector<std::string> overrides;  ///< "generation.key=value"
  std::string checkpoint = "best";
  std::string base;    ///< directory of the model under adapters; empty: where it was
  std::string device;  ///< empty: not given
  int64_t batch_size = 0;
  /// Values of the options of [generation], in the order of kGenerationOptions; "": not given.
  std::vector<std::string> generation;
  bool do_sample = false;

  /// Adds the options to `verb`; `batch` is the default of --batch-size.
  void add_to(Verb& verb, int64_t batch);

  /// Finds the trained model. Its config has the overrides and the options; with `reads_generation_file`, and
  /// for a model of Hugging Face, its generation_config.json gives the settings that the command line does
  /// not. Rank 0 prints a note for each setting that changes nothing, and what it took of that file. Throws
  /// Error(kUsage) if an override is none of [generation], or is given as an option, too; as
  /// find_trained_model and read_generation_file. Collective.
  TrainedModel find(Io& io, Communicator& world, bool reads_generation_file) const;

  /// The device that this rank computes on: as --device says; without it the CPU if the run was configured
  /// for the CPU, else a GPU if every rank has one, else the CPU. Collective. Throws as choose_device.
  Device choose_rank_device(MpiWorld& world, const TrainedModel& trained) const;

 private:
  std::vector<std::string> all_overrides() const;
};

}  // namespace ripstop
