#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parallel/agreement.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/exchange/hugging_face/model_tokenizer.h"
#include "train/exchange/hugging_face/stored_elements.h"
#include "train/exchange/read/open_model.h"
#include "train/exchange/read/weights_reader.h"
#include "train/run/trainer.h"

namespace ripstop {

// Opens the weights of a run that has not begun. Compares samples of the model, and the adapters, on all
// ranks, because a run must not mix two models. Collective.
Trainer::FirstWeights Trainer::open_first_weights(std::vector<std::string>& notes) {
  FirstWeights first;
  if (!run_.pretrained || run_.pretrained->has_begun) return first;
  std::string samples, adapters;
  do_and_agree(mesh_.world(), [&] {
    first.model.emplace(open_stored_model(posix_io(), run_.pretrained->directory));
    first.model->set_growth(
        {.how = run_.config.model.resize_vocabulary, .seed = static_cast<uint64_t>(run_.config.run.seed)});
    std::string note = compare_tokenizers({.model = run_.pretrained->directory,
                                           .model_sha256 = first.model->state().tokenizer_sha256,
                                           .user = "the data set " + run_.config.data.first(),
                                           .may_go_on = true},
                                          run_.tokenizer);
    if (!note.empty()) notes.push_back(std::move(note));
    samples = first.model->samples_hash();
    std::ranges::move(first.model->notes(), std::back_inserter(notes));
    first.adapters = open_first_adapters(run_.config.lora, run_.model);
    if (first.adapters) {
      adapters = first.adapters->weights_hash();
      std::ranges::move(wrappers_notes(first.adapters->directory, first.adapters->wrappers),
                        std::back_inserter(notes));
    }
  });
  require_equal(mesh_.world(), ExitCode::kInputData, "the pretrained model", samples, run_.host(),
                kSamePretrainedHint);
  require_equal(mesh_.world(), ExitCode::kInputData, "the adapters to begin with", adapters, run_.host(),
                "make the same lora.adapter visible on every node");
  if (has_adapters())
    state_.adapted = {.lora = run_.config.lora,
                      .directory = normal_path(first.model->directory()).string(),
                      .hash = "",
                      .samples = samples,
                      .dtype = ""};
  return first;
}

// Sets the trained weights of a new run; moments stay zero. Returns the model read, for people, or "".
std::string Trainer::set_first_weights(const FirstWeights& first) {
  ShardedTransformer& model = step_->model();
  const auto seed = static_cast<uint64_t>(run_.config.run.seed);
  if (!run_.pretrained) {
    model.initialize(seed);
    return "";
  }
  if (!first.model)
    fail(ExitCode::kStorage, "{}: was there when the run started, and is gone",
         run_.pretrained->directory.string());
  if (has_adapters() && !first.adapters) {
    // New adapters change nothing before the first update.
    model.initialize(seed, model.trained_units());
    return "";
  }
  if (!has_adapters()) {
    require_bases(mesh_.world(), *first.model);
    log_.show("reading " + first.model->directory().string());
  }
  do_and_agree(mesh_.world(), [&] {
    const int64_t shard = mesh_.coordinates().fsdp;
    load_states(live_states(model, step_->optimizer()), stream_, [&](const std::vector<UnitStates>& units) {
      if (!has_adapters()) return read_weights(posix_io(), *first.model, shard, units);
      for (const UnitStates& unit : units) {
        const int64_t elements = unit.layout->shard_elements(), begin = shard * elements;
        read_peft(*first.adapters, *unit.layout, begin, begin + elements, unit.master);
      }
    });
  });
  model.weights_changed(step_->arena());
  if (has_adapters()) return "";
  return fmt::format("{} ({})", first.model->directory().string(),
                     first.model->is_pretrained() ? "Hugging Face" : "a checkpoint");
}

// Reads the frozen weights, which no checkpoint has, and compares all bytes with the weights that the run
// began with. A new run uses the model in `first`; a `resumed` run finds its model again. Reads through host
// memory, because the device has the weights in the compute dtype only, and in pieces, because the plan has
// no room for a unit in float32. Returns the source, for people; nullopt on all ranks after a stop request.
std::optional<std::string> Trainer::read_base(FirstWeights first,
                                              const std::optional<ResumableCheckpoint>& resumed) {
  if (resumed) {
    // Another start may have saved this checkpoint, with another base, since `first` was opened.
    first = {};
    do_and_agree(mesh_.world(), [&] {
      first.model.emplace(find_base(
          posix_io(), *state_.adapted, state_.model,
          places_of_base(*state_.adapted, resumed->config.model.pretrained, run_.config.model.pretrained)));
    });
  }
  const StoredModel& base = *first.model;
  const std::string directory = base.directory().string();
  AdaptedBase& adapted = *state_.adapted;
  // Ends read_base() on a stop request; resume_or_initialize() then ends the start.
  const auto check_stop = [&] {
    if (stop_requested(0)) throw Error(ExitCode::kRequeue, "stopped while the base was read");
  };
  const auto watch = [&](int64_t percent) {
    check_stop();
    log_.show(fmt::format("hashing {}, which stays frozen  {}%", directory, percent));
  };
  try {
    require_bases(mesh_.world(), base);
    if (adapted.hash.empty())  // a new run
      adapted.hash = base.weights_hash(mesh_.world(), watch);
    else
      require_base_weights(mesh_.world(), base, adapted, watch);
    log_.show("reading " + directory);
    do_and_agree(mesh_.world(), [&] {
      const std::span<FsdpUnit> units = step_->model().frozen_units();
      std::vector<const UnitLayout*> layouts;
      for (const FsdpUnit& unit : units) layouts.push_back(&unit.layout());
      read_in_pieces(posix_io(), base, layouts, mesh_.coordinates().fsdp,
                     [&](size_t unit, int64_t from, std::span<const float> values) {
                       check_stop();
                       units[unit].set_shard(from, values);
                     });
    });
  } catch (const Error& error) {
    if (error.code() != ExitCode::kRequeue) throw;
    return std::nullopt;
  }
  // The base may have moved, and another processor may compute in another dtype.
  adapted.dtype = to_string(run_.step.sharding.compute);
  adapted.directory = normal_path(base.directory()).string();
  return directory + ", frozen" +
         (first.adapters ? "; the adapters begin as those of " + first.adapters->directory.string() : "");
}

}  // namespace ripstop
