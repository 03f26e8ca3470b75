// Hints for words of other programs and for typing errors.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "data/text/utf8.h"
#include "model/core/number.h"
#include "train/config/config_entries.h"
#include "train/config/config_keys.h"
#include "train/config/nearest_name.h"

namespace ripstop {
namespace {

// Words of other programs, separated by spaces, with ripstop's word or, if there is none, the hint. An
// ambiguous word is written section.name, a refused value section.value. Other programs' names of ripstop's
// keys are in ConfigKey::elsewhere.
struct ForeignWords {
  std::string_view words;
  std::string_view name;  // ripstop's word: a section, a verb or a value; empty: see `answer`
  std::string_view answer = {};
};

constexpr ForeignWords kForeignWords[] = {
    {"eval score test validate", "evaluate"},
    {"generate inference infer predict summary", "summarize"},
    {"preprocess tokenize", "prepare"},
    {"info show describe", "inspect"},
    {"check validate", "verify"},
    {"ls", "list"},
    {"finetune fit pretrain resume training trainer activation_checkpoint validation", "train"},
    {"parallelism parallel", "mesh"},
    {"lr_scheduler scheduler", "schedule"},
    {"metrics logging", "log"},
    {"job general debug", "run"},
    {"dataset", "data"},
    {"optim", "optimizer"},
    {"mixed_precision", "precision"},
    {"peft peft_config lora_config", "lora"},

    {"yes on 1", "true"},
    {"no off 0", "false"},
    {"bf16 torch.bfloat16", "bfloat16"},
    {"fp16 f16 half torch.float16", "float16"},
    {"fp32 f32 float single torch.float32 no", "float32"},  // "no" is from accelerate's mixed_precision
    {"hf transformers safetensors", "huggingface"},
    {"gpu cuda:0 nvidia", "cuda"},
    {"cosine_with_min_lr cosine_with_warmup", "cosine"},
    {"linear_with_warmup", "linear"},
    {"constant_with_warmup", "constant"},
    {"warmup_stable_decay trapezoidal", "wsd"},
    {"1_sqrt 1-square_root one_minus_sqrt", "1-sqrt"},
    {"eval_loss validation_loss", "loss"},
    {"rouge rouge_l eval_rougel", "rougeL"},
    {"wq", "q_proj"},
    {"wk", "k_proj"},
    {"wv", "v_proj"},
    {"wo output_proj", "o_proj"},
    {"w1", "gate_proj"},
    {"w3", "up_proj"},
    {"w2", "down_proj"},
    {"completion response", "summary"},
    {"off false", "none"},

    {"wandb wandb_project enable_wandb logging_dir", "",
     "not in ripstop: 'log.tensorboard' = true writes what TensorBoard and wandb sync read into "
     "'run.directory'"},
    {"precision.fp16 precision.float16 precision.half precision.torch.float16", "",
     "float16 is not in ripstop: bfloat16 has the same size and float32's range"},
    {"optim optimizer.name optimizer.type optimizer.implementation optimizer.momentum", "",
     "the optimizer is AdamW; 'optimizer.moments' = \"bfloat16\" halves the memory of its moments"},
    {"compile torch_compile", "", "not in ripstop: its kernels are compiled with it"},
    {"attn_implementation use_flash_attention_2", "", "not in ripstop: attention is always the fused kernel"},
    {"dataloader_num_workers num_workers", "", "not in ripstop: one thread reads ahead of every rank"},
    {"deepspeed deepspeed_config fsdp_config cpu_offload", "",
     "not in ripstop: sharding is [mesh] and 'train.reshard_after_forward'"},
    {"context_parallel_degree expert_parallel_degree", "",
     "ripstop has no such axis: use 'mesh.fsdp' and 'mesh.tensor'"},
    {"gpus n_gpus num_gpus ngpus gpus_per_node num_gpus_per_node nproc_per_node num_processes", "",
     "one rank computes on one GPU, and the launcher starts the ranks: launch.sh 4 ripstop ..., or "
     "srun -n 4; plan counts them with --ntasks-per-node"},
    {"use_dora dora", "", "not in ripstop: adapters are LoRA's, without a magnitude"},
    {"rank_pattern alpha_pattern layers_to_transform", "",
     "not in ripstop: every layer has adapters of 'lora.rank', 'lora.alpha' and 'lora.targets'"},
    {"lora.bias lora_bias", "", "not in ripstop: adapters train no biases"},
    {"modules_to_save", "", "not in ripstop: [lora] trains adapters alone"},
    {"init_lora_weights", "", "not in ripstop: adapters begin as PEFT's do, A at random and B with zeros"},
    {"load_in_8bit load_in_4bit", "",
     "not in ripstop: weights are stored in 'precision.compute'; [lora] saves most of the rest"},
    {"rope_scaling rope_parameters", "",
     "its members are keys: 'model.rope_type', 'model.rope_factor' and the like"},
    {"mlp_bias", "", "not in ripstop: feed-forward layers add no biases"},
    {"model.yarn model.dynamic model.longrope model.su", "",
     "ripstop scales rotary frequencies as \"linear\" or \"llama3\""},
    {"attention_dropout dropout", "", "the models have none; adapters have 'lora.dropout'"},
    {"push_to_hub", "", "not in ripstop: a run uses no network"},
    {"gradient_accumulation_steps", "",
     "it follows from 'train.global_batch_sequences' and 'train.micro_batch_sequences'"},
    {"warmup_ratio", "", "set 'schedule.warmup_steps', in steps"},
    {"overwrite_output_dir", "", "not in ripstop: a new run is a new 'run.directory'"},
    {"resume_from_checkpoint resume continue auto_resume", "",
     "the same command again resumes from 'run.directory'; 'run.continue_from' begins a new run from another "
     "one"},
};

bool has_word(std::string_view words, std::string_view word) {
  return std::ranges::count(words_in(words), word) > 0;
}

// Whether other programs call the key `name`. Words before the "|" of ConfigKey::elsewhere match with or
// without their section. Words after the "|" match only as written: "model.name" matches `name` only in
// section [model].
bool is_known_as(const ConfigKey& key, std::string_view section, std::string_view name) {
  const size_t bar = std::min(key.elsewhere.find('|'), key.elsewhere.size());
  const std::string end = fmt::format(".{}", name), path = fmt::format("{}.{}", section, name);
  return std::ranges::any_of(words_in(key.elsewhere.substr(0, bar)),
                             [&](std::string_view word) { return word == name || word.ends_with(end); }) ||
         has_word(key.elsewhere.substr(bar), name) || has_word(key.elsewhere.substr(bar), path);
}

// operator() returns the value that `given` probably means, as TOML; "" if nothing is near. Each field type
// with hints has an overload.
struct MeantValue {
  const ConfigValue& given;
  bool none_is_auto;

