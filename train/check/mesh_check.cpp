#include "train/check/mesh_check.h"

#include <algorithm>
#include <optional>
#include <span>

#include "data/files/hash.h"
#include "parallel/agreement.h"
#include "parallel/unit_layout.h"
#include "train/step/training_step.h"

namespace ripstop {
namespace {

class CheckedSteps {
 public:
  CheckedSteps(const PlanRequest& request, const CheckSettings& settings, DeviceMesh& mesh,
               const Device& device)
      : settings_(settings),
        stream_(device),
        plan_(plan_rank(request, mesh.coordinates())),
        step_(request.model, request.step, mesh, stream_, ledger_, plan_.arena) {
    step_.model().initialize(settings.seed, step_.model().frozen_units());
    step_.model().initialize(settings.seed, units(), check_values);
  }

  /// Takes step `number` (from 1), whose micro-batch m has the sequences of slots(m).
  StepSums take(int64_t number, const CheckTokens& tokens, int64_t micro_batches,
                FunctionRef<std::vector<int64_t>(int64_t micro)> slots) {
    std::optional<PackedBatch> batch;
    const auto next = [&](int64_t micro) {
      return batch.emplace(check_batch(tokens, number, slots(micro))).host_tokens();
    };
    const StepResult result =
        step_.run(micro_batches, next, settings_.learning_rate, {number}, [] { return false; });
    return {result.loss, result.gradient_norm, result.sum.target_count, result.skipped};
  }

  std::span<FsdpUnit> units() { return step_.model().trained_units(); }

  /// The index of each unit in trained_table.
  std::vector<size_t> places() {
    const ShardedTransformer& model = step_.model();
    const auto frozen =
        std::ranges::count_if(model.whole_table(), [](const UnitSpec& u) { return u.frozen; });
    std::vector<size_t> places;
    for (const size_t place : model.places())
      if (place >= static_cast<size_t>(frozen)) places.push_back(place - static_cast<size_t>(frozen));
    return places;
  }

  void read(const Tensor& tensor, int64_t first, std::span<float> to) const {
    const int64_t bytes = std::ssize(to) * 4;
    copy_bytes(stream_, to.data(), tensor.row_range(first, std::ssize(to)).data, bytes);
    stream_.synchronize();
  }

