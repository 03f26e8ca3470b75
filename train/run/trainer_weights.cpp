// The weights that a run begins with, and the frozen ones under its adapters: how they are found, checked and
// read.
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "parallel/agreement.h"
#include "train/exchange/adapted_base.h"
#include "train/exchange/model_tokenizer.h"
#include "train/exchange/weights_reader.h"
#include "train/machine/equal_ranks.h"
#include "train/run/trainer.h"

namespace ripstop {

// Checks the whole pretrained model before anything large is allocated. A run that has begun needs it only
// under adapters: the one that they were trained with.
void Trainer::open_pretrained() {
  if (!pretrained_) return;
  if (pretrained_->has_begun) {
    if (!has_adapters()) return;
    const CheckpointState state = read_manifest(io_, pretrained_->directory).state;
    // A run of the whole model: another config, which the resume refuses.
    if (!state.adapted) return;
    // What the config names comes first: of two copies with the same samples, one may be damaged.
    first_weights_.emplace(
        find_base(io_, *state.adapted, state.model,
                  {std::filesystem::absolute(options_.config.model.pretrained).lexically_normal(),
                   state.adapted->directory}));
    state_.adapted = state.adapted;
    return;
  }
  first_weights_.emplace(open_stored_model(io_, pretrained_->directory));
  std::string note = compare_tokenizers({.model = pretrained_->directory,
                                         .model_sha256 = first_weights_->state().tokenizer_sha256,
                                         .user = "the data set " + options_.config.data.directory},
                                        tokenizer_);
  if (!note.empty()) resolved_.notes.push_back(std::move(note));
  first_adapters_ = open_first_adapters(options_.config.lora, resolved_.model);
}

// Collective: refuses copies on other nodes that hold other weights, whose shards would make a model of two.
void Trainer::compare_pretrained() {
  if (!first_weights_) return;
  std::string samples;
  do_and_agree(mesh_.world(), [&] { samples = first_weights_->samples_hash(); });
  require_equal(mesh_.world(), ExitCode::kInputData, "the pretrained model", samples,
                mesh_.hosts()[static_cast<size_t>(mesh_.position())], kSamePretrainedHint);
  require_bases(mesh_.world(), *first_weights_);
  if (has_adapters()) {
    if (state_.adapted)
      require_base_weights(mesh_.world(), *first_weights_, *state_.adapted);
    else
      state_.adapted = {options_.config.lora, std::filesystem::absolute(first_weights_->directory()).string(),
                        first_weights_->weights_hash(mesh_.world()), samples, ""};
  }
  if (!first_adapters_) return;
  std::string adapters;
  do_and_agree(mesh_.world(), [&] { adapters = first_adapters_->weights_hash(); });
  require_equal(mesh_.world(), ExitCode::kInputData, "the adapters to begin with", adapters,
                mesh_.hosts()[static_cast<size_t>(mesh_.position())],
                "make the same lora.adapter visible on every node");
}

// The weights before the first step. Moments are zero.
void Trainer::set_first_weights() {
  if (!pretrained_) {
    step_->model().initialize(static_cast<uint64_t>(options_.config.run.seed));
    return;
  }
  if (has_adapters()) {
    set_first_adapters();
    return;
  }
  if (!first_weights_)
    fail(ExitCode::kStorage, "{}: was there when the run started, and is gone",
         pretrained_->directory.string());
  show("reading " + first_weights_->directory().string());
  do_and_agree(mesh_.world(), [&] {
    load_states(live_states(step_->model(), step_->optimizer()), stream_,
                [&](const std::vector<UnitStates>& units) {
                  first_weights_->read(io_, mesh_.coordinates().fsdp, units);
                });
  });
  step_->model().weights_changed(step_->arena());
  weights_of_ = fmt::format("{} ({})", first_weights_->directory().string(),
                            first_weights_->is_pretrained() ? "Hugging Face" : "a checkpoint");
  // Closes its files: the run never needs them again.
  first_weights_.reset();
}

// New adapters, which change nothing yet, or those that lora.adapter names.
void Trainer::set_first_adapters() {
  if (!first_adapters_) {
    step_->model().initialize(static_cast<uint64_t>(options_.config.run.seed),
                              step_->model().trained_units());
    return;
  }
  do_and_agree(mesh_.world(), [&] {
    load_states(live_states(step_->model(), step_->optimizer()), stream_,
                [&](const std::vector<UnitStates>& units) {
                  for (const UnitStates& unit : units) {
                    const int64_t elements = unit.layout->shard_elements(),
                                  begin = mesh_.coordinates().fsdp * elements;
                    read_peft(*first_adapters_, *unit.layout, begin, begin + elements, unit.master);
                  }
                });
  });
  step_->model().weights_changed(step_->arena());
  first_adapters_.reset();
}

// The frozen weights, which no checkpoint has: every start reads them. Through host memory, because the
// device holds them in the compute dtype alone, and in pieces, because the plan has no room for a unit in
// float32.
void Trainer::read_base() {
  show("reading " + first_weights_->directory().string());
  do_and_agree(mesh_.world(), [&] {
    const std::span<FsdpUnit> units = step_->model().frozen_units();
    std::vector<const UnitLayout*> layouts;
    for (const FsdpUnit& unit : units) layouts.push_back(&unit.layout());
    read_in_pieces(io_, *first_weights_, layouts, mesh_.coordinates().fsdp,
                   [&](size_t unit, int64_t first, std::span<const float> values) {
                     units[unit].set_shard(first, values);
                   });
  });
  // It may have moved, and another processor may compute in another type.
  state_.adapted->dtype = to_string(resolved_.step.sharding.compute);
  state_.adapted->directory = std::filesystem::absolute(first_weights_->directory()).string();
  weights_of_ = fmt::format("{}, frozen", first_weights_->directory().string());
  first_weights_.reset();
}

}  // namespace ripstop
