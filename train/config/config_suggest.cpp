// Hints for keys and sections that do not exist.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

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
    {"optim", "the optimizer is AdamW"},
    {"optimizer.momentum", "the optimizer is AdamW: its two decays are 'optimizer.betas'"},
    {"compile", "not in ripstop: its kernels are compiled with it"},
    {"torch_compile", "not in ripstop: its kernels are compiled with it"},
    {"attn_implementation", "not in ripstop: attention is always the fused kernel"},
    {"use_flash_attention_2", "not in ripstop: attention is always the fused kernel"},
    {"dataloader_num_workers", "not in ripstop: one thread reads ahead of every rank"},
    {"num_workers", "not in ripstop: one thread reads ahead of every rank"},
    {"deepspeed", "not in ripstop: sharding is [mesh] and 'train.reshard_after_forward'"},
    {"cpu_offload", "not in ripstop: use more ranks, or a larger 'mesh.tensor'"},
    {"lora_r", "not in ripstop: all weights are trained"},
    {"use_peft", "not in ripstop: all weights are trained"},
    {"load_in_8bit", "not in ripstop: all weights are trained, in 'precision.compute'"},
    {"load_in_4bit", "not in ripstop: all weights are trained, in 'precision.compute'"},
    {"label_smoothing_factor", "not in ripstop: the loss is plain cross-entropy"},
    {"expert_parallel_degree", "ripstop has no mixture of experts: use 'mesh.fsdp' and 'mesh.tensor'"},
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
    {"head_dim", "it is 'model.hidden_size' / 'model.num_attention_heads'"},
    {"resume_from_checkpoint", "the same command again resumes from 'run.directory'"},
    {"dropout", "LLaMA-2 has none"},
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

// The keys that other programs call `name`, those of `section` first. Other names with a section fit only in
// that section: "name" means the model's preset in [model], but not in [run].
std::vector<std::string> keys_known_as(std::string_view section, std::string_view name) {
  std::vector<std::string> result;
  for (const bool same_section : {true, false})
    for (const ConfigKey& key : config_keys())
      if ((key.section == section) == same_section &&
          (key.name == name || is_among(key.hugging_face, name) || is_among(key.torchtitan, name) ||
           is_other_name(key.other_names, section, name)))
        result.push_back(key.path());
  return result;
}

}  // namespace

std::string suggest_config_key(std::string_view section, std::string_view name) {
  // From the surest hint to the vaguest: an explanation, a name that other programs use, a slip in this
  // section, a slip in any section, the list of keys.
  for (const Explanation& explanation : kExplanations)
    if (explanation.name == name || explanation.name == fmt::format("{}.{}", section, name))
      return std::string(explanation.text);
  const std::vector<std::string> known = keys_known_as(section, name);
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
