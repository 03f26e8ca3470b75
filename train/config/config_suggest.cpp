// Hints for keys and sections that do not exist, and for values of a wrong type.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "model/core/number.h"
#include "train/config/config_entries.h"
#include "train/config/config_keys.h"
#include "train/config/nearest_name.h"

namespace ripstop {
namespace {

// Names of other programs that have no key here. A name that many keys could have is written section.name.
struct Explanation {
  std::string_view name;
  std::string_view text;
};
constexpr Explanation kExplanations[] = {
    {"optimizer.name", "the optimizer is AdamW"},
    {"optimizer.type", "the optimizer is AdamW"},
    {"optimizer.implementation", "the optimizer is AdamW, one fused kernel"},
    {"optim", "the optimizer is AdamW; 'optimizer.moments' = \"bfloat16\" halves the memory of its moments"},
    {"optimizer.momentum", "the optimizer is AdamW: its two decays are 'optimizer.betas'"},
    {"bf16", "'precision.compute' = \"bfloat16\" is the default"},
    {"fp16", "not in ripstop: 'precision.compute' = \"bfloat16\" has the same size and float32's range"},
    {"compile", "not in ripstop: its kernels are compiled with it"},
    {"torch_compile", "not in ripstop: its kernels are compiled with it"},
    {"attn_implementation", "not in ripstop: attention is always the fused kernel"},
    {"use_flash_attention_2", "not in ripstop: attention is always the fused kernel"},
    {"dataloader_num_workers", "not in ripstop: one thread reads ahead of every rank"},
    {"num_workers", "not in ripstop: one thread reads ahead of every rank"},
    {"device_map", "set 'run.device'; [mesh] says how the model is cut"},
    {"deepspeed", "not in ripstop: sharding is [mesh] and 'train.reshard_after_forward'"},
    {"cpu_offload", "not in ripstop: use more ranks, or a larger 'mesh.tensor'"},
    {"use_peft", "set 'lora.rank': adapters are trained if it is above 0"},
    {"use_dora", "not in ripstop: adapters are LoRA's, without a magnitude"},
    {"dora", "not in ripstop: adapters are LoRA's, without a magnitude"},
    {"rank_pattern", "not in ripstop: all adapters have the rank 'lora.rank'"},
    {"alpha_pattern", "not in ripstop: all adapters have the scale of 'lora.alpha'"},
    {"lora.bias", "not in ripstop: LLaMA-2 has no biases"},
    {"lora_bias", "not in ripstop: adapters have no biases"},
    {"modules_to_save", "not in ripstop: [lora] trains adapters alone"},
    {"layers_to_transform", "not in ripstop: every layer has the adapters of 'lora.targets'"},
    {"init_lora_weights", "not in ripstop: adapters begin as PEFT's do, A at random and B with zeros"},
    {"load_in_8bit",
     "not in ripstop: weights are stored in 'precision.compute'; [lora] saves most of the rest"},
    {"load_in_4bit",
     "not in ripstop: weights are stored in 'precision.compute'; [lora] saves most of the rest"},
    {"label_smoothing_factor", "not in ripstop: the loss is plain cross-entropy"},
    {"expert_parallel_degree", "ripstop has no mixture of experts: use 'mesh.fsdp' and 'mesh.tensor'"},
    {"gpus", "the launcher says it: one rank computes on one GPU, as in launch.sh 4 ripstop train"},
    {"n_gpus", "the launcher says it: one rank computes on one GPU, as in launch.sh 4 ripstop train"},
    {"num_gpus", "the launcher says it: one rank computes on one GPU, as in launch.sh 4 ripstop train"},
    {"rope_scaling", "not in ripstop: set 'model.rope_theta' for longer sequences"},
    {"hidden_act", "LLaMA-2 has SwiGLU"},
    {"attention_dropout", "LLaMA-2 has none"},
    {"push_to_hub", "not in ripstop: a run uses no network"},
    {"gc_freq", "not in ripstop: there is no garbage collector"},
    {"gradient_accumulation_steps",
     "it follows from 'train.global_batch_sequences' and 'train.micro_batch_sequences'"},
    {"warmup_ratio", "set 'schedule.warmup_steps', in steps"},
    {"pipeline_parallel_degree", "ripstop has no pipeline axis: use 'mesh.fsdp' and 'mesh.tensor'"},
    {"context_parallel_degree", "ripstop has no context axis: use 'mesh.fsdp' and 'mesh.tensor'"},
    {"lr_scheduler_kwargs", "set 'schedule.minimum_ratio'"},
    {"logging_strategy", "set 'log.every_steps', in steps"},
    {"save_strategy", "set 'checkpoint.every_steps', in steps"},
    {"save_only_model", "not in ripstop: a checkpoint has all that a run needs to go on"},
    {"save_safetensors", "not in ripstop: checkpoints are HDF5"},
    {"overwrite_output_dir", "not in ripstop: a new run is a new 'run.directory'"},
    {"auto_find_batch_size", "'train.micro_batch_sequences' = \"auto\" is the default"},
    {"per_device_eval_batch_size", "validation uses 'train.micro_batch_sequences'"},
    {"dataloader_drop_last", "not in ripstop: every example is used once an epoch"},
    {"group_by_length", "not in ripstop: 'data.pack' fills sequences with examples of all lengths"},
    {"remove_unused_columns",
     "not in ripstop: ripstop prepare takes two fields, the document and the summary"},
    {"early_stopping_threshold", "not in ripstop: 'train.stop_after_validations' counts every improvement"},
    {"compute_metrics",
     "not in ripstop: validation measures the loss, and ROUGE with 'generation.validate_examples'"},
    {"fsdp_config", "sharding is [mesh] and 'train.reshard_after_forward'"},
    {"deepspeed_config", "sharding is [mesh] and 'train.reshard_after_forward'"},
    {"ddp_find_unused_parameters", "not in ripstop: all parameters are used"},
    {"do_train", "it is the verb: ripstop train"},
    {"do_eval", "set 'train.validate_every', or run ripstop evaluate"},
    {"do_predict", "it is the verb: ripstop evaluate"},
    {"run_name", "a run is named by its 'run.directory'"},
    {"disable_tqdm", "set 'log.every_steps'"},
    {"tf32", "not in ripstop: 'precision.compute' is bfloat16 or float32"},
    {"neftune_noise_alpha", "not in ripstop"},
    {"head_dim", "it is 'model.hidden_size' / 'model.num_attention_heads'"},
    {"resume_from_checkpoint", "the same command again resumes from 'run.directory'"},
    {"dropout", "LLaMA-2 has none; adapters have 'lora.dropout'"},
    {"multiple_of", "set 'model.intermediate_size'"},
    {"ffn_dim_multiplier", "set 'model.intermediate_size'"},
};

// Names of sections in the configs of torchtitan and of other trainers.
struct SectionSynonym {
  std::string_view name;
  std::string_view section;
};
constexpr SectionSynonym kSectionSynonyms[] = {
    {"training", "train"},
    {"trainer", "train"},
    {"parallelism", "mesh"},
    {"parallel", "mesh"},
    {"lr_scheduler", "schedule"},
    {"scheduler", "schedule"},
    {"metrics", "log"},
    {"logging", "log"},
    {"job", "run"},
    {"general", "run"},
    {"dataset", "data"},
    {"checkpointing", "checkpoint"},
    {"optim", "optimizer"},
    {"mixed_precision", "precision"},
    {"activation_checkpoint", "train"},
    {"validation", "train"},
    {"debug", "run"},
    {"peft", "lora"},
    {"peft_config", "lora"},
    {"lora_config", "lora"},
};

// Words of other programs for the values of a choice. A word counts only if its value is one of that choice.
struct ValueSynonym {
  std::string_view word;
  std::string_view value;
};
constexpr ValueSynonym kValueSynonyms[] = {
    {"bf16", "bfloat16"},
    {"torch.bfloat16", "bfloat16"},
    {"fp16", "float16"},
    {"f16", "float16"},
    {"half", "float16"},
    {"torch.float16", "float16"},
    {"hf", "huggingface"},
    {"transformers", "huggingface"},
    {"safetensors", "huggingface"},
    {"fp32", "float32"},
    {"f32", "float32"},
    {"float", "float32"},
    {"single", "float32"},
    {"torch.float32", "float32"},
    {"no", "float32"},  // mixed_precision of accelerate
    {"gpu", "cuda"},
    {"cuda:0", "cuda"},
    {"nvidia", "cuda"},
    {"cosine_with_min_lr", "cosine"},
    {"cosine_with_warmup", "cosine"},
    {"linear_with_warmup", "linear"},
    {"constant_with_warmup", "constant"},
    {"eval_loss", "loss"},
    {"validation_loss", "loss"},
    {"rouge", "rougeL"},
    {"rouge_l", "rougeL"},
    {"eval_rougel", "rougeL"},
    {"wq", "q_proj"},
    {"wk", "k_proj"},
    {"wv", "v_proj"},
    {"wo", "o_proj"},
    {"output_proj", "o_proj"},
    {"w1", "gate_proj"},
    {"w3", "up_proj"},
    {"w2", "down_proj"},
    {"completion", "summary"},
    {"response", "summary"},
    {"everything", "all"},
    {"off", "none"},
    {"false", "none"},
};

// Whether `name` is one of the space-separated `names`, or the part of one after its last dot.
bool is_among(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const size_t space = names.find(' ');
    const std::string_view word = names.substr(0, space);
    names = space == std::string_view::npos ? std::string_view{} : names.substr(space + 1);
    const size_t dot = word.rfind('.');
    if (word == name || (dot != std::string_view::npos && word.substr(dot + 1) == name)) return true;
  }
  return false;
}

// Whether `names` holds `name`, or `section.name`. Spaces around all of them keep parts of words out.
bool is_other_name(std::string_view names, std::string_view section, std::string_view name) {
  return (" " + std::string(names) + " ").find(fmt::format(" {} ", name)) != std::string::npos ||
         (" " + std::string(names) + " ").find(fmt::format(" {}.{} ", section, name)) != std::string::npos;
}

}  // namespace

