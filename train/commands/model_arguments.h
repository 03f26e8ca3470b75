// Options that evaluate and summarize share.
#pragma once
#include <cstdint>
#include <string>

#include "train/commands/command_line.h"
#include "train/generate/trained_model.h"

namespace ripstop {

/// Which trained model to take, and how it writes summaries.
struct ModelArguments {
  std::string path;
  std::vector<std::string> overrides;  ///< "generation.key=value"
  std::string checkpoint = "best";
  int64_t batch_size = 0;
  /// What the options of [generation] give, in the order of the keys in generation_options(); "": not given.
  std::vector<std::string> generation;
  bool do_sample = false;

  /// Adds the options to `verb`; `batch` is the default of --batch-size.
  void add_to(Verb& verb, int64_t batch);

  /// Finds the trained model. Its config has the overrides and the options. Rank 0 prints a note for each
  /// setting that changes nothing. Throws Error(kUsage) if an override is none of [generation], or is given
  /// as an option, too. Collective.
  TrainedModel find(Io& io, Communicator& world) const;

 private:
  void check_overrides() const;
  std::vector<std::string> all_overrides() const;
};

}  // namespace ripstop
