// Options that evaluate and summarize share.
#pragma once
#include <cstdint>
#include <string>

#include "train/commands/command_line.h"
#include "train/generate/trained_model.h"

namespace ripstop {

/// Where the settings of [generation] come from that the command line does not give.
enum class GenerationSource {
  kConfig,                  ///< the config of the run; of a model of Hugging Face, ripstop's defaults
  kConfigOrGenerationFile,  ///< the same, but of a model of Hugging Face first its generation_config.json
};

/// What --base is, for the help of the verbs that have it.
inline constexpr const char* kBaseOptionHelp =
    "of a run of adapters: the directory of the model that they were trained with; default: where it was";

/// Which trained model to take, and how it writes summaries.
struct ModelArguments {
  std::string path;
  std::vector<std::string> overrides;  ///< "generation.key=value"
  std::string checkpoint = "best";
  std::string base;    ///< of adapters: the directory of the model under them; empty: where it was
  std::string device;  ///< empty: not given
  int64_t batch_size = 0;
  /// What the options of [generation] give, in the order of the keys in generation_options(); "": not given.
  std::vector<std::string> generation;
  bool do_sample = false;

  /// Adds the options to `verb`; `batch` is the default of --batch-size.
  void add_to(Verb& verb, int64_t batch);

  /// Finds the trained model. Its config has the overrides and the options. Rank 0 prints a note for each
  /// setting that changes nothing, and what it took of a generation_config.json. Throws Error(kUsage) if an
  /// override is none of [generation], or is given as an option, too; as find_trained_model and
  /// read_generation_file. Collective.
  TrainedModel find(Io& io, Communicator& world, GenerationSource source) const;

  /// The device that this rank computes on: as --device says; without it the CPU if the run was configured
  /// for the CPU, else a GPU if every rank has one, else the CPU. Collective. Throws as choose_device.
  Device choose_rank_device(MpiWorld& world, const TrainedModel& trained) const;

 private:
  void check_overrides() const;
  std::vector<std::string> all_overrides() const;
};

}  // namespace ripstop