// Other names with a section fit only in that section: "name" means the model's preset in [model], but not in
// [run].
std::vector<std::string> config_keys_known_as(std::string_view section, std::string_view name) {
  std::vector<std::string> result;
  for (const bool same_section : {true, false})
    for (const ConfigKey& key : config_keys())
      if ((key.section == section) == same_section &&
          (key.name == name || is_among(key.hugging_face, name) || is_among(key.torchtitan, name) ||
           is_other_name(key.other_names, section, name)))
        result.push_back(key.path());
  return result;
}

namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace

std::string meant_word(std::string_view typed, std::span<const std::string> words) {
  const std::string word = lower(typed);
  for (const ValueSynonym& synonym : kValueSynonyms)
    if (synonym.word == word && std::ranges::find(words, synonym.value) != words.end())
      return std::string(synonym.value);
  return word.empty() ? "" : nearest_name(word, words);
}

namespace {

// The number that all of `text` is, as people wrote it; "" if it is none, or not finite.
std::string number_in(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' && std::isfinite(value) && std::isalpha(text.back()) == 0 ? text : "";
}

// The value that was meant, as TOML; "" if none is near. One function for each type of field.
struct MeantValue {
  const ConfigValue& given;
  bool none_is_auto;

  std::string text() const {
    const auto* word = std::get_if<std::string>(&given);
    return word != nullptr ? *word : "";
  }
  std::string operator()(const bool*) const {
    const std::string word = lower(text());
    const auto* number = std::get_if<int64_t>(&given);
    if (word == "true" || word == "yes" || word == "on" || (number != nullptr && *number == 1)) return "true";
    if (word == "false" || word == "no" || word == "off" || (number != nullptr && *number == 0))
      return "false";
    return "";
  }
  std::string operator()(const int64_t*) const {
    if (parse_integer(text())) return text();
    const auto* number = std::get_if<double>(&given);  // 1e3 is no integer in TOML
    const bool is_whole = number != nullptr && std::abs(*number) < 1e15 && *number == std::floor(*number);
    return is_whole ? fmt::format("{:.0f}", *number) : "";
  }
  std::string operator()(const double*) const { return number_in(text()); }
  std::string operator()(const std::string*) const { return ""; }
  std::string operator()(const std::array<double, 2>*) const { return ""; }
  std::string operator()(const ChoiceField& choice) const {
    const std::vector<std::string> words(choice.words.begin(), choice.words.end());
    const std::string meant = meant_word(text(), words);
    return meant.empty() ? "" : toml_string(meant);
  }
  std::string operator()(const WordsField& list) const {
    const std::vector<std::string> words(list.words.begin(), list.words.end());
    const auto* several = std::get_if<std::vector<std::string>>(&given);
    const std::vector<std::string> typed = several != nullptr ? *several : std::vector{text()};
    // PEFT's word for all of them.
    if (typed.size() == 1 && lower(typed[0]) == "all-linear")
      return fmt::format("[\"{}\"]", fmt::join(words, "\", \""));
    std::vector<std::string> meant;
    for (const std::string& word : typed) {
      meant.push_back(meant_word(word, words));
      if (meant.back().empty()) return "";
    }
    return fmt::format("[\"{}\"]", fmt::join(meant, "\", \""));
  }
  template <class T>
  std::string operator()(const std::optional<T>* value) const {
    if (none_is_auto && lower(text()) == "auto") return "\"auto\"";
    return (*this)(value->has_value() ? &**value : nullptr);
  }
};

}  // namespace

