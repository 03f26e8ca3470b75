#include "train/commands/model_arguments.h"

#include <fmt/core.h>

#include <array>
#include <cstdio>

#include "train/config/run_config.h"

namespace ripstop {
namespace {

// An option with the name that Hugging Face users type, and its key of [generation].
struct GenerationOption {
  const char* name;
  const char* key;
  const char* help;
};
constexpr std::array kGenerationOptions = {
    GenerationOption{"--num-beams", "num_beams", "beams of the search; 1: no search"},
    GenerationOption{"--length-penalty", "length_penalty", "of the search: above 0 favours long summaries"},
    GenerationOption{"--no-repeat-ngram-size", "no_repeat_ngram_size",
                     "no so many tokens twice in document and summary; 0: off"},
    GenerationOption{"--min-new-tokens", "min_new_tokens", "shortest summary"},
    GenerationOption{"--max-new-tokens", "max_new_tokens",
                     "longest summary; default of this and the others: generation.* of the run"},
    GenerationOption{"--temperature", "temperature", "of sampling: below 1 favours likely tokens"},
    GenerationOption{"--top-k", "top_k", "of sampling: draw among so many tokens; 0: all"},
    GenerationOption{"--top-p", "top_p", "of sampling: draw among tokens of this probability; 1: all"},
    GenerationOption{"--seed", "seed", "of sampling"},
};

}  // namespace

void ModelArguments::add_to(Verb& verb, int64_t batch) {
  batch_size = batch;
  verb.option("PATH", path, "a run's directory, one checkpoint, or a model of Hugging Face").required();
  verb.option("overrides", overrides, "generation.key=value, stronger than the run's config");
  verb.option("--checkpoint", checkpoint, "best, latest, a step, or a step directory").show_default();
  generation.resize(kGenerationOptions.size());
  for (size_t i = 0; i < kGenerationOptions.size(); ++i)
    verb.option(kGenerationOptions[i].name, generation[i], kGenerationOptions[i].help);
  verb.flag("--do-sample", do_sample, "draw tokens at random instead of taking the most likely ones");
  verb.option("--batch-size", batch_size, "summaries that a replica writes at once")
      .positive()
      .show_default();
}

TrainedModel ModelArguments::find(Io& io, Communicator& world) const {
  check_overrides();
  TrainedModel trained = find_trained_model(io, world, path, checkpoint, all_overrides());
  if (world.rank() == 0)
    for (const std::string& note : ignored_generation_notes(trained.config))
      fmt::print(stderr, "note: {}\n", note);
  return trained;
}

void ModelArguments::check_overrides() const {
  for (const std::string& text : overrides) {
    // Sizes, precision and data belong to the trained weights. Another value would not describe them.
    if (text.rfind("generation.", 0) != 0)
      throw CommandLineError(fmt::format("'{}' is not generation.key=value", text),
                             "a trained model keeps all else of its config; other options begin with --");
    // It would change nothing here.
    if (text.rfind("generation.validate_examples=", 0) == 0)
      throw CommandLineError("generation.validate_examples is for validations of ripstop train",
                             "evaluate --limit says how many examples are scored");
    const auto refuse_twice = [&](const char* option, const char* key, bool given) {
      if (given && text.rfind(fmt::format("generation.{}=", key), 0) == 0)
        throw CommandLineError(fmt::format("{} and generation.{} are one setting", option, key),
                               "give one of them");
    };
    for (size_t i = 0; i < generation.size(); ++i)
      refuse_twice(kGenerationOptions[i].name, kGenerationOptions[i].key, !generation[i].empty());
    refuse_twice("--do-sample", "do_sample", do_sample);
  }
}

std::vector<std::string> ModelArguments::all_overrides() const {
  std::vector<std::string> all = overrides;
  for (size_t i = 0; i < generation.size(); ++i)
    if (!generation[i].empty())
      all.push_back(fmt::format("generation.{}={}", kGenerationOptions[i].key, generation[i]));
  if (do_sample) all.emplace_back("generation.do_sample=true");
  return all;
}

}  // namespace ripstop
