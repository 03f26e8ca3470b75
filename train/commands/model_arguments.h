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
  int64_t max_new_tokens = 0;  ///< 0: the config's
  int64_t batch_size = 0;

  /// Adds the options to `verb`; `batch` is the default of --batch-size.
  void add_to(Verb& verb, int64_t batch);

  /// Finds the trained model. Throws Error(kUsage) if an override is none of [generation], or if the config
  /// asks for a way to generate that this version does not do. Collective.
  TrainedModel find(Io& io, Communicator& world) const;

  /// The longest summary: --max-new-tokens, else the config's.
  int64_t longest_summary(const TrainedModel& trained) const;
};

}  // namespace ripstop