std::string suggest_config_value(const ConfigEntry& entry) {
  const ConfigKey& key = *entry.key;
  RunConfig any;
  const Field field = key.field(any);
  const auto* word = std::get_if<std::string>(&entry.value);
  if (word != nullptr && key.section == "precision")
    for (const char* half : {"fp16", "float16", "half", "torch.float16"})
      if (lower(*word) == half)
        return "float16 is not in ripstop: bfloat16 has the same size and float32's range";
  const std::string meant = std::visit(MeantValue{entry.value, key.none_is_auto}, field);
  if (meant.empty()) return "";
  if (entry.line > 0) return fmt::format("write {} = {}", key.name, meant);
  // A shell removes quotes, and an override needs none.
  std::string bare = meant;
  if (bare.find('"') != std::string::npos)
    std::erase_if(bare, [](char c) { return c == '"' || c == ' ' || c == '[' || c == ']'; });
  return fmt::format("write {}={}", key.path(), bare);
}

std::string suggest_config_key(std::string_view section, std::string_view name) {
  // From the surest hint to the vaguest: an explanation, a name that other programs use, a slip in this
  // section, a slip in any section, the list of keys.
  for (const Explanation& explanation : kExplanations)
    if (explanation.name == name || explanation.name == fmt::format("{}.{}", section, name))
      return std::string(explanation.text);
  const std::vector<std::string> known = config_keys_known_as(section, name);
  if (!known.empty()) return fmt::format("did you mean '{}'?", fmt::join(known, "' or '"));

  std::vector<std::string> here;
  std::vector<std::string> everywhere;
  for (const ConfigKey& key : config_keys()) {
    if (key.section == section) here.emplace_back(key.name);
    everywhere.emplace_back(key.name);
  }
  std::string nearest = nearest_name(name, here);
  if (!nearest.empty()) return fmt::format("did you mean '{}.{}'?", section, nearest);
  nearest = nearest_name(name, everywhere);
  for (const ConfigKey& key : config_keys())
    if (!nearest.empty() && key.name == nearest) return fmt::format("did you mean '{}'?", key.path());
  if (!here.empty()) return fmt::format("[{}] has {}", section, fmt::join(here, ", "));
  return suggest_config_section(section);
}

std::string suggest_config_section(std::string_view section) {
  for (const SectionSynonym& synonym : kSectionSynonyms)
    if (synonym.name == section) return fmt::format("did you mean [{}]?", synonym.section);
  const std::vector<std::string> names(config_sections().begin(), config_sections().end());
  const std::string nearest = nearest_name(section, names);
  if (!nearest.empty()) return fmt::format("did you mean [{}]?", nearest);
  return fmt::format("the sections are {}", fmt::join(names, ", "));
}

}  // namespace ripstop