 private:
  const CheckSettings& settings_;
  Stream stream_;
  MemoryLedger ledger_;
  RankPlan plan_;
  TrainingStep step_;
};

const Tensor& state_of(const FsdpUnit& unit, int64_t state) {
  return state < kCheckSteps ? unit.gradient() : unit.master();
}

void keep(CheckedSteps& steps, int64_t state, KeptSteps& kept) {
  for (const FsdpUnit& unit : steps.units()) {
    const Tensor& tensor = state_of(unit, state);
    std::vector<float> shard(static_cast<size_t>(tensor.count()));
    steps.read(tensor, 0, shard);
    kept.shards[static_cast<size_t>(state)].push_back(std::move(shard));
  }
}

UnitFacts facts_of(const UnitLayout& layout, int64_t begin, std::span<const float> shard) {
  const int64_t alike = std::clamp<int64_t>(layout.replicated_elements() - begin, 0, layout.shard_elements());
  return {.shard_hash = hash64(shard.data(), 4 * std::ssize(shard)),
          .replicated_hash = hash64(shard.data(), 4 * alike),
          .padding = largest_padding(layout, begin, shard),
          .is_held = true};
}

// Compares this rank's kept shards of state `state` with the current values of `alone`. A unit of another
// stage gets errors of 0.
void compare_state(const KeptSteps& kept, const DeviceMesh& mesh, const CheckSettings& settings,
                   int64_t state, CheckedSteps& alone, RankFindings& findings) {
  const auto s = static_cast<size_t>(state);
  const Baseline baseline = state == kCheckSteps ? Baseline(settings.seed) : std::nullopt;
  for (size_t u = 0; u < alone.units().size(); ++u) {
    const FsdpUnit& whole = alone.units()[u];
    const UnitLayout layout(whole.layout().unit(), mesh.sizes().tensor, mesh.coordinates().tensor,
                            mesh.sizes().fsdp);
    const int64_t begin = layout.shard_elements() * mesh.coordinates().fsdp;
    const auto read = [&](int64_t first, std::span<float> to) {
      alone.read(state_of(whole, state), first, to);
    };
    const std::vector<double> norms = squared_norms(whole.layout(), read, baseline);
    std::vector<ParameterError> errors(norms.size());
    UnitFacts& facts = findings.units[s].emplace_back();
    if (const auto held = std::ranges::find(kept.places, u); held != kept.places.end()) {
      const std::vector<float>& shard = kept.shards[s][static_cast<size_t>(held - kept.places.begin())];
      errors = compare_shard(layout, begin, shard, whole.layout(), read, norms, baseline);
      facts = facts_of(layout, begin, shard);
    }
    findings.errors[s].insert(findings.errors[s].end(), errors.begin(), errors.end());
    findings.norms[s].insert(findings.norms[s].end(), norms.begin(), norms.end());
  }
}

}  // namespace

KeptSteps run_steps(DeviceMesh& mesh, const CheckSettings& settings, const Device& device) {
  CheckedSteps steps(settings.request(mesh.sizes()), settings, mesh, device);
  const CheckTokens tokens = settings.tokens(mesh.sizes());
  AxisBytes before;
  KeptSteps kept{.steps = {}, .places = steps.places(), .shards = {}, .sent = {}};
  for (int64_t number = 1; number <= kCheckSteps; ++number) {
    mesh.set_step(number);
    before = mesh.bytes_sent();
    kept.steps[static_cast<size_t>(number - 1)] =
        steps.take(number, tokens, tokens.micro_batches,
                   [&](int64_t micro) { return slots_of(tokens, number, mesh.data_rank(), micro); });
    keep(steps, number - 1, kept);
  }
  keep(steps, kCheckSteps, kept);
  kept.sent = mesh.bytes_sent() - before;
  return kept;
}

RankFindings compare_with_one_rank(const KeptSteps& kept, const DeviceMesh& mesh,
                                   const CheckSettings& settings, const Device& device) {
  DeviceMesh one = DeviceMesh::alone();
  CheckedSteps alone(settings.reference_request(mesh.sizes()), settings, one, device);
  const CheckTokens tokens = settings.tokens(mesh.sizes()),
                    together = settings.reference_tokens(mesh.sizes());
  const int64_t sequences = together.micro_batch_sequences;
  RankFindings findings{.steps = kept.steps, .reference = {}, .errors = {}, .norms = {}, .units = {}};
  for (int64_t number = 1; number <= kCheckSteps; ++number) {
    // Leaves out empty slots, so that the check also shows that they change nothing on the mesh.
    std::vector<int64_t> slots = filled_slots(tokens, number);
    while (std::ssize(slots) % sequences != 0) slots.push_back(-1);
    const auto slots_of_batch = [&](int64_t micro) {
      const auto begin = slots.begin() + micro * sequences;
      return std::vector<int64_t>(begin, begin + sequences);
    };
    findings.reference[static_cast<size_t>(number - 1)] =
        alone.take(number, together, std::ssize(slots) / sequences, slots_of_batch);
    compare_state(kept, mesh, settings, number - 1, alone, findings);
  }
  compare_state(kept, mesh, settings, kCheckSteps, alone, findings);
  return findings;
}

std::vector<RankFindings> findings_of_all_ranks(Communicator& world, const RankFindings& own) {
  std::vector<RankFindings> all(static_cast<size_t>(world.size()), own);
  const auto steps = of_all_ranks(world, own.steps), reference = of_all_ranks(world, own.reference);
  for (size_t r = 0; r < all.size(); ++r) all[r].steps = steps[r], all[r].reference = reference[r];
  for (size_t state = 0; state < kComparedStates; ++state) {
    const auto errors = lists_of_all_ranks(world, own.errors[state]);
    const auto norms = lists_of_all_ranks(world, own.norms[state]);
    const auto units = lists_of_all_ranks(world, own.units[state]);
    for (size_t r = 0; r < all.size(); ++r) {
      all[r].errors[state] = errors[r];
      all[r].norms[state] = norms[r];
      all[r].units[state] = units[r];
    }
  }
  return all;
}

MeshVerdict check_mesh(DeviceMesh& mesh, const CheckSettings& settings, const Device& device) {
  const KeptSteps kept = run_steps(mesh, settings, device);
  const RankFindings own = compare_with_one_rank(kept, mesh, settings, device);
  MeshVerdict verdict = judge(findings_of_all_ranks(mesh.world(), own), mesh.sizes(), mesh.hosts(), settings);
  verdict.sent = kept.sent;
  return verdict;
}

}  // namespace ripstop
