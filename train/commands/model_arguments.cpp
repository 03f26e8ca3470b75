#include "train/commands/model_arguments.h"

#include <fmt/core.h>

#include "train/config/config_keys.h"
#include "train/config/unsupported_keys.h"

namespace ripstop {

void ModelArguments::add_to(Verb& verb, int64_t batch) {
  batch_size = batch;
  verb.option("PATH", path, "a run's directory, one checkpoint, or a model of Hugging Face").required();
  verb.option("overrides", overrides, "generation.key=value, stronger than the run's config");
  verb.option("--checkpoint", checkpoint, "best, latest, a step, or a step directory").show_default();
  verb.option("--max-new-tokens", max_new_tokens, "longest summary; default: generation.max_new_tokens")
      .positive();
  verb.option("--batch-size", batch_size, "summaries that a replica writes at once")
      .positive()
      .show_default();
}

TrainedModel ModelArguments::find(Io& io, Communicator& world) const {
  for (const std::string& text : overrides) {
    // Sizes, precision and data belong to the trained weights. Another value would not describe them.
    if (text.rfind("generation.", 0) != 0)
      throw CommandLineError(fmt::format("'{}' is not generation.key=value", text),
                             "a trained model keeps all else of its config; other options begin with --");
    // It would change nothing here.
    if (text.rfind("generation.validate_examples=", 0) == 0)
      throw CommandLineError("generation.validate_examples is for validations of ripstop train",
                             "evaluate --limit says how many examples are scored");
    if (max_new_tokens > 0 && text.rfind("generation.max_new_tokens=", 0) == 0)
      throw CommandLineError("--max-new-tokens and generation.max_new_tokens are one setting",
                             "give one of them");
  }
  TrainedModel trained = find_trained_model(io, world, path, checkpoint, overrides);
  refuse_unsupported_keys(trained.config, ConfigReader::kGenerate, [&](const ConfigKey& key) {
    for (const std::string& text : overrides)
      if (text.rfind(key.path() + "=", 0) == 0) return std::string("command line");
    return trained.stored.directory().string();
  });
  return trained;
}

int64_t ModelArguments::longest_summary(const TrainedModel& trained) const {
  return max_new_tokens > 0 ? max_new_tokens : trained.config.generation.max_new_tokens;
}

}  // namespace ripstop
