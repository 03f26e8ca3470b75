// The weights that a run begins with, and the frozen ones under its adapters: how they are found, checked and
// read.
#include <fmt/format.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parallel/agreement.h"
#include "train/exchange/hugging_face/model_tokenizer.h"
#include "train/exchange/read/open_model.h"
#include "train/exchange/read/weights_reader.h"
#include "train/machine/equal_ranks.h"
#include "train/run/trainer.h"

namespace ripstop {

// What a run that has not begun begins with. Reads headers and samples of the weights, before anything large
// is allocated. Collective: refuses copies on other nodes that hold other weights, whose shards would make a
// model of two.
void Trainer::open_first_weights() {
  if (!pretrained_ || pretrained_->has_begun) return;
  const std::string& where = mesh_.hosts()[static_cast<size_t>(mesh_.position())];
  std::string samples, adapters;
  do_and_agree(mesh_.world(), [&] {
    first_weights_.emplace(open_stored_model(io_, pretrained_->directory));
    std::string note = compare_tokenizers({.model = pretrained_->directory,
                                           .model_sha256 = first_weights_->state().tokenizer_sha256,
                                           .user = "the data set " + options_.config.data.directory},
                                          tokenizer_);
    if (!note.empty()) resolved_.notes.push_back(std::move(note));
    samples = first_weights_->samples_hash();
    first_adapters_ = open_first_adapters(options_.config.lora, resolved_.model);
    if (first_adapters_) adapters = first_adapters_->weights_hash();
  });
  require_equal(mesh_.world(), ExitCode::kInputData, "the pretrained model", samples, where,
                kSamePretrainedHint);
  require_equal(mesh_.world(), ExitCode::kInputData, "the adapters to begin with", adapters, where,
                "make the same lora.adapter visible on every node");
  if (has_adapters())
    state_.adapted = {.lora = options_.config.lora,
                      .directory = normal_path(first_weights_->directory()).string(),
                      .hash = "",
                      .samples = samples,
                      .dtype = ""};
}

// The weights before the first step. Moments are zero.
void Trainer::set_first_weights() {
  if (!pretrained_) {
    step_->model().initialize(static_cast<uint64_t>(options_.config.run.seed));
    return;
  }
  if (!first_weights_)
    fail(ExitCode::kStorage, "{}: was there when the run started, and is gone",
         pretrained_->directory.string());
  if (has_adapters()) {
    set_first_adapters();
    return;
  }
  require_bases(mesh_.world(), *first_weights_);
  show("reading " + first_weights_->directory().string());
  do_and_agree(mesh_.world(), [&] {
    load_states(live_states(step_->model(), step_->optimizer()), stream_,
                [&](const std::vector<UnitStates>& units) {
                  read_weights(io_, *first_weights_, mesh_.coordinates().fsdp, units);
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
}

// Opens the model under the adapters of a run that goes on.
void Trainer::find_base_again(const RunConfig& saved_config) {
  do_and_agree(mesh_.world(), [&] {
    first_weights_.emplace(find_base(
        io_, *state_.adapted, state_.model,
        places_of_base(*state_.adapted, saved_config.model.pretrained, options_.config.model.pretrained)));
  });
}

// The frozen weights, which no checkpoint has: every start reads them, and compares all of their bytes with
// those that the run began with. Through host memory, because the device holds them in the compute dtype
// alone, and in pieces, because the plan has no room for a unit in float32.
void Trainer::read_base() {
  const std::string directory = first_weights_->directory().string();
  const auto watch = [&](int64_t percent) {
    show(fmt::format("hashing {}, which stays frozen  {}%", directory, percent));
  };
  require_bases(mesh_.world(), *first_weights_);
  // Empty in a new run, and in one that an earlier version began.
  if (state_.adapted->hash.empty())
    state_.adapted->hash = first_weights_->weights_hash(mesh_.world(), watch);
  else
    require_base_weights(mesh_.world(), *first_weights_, *state_.adapted, watch);
  show("reading " + directory);
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
  state_.adapted->directory = normal_path(first_weights_->directory()).string();
  weights_of_ = directory + ", frozen";
  if (first_adapters_)
    weights_of_ += "; the adapters begin as those of " + first_adapters_->directory.string();
  first_adapters_.reset();
  first_weights_.reset();
}

}  // namespace ripstop
