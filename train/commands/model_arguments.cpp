#include "train/commands/model_arguments.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <optional>
#include <string_view>

#include "data/process/shell_word.h"
#include "data/text/utf8.h"
#include "model/core/number.h"
#include "parallel/agreement.h"
#include "train/commands/checkpoint_verbs.h"
#include "train/config/run_config.h"
#include "train/exchange/hugging_face/generation_file.h"
#include "train/exchange/hugging_face/pretrained_model.h"
#include "train/machine/device_choice.h"
#include "train/report/standard_streams.h"

namespace ripstop {
namespace {

// An option and the key of [generation] that it sets.
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

// {"num_beams", "4"} for "generation.num_beams=4".
GenerationValue parts_of(const std::string& given) {
  const size_t dot = given.find('.'), equals = given.find('=');
  return {given.substr(dot + 1, equals - dot - 1), given.substr(equals + 1)};
}

// Removes from `values` the setting of `decided`, and settings that conflict with it.
void remove_decided(const GenerationValue& decided, std::vector<GenerationValue>& values) {
  const auto remove = [&](std::string_view key) {
    std::erase_if(values, [&](const GenerationValue& value) { return value.key == key; });
  };
  remove(decided.key);
  if (decided.key == "do_sample" && decided.value == "true") remove("num_beams");
  if (decided.key == "num_beams" && decided.value != "1") remove("do_sample");
}

// The hint for an argument after the model's path that is not an override.
std::string hint_for_word(const std::string& text) {
  std::error_code ignored;
  const std::filesystem::path path(text);
  if (std::filesystem::is_regular_file(path, ignored))
    return fmt::format("texts of a file: ripstop summarize PATH --input {}", shell_word(text));
  if (std::filesystem::exists(path / "prepare.json", ignored))
    return fmt::format("a data set: ripstop evaluate PATH --data {}", shell_word(text));
  if (std::filesystem::is_directory(path, ignored)) return "give one model at a time";
  return "a trained model keeps all else of its config; other options begin with --";
}

std::optional<int64_t> number_of(const std::vector<GenerationValue>& values, std::string_view key) {
  const auto found = std::ranges::find(values, key, &GenerationValue::key);
  return found == values.end() ? std::nullopt : parse_integer(found->value);
}

// The settings of generation_config.json as overrides. Leaves out settings that `own`, the overrides of the
// command line, decides. Prints a note on settings taken and not taken.
std::vector<std::string> settings_of_file(const std::string& path, const std::vector<std::string>& own) {
  GenerationFile file = read_generation_file(path);
  int64_t most = number_of(file.values, "max_new_tokens").value_or(GenerationSettings{}.max_new_tokens);
  for (const std::string& given : own) {
    const GenerationValue decided = parts_of(given);
    remove_decided(decided, file.values);
    if (decided.key == "max_new_tokens") most = parse_integer(decided.value).value_or(most);
  }
  if (number_of(file.values, "min_new_tokens") > most) {
    remove_decided({"min_new_tokens", ""}, file.values);
    file.ignored.push_back(fmt::format("min_new_tokens (it exceeds max_new_tokens = {})", most));
  }
  std::vector<std::string> overrides, taken;
  for (const GenerationValue& value : file.values) {
    overrides.push_back(fmt::format("generation.{}={}", value.key, value.value));
    taken.push_back(fmt::format("{} = {}", value.key, value.value));
  }
  if (!taken.empty()) print_to(stderr, "note: from {}: {}\n", file.path.string(), fmt::join(taken, ", "));
  if (!file.ignored.empty())
    print_to(stderr, "note: {}: not taken: {}\n", file.path.string(), fmt::join(file.ignored, ", "));
  return overrides;
}

// Returns rank 0's settings_of_file() on all ranks; empty if `path` is no Hugging Face model. Collective.
std::vector<std::string> defaults_of_file(Communicator& world, const std::string& path,
                                          const std::vector<std::string>& own) {
  const std::string text = from_rank_0(world, [&] {
    if (!is_pretrained_model(path)) return std::string();
    return fmt::format("{}", fmt::join(settings_of_file(path, own), "\n"));
  });
  const std::vector<std::string_view> lines = words_in(text, "\n");
  return {lines.begin(), lines.end()};
}

// A note on the end tokens in a Hugging Face model's files. "" for a checkpoint, for files with none or only
// the EOS of `tokenizer`, and if generation.eos_token_id replaces them.
std::string ends_note(const Tokenizer& tokenizer, const TrainedModel& trained) {
  if (!trained.stored.is_pretrained()) return "";
  const EndTokens ends = read_end_tokens(trained.run, trained.state().model.vocab_size);
  if (ends.ids.empty() || ends.ids != trained.config.generation.eos_token_id) return "";
  std::string names, own;
  for (const int32_t id : ends.ids)
    names += fmt::format("{}{}{}", names.empty() ? "" : ", ", id,
                         id < tokenizer.vocabulary_size() ? " " + tokenizer.piece(id).name : "");
  if (tokenizer.has_eos()) {
    const int32_t eos = tokenizer.eos();
    if (ends.ids == std::vector{eos}) return "";
    if (std::ranges::count(ends.ids, eos) == 0)
      own = fmt::format(", and at the tokenizer's {} {}", eos, tokenizer.piece(eos).name);
  }
  return fmt::format("from {}: texts end at the {} {}{}", ends.path.string(),
                     ends.ids.size() == 1 ? "token" : "tokens", names, own);
}

}  // namespace

void ModelArguments::add_to(Verb& verb, int64_t batch) {
  batch_size = batch;
  verb.path("PATH", path, "a run's directory, one checkpoint, or a model of Hugging Face").required();
  verb.option("overrides", overrides, "generation.key=value, stronger than the run's config");
  verb.set_override_section("generation");
  verb.path("--checkpoint", checkpoint, "best, latest, a step, or a step directory").show_default();
  verb.path("--base", base, kBaseOptionHelp);
  verb.option(
          "--device", device,
          "cpu, cuda or auto: the GPU if every rank has one; default: cpu if the run was configured for it, "
          "else auto")
      .choices({"auto", "cpu", "cuda"});
  generation.resize(kGenerationOptions.size());
  for (size_t i = 0; i < kGenerationOptions.size(); ++i)
    verb.option(kGenerationOptions[i].name, generation[i], kGenerationOptions[i].help);
  verb.flag("--do-sample", do_sample, "draw tokens at random instead of taking the most likely ones");
  verb.option("--batch-size", batch_size, "summaries that a replica writes at once")
      .positive()
      .show_default();
}

Device ModelArguments::choose_rank_device(MpiWorld& world, const TrainedModel& trained) const {
  // Takes only kCpu from the run, so that a model trained on GPUs also works on a machine without GPUs.
  const bool cpu = trained.config.run.device == DeviceChoice::kCpu;
  const DeviceChoice usual = cpu ? DeviceChoice::kCpu : DeviceChoice::kAuto;
  return choose_device(value_of<DeviceChoice>(device).value_or(usual), world);
}

TrainedModel ModelArguments::find(Io& io, Communicator& world, bool reads_generation_file) const {
  const std::vector<std::string> own = all_overrides();
  std::vector<std::string> all;
  if (reads_generation_file) all = defaults_of_file(world, path, own);
  all.insert(all.end(), own.begin(), own.end());  // if a key has several overrides, the last one wins
  TrainedModel trained = find_trained_model(io, world, path, checkpoint, {.directory = base}, all);
  if (world.rank() != 0) return trained;
  if (!trained.stored.is_pretrained()) warn_of_superseded(io, trained.stored.directory());
  for (const std::string& note : ignored_generation_notes(trained.config))
    print_to(stderr, "note: {}\n", note);
  return trained;
}

void print_notes(Communicator& world, std::vector<std::string> notes, const Tokenizer& tokenizer,
                 const TrainedModel& trained, bool writes_texts) {
  do_on_rank_0(world, [&] {
    std::ranges::move(tokenizer.notes(), std::back_inserter(notes));
    std::ranges::move(trained.stored.notes(), std::back_inserter(notes));
    if (writes_texts) notes.push_back(ends_note(tokenizer, trained));
    std::erase(notes, "");
    for (const std::string& note : notes) print_to(stderr, "note: {}\n", note);
  });
}

// The overrides of the command line, then its options written as overrides.
std::vector<std::string> ModelArguments::all_overrides() const {
  for (const std::string& text : overrides) {
    // Sizes, precision and data belong to the trained weights and cannot change.
    if (!text.starts_with("generation."))
      throw Error(ExitCode::kUsage, fmt::format("'{}' is not generation.key=value", text),
                  hint_for_word(text));
    if (text.starts_with("generation.validate_examples="))
      throw Error(ExitCode::kUsage, "generation.validate_examples is for validations of ripstop train",
                  "evaluate --limit says how many examples are scored");
  }
  std::vector<std::string> all = overrides;
  const auto add = [&](const char* option, const char* key, const std::string& value) {
    const std::string name = fmt::format("generation.{}", key);
    for (const std::string& text : overrides)
      if (text.starts_with(name + "="))
        throw Error(ExitCode::kUsage, fmt::format("{} and {} are one setting", option, name),
                    "give one of them");
    all.push_back(name + "=" + value);
  };
  for (size_t i = 0; i < generation.size(); ++i)
    if (!generation[i].empty()) add(kGenerationOptions[i].name, kGenerationOptions[i].key, generation[i]);
  if (do_sample) add("--do-sample", "do_sample", "true");
  return all;
}

}  // namespace ripstop