  std::string text() const {
    const auto* const word = std::get_if<std::string>(&given);
    return word != nullptr ? *word : "";
  }
  bool is_nothing() const {
    return given == ConfigValue(false) || has_word("none null nil off no false", lower_case(text()));
  }
  std::string operator()(bool*) const {
    const auto* const number = std::get_if<int64_t>(&given);
    return suggest(number != nullptr ? std::to_string(*number) : text(), {"true", "false"});
  }
  std::string operator()(int64_t*) const {
    if (const std::optional<int64_t> whole = parse_integer(text())) return std::to_string(*whole);
    const auto* const number = std::get_if<double>(&given);  // 1e3 is a float in TOML
    const bool is_whole = number != nullptr && std::abs(*number) < 1e15 && *number == std::floor(*number);
    return is_whole ? fmt::format("{:.0f}", *number) : "";
  }
  std::string operator()(double*) const {
    const std::string number = text();
    char* end = nullptr;
    const double value = std::strtod(number.c_str(), &end);
    const bool is_number = !number.empty() && *end == '\0' && std::isalpha(number.back()) == 0;
    if (!is_number || !std::isfinite(value)) return "";
    // TOML refuses .001, 1., 01 and 1.e-3.
    const bool is_toml = number.find(".e") == std::string::npos && std::isdigit(number.back()) != 0 &&
                         (number[0] > '0' || number.starts_with("0."));
    return is_toml ? number : toml_number(value);
  }
  std::string operator()(std::vector<std::string>*) const {
    return text().empty() ? "" : fmt::format("[{}]", toml_string(text()));
  }
  std::string operator()(const ChoiceField& choice) const {
    std::string word = text();
    std::erase_if(word, [](unsigned char c) { return c > 0x7f; });  // drops round quotes
    const std::string meant = suggest(word, {choice.words.begin(), choice.words.end()});
    return meant.empty() ? "" : toml_string(meant);
  }
  std::string operator()(const WordsField& list) const {
    const std::vector<std::string> words(list.words.begin(), list.words.end());
    const auto* const several = std::get_if<std::vector<std::string>>(&given);
    std::vector<std::string> meant = several != nullptr ? *several : std::vector{text()};
    if (meant.size() == 1 && lower_case(meant[0]) == "all-linear") meant = words;  // PEFT: all matrices
    for (std::string& word : meant)
      if ((word = suggest(word, words)).empty()) return "";
    return fmt::format("[\"{}\"]", fmt::join(meant, "\", \""));
  }
  template <class T>
  std::string operator()(std::optional<T>*) const {
    return none_is_auto && lower_case(text()) == "auto" ? "\"auto\"" : (*this)(static_cast<T*>(nullptr));
  }
  std::string operator()(const auto&) const { return ""; }
};

}  // namespace

std::string suggest(std::string_view typed, const std::vector<std::string>& candidates) {
  const std::string word = lower_case(typed);
  for (const ForeignWords& row : kForeignWords)
    if (has_word(row.words, word) && std::ranges::find(candidates, row.name) != candidates.end())
      return std::string(row.name);
  return word.empty() ? "" : nearest_name(word, candidates);
}

std::string answer_to(std::string_view word) {
  for (const ForeignWords& row : kForeignWords)
    if (!row.answer.empty() && has_word(row.words, word)) return std::string(row.answer);
  return "";
}

std::vector<std::string> suggest_keys(std::string_view section, std::string_view name) {
  std::vector<std::string> known, names, paths;
  for (const bool same_section : {true, false})
    for (const ConfigKey& key : config_keys()) {
      if ((key.section == section) != same_section) continue;
      if (key.name == name || is_known_as(key, section, name)) known.push_back(key.path());
      names.emplace_back(key.name);
      paths.push_back(key.path());
    }
  if (!known.empty()) return known;
  const auto near = std::ranges::find(names, nearest_name(name, names));
  return near == names.end() ? known : std::vector{paths[static_cast<size_t>(near - names.begin())]};
}

std::string suggest_config_key(std::string_view section, std::string_view name) {
  for (const std::string& word : {std::string(name), fmt::format("{}.{}", section, name)})
    if (std::string answer = answer_to(word); !answer.empty()) return answer;
  if (const std::vector<std::string> keys = suggest_keys(section, name); !keys.empty())
    return fmt::format("did you mean '{}'?", fmt::join(keys, "' or '"));
  std::vector<std::string_view> here;
  for (const ConfigKey& key : config_keys())
    if (key.section == section) here.push_back(key.name);
  if (here.empty()) return suggest_config_section(section);
  return fmt::format("[{}] has {}", section, fmt::join(here, ", "));
}

std::string suggest_config_section(std::string_view section) {
  std::vector<std::string> names;
  for (const ConfigKey& key : config_keys())
    if (names.empty() || names.back() != key.section) names.emplace_back(key.section);
  const std::string meant = suggest(section, names);
  if (!meant.empty()) return fmt::format("did you mean [{}]?", meant);
  if (std::string answer = answer_to(section); !answer.empty()) return answer;
  return fmt::format("the sections are {}", fmt::join(names, ", "));
}

std::string suggest_config_value(const ConfigEntry& entry) {
  const ConfigKey& key = *entry.key;
  RunConfig any;
  const MeantValue value{entry.value, key.none_is_auto};
  if (std::string answer = answer_to(fmt::format("{}.{}", key.section, lower_case(value.text())));
      !answer.empty())
    return answer;
  if (key.path() == "data.directory" && std::holds_alternative<std::vector<std::string>>(entry.value))
    return "several data sets are data.directories";
  std::string meant = std::visit(value, key.field(any)), note;
  // If the key's text explains 0, as in "0: off", a word such as "none" means 0.
  if (const size_t zero = key.doc.find("0: "); meant.empty() && zero < key.doc.size() && value.is_nothing()) {
    meant = "0";
    note = fmt::format(" ({})", key.doc.substr(zero, key.doc.find_first_of(";.", zero) - zero));
  }
  if (meant.empty() && !key.unit.empty() && std::holds_alternative<double>(entry.value))
    return fmt::format("it is a whole number of {}, no share", key.unit);
  char* end = nullptr;
  const double number = std::strtod(meant.c_str(), &end);
  if (meant.empty() || (*end == '\0' && !is_in_range(key, number))) return "";
  if (entry.line > 0) return fmt::format("write {} = {}{}", key.name, meant, note);
  // A shell would remove quotes, and an override needs none.
  std::string bare = meant;
  std::erase_if(bare, [](char c) { return c == '"' || c == ' ' || c == '[' || c == ']'; });
  return fmt::format("write {}={}{}", key.path(), bare, note);
}

}  // namespace ripstop
