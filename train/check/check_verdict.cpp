#include "train/check/check_verdict.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

namespace ripstop {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

bool same_bits(const StepSums& a, const StepSums& b) {
  return same_bits(a.loss, b.loss) && same_bits(a.gradient_norm, b.gradient_norm) &&
         a.target_count == b.target_count && a.skipped == b.skipped;
}

double relative_error(double found, double expected) {
  if (!std::isfinite(found) || !std::isfinite(expected)) return kInfinite;
  if (found == expected) return 0;
  return std::abs(found - expected) / std::abs(expected);
}

// The error as a multiple of the tolerance; infinite for NaN.
double ratio(const CheckedValue& value) {
  const double r = value.error / value.tolerance;
  return std::isnan(r) ? kInfinite : r;
}

const CheckedValue* worst_of(const std::vector<CheckedValue>& values,
                             FunctionRef<bool(const CheckedValue&)> counts) {
  const CheckedValue* worst = nullptr;
  for (const CheckedValue& value : values)
    if (counts(value) && (worst == nullptr || ratio(value) > ratio(*worst))) worst = &value;
  return worst;
}

// Sort key: the step; updates come after all steps.
int64_t order_of(const CheckedValue& value) {
  return value.step > 0 ? value.step : kCheckSteps + 1;
}

// The worst failure in the first step that fails, among the values that `counts` accepts; null: no failure.
const CheckedValue* worst_of_first_failure(const std::vector<CheckedValue>& values,
                                           FunctionRef<bool(const CheckedValue&)> counts) {
  int64_t first = kCheckSteps + 1;
  for (const CheckedValue& value : values)
    if (counts(value) && !value.holds()) first = std::min(first, order_of(value));
  return worst_of(values, [&](const CheckedValue& value) {
    return counts(value) && !value.holds() && order_of(value) == first;
  });
}

const char* state_text(int64_t state) {
  return state < kCheckSteps ? "gradient" : "weights";
}

std::string when_text(int64_t state) {
  return state < kCheckSteps ? fmt::format("in step {}", state + 1) : "after the last step";
}

class Judge {
 public:
  Judge(const std::vector<RankFindings>& ranks, const MeshSizes& mesh, const std::vector<std::string>& hosts,
        const CheckSettings& settings)
      : ranks_(ranks),
        mesh_(mesh),
        hosts_(hosts),
        settings_(settings),
        table_(trained_table(settings.model, settings.step.sharding.lora)),
        tolerances_(check_tolerances(settings, mesh)) {
    verdict_.mesh = mesh;
    verdict_.steps = ranks.front().steps;
    verdict_.reference = ranks.front().reference;
  }

  MeshVerdict verdict() {
    judge_steps();
    size_t p = 0;
    for (const UnitSpec& unit : table_)
      for (const ParameterSpec& parameter : unit.parameters()) judge_parameter(parameter, p++);
    for (int64_t state = 0; state < kComparedStates; ++state) judge_units(state);
    judge_ranks_alone();
    return std::move(verdict_);
  }

 private:
  double tolerance(CheckedKind kind) const { return tolerances_[static_cast<size_t>(kind)]; }
  std::string rank_text(size_t rank) const {
    return fmt::format("rank {}{}", rank, rank < hosts_.size() ? " (" + hosts_[rank] + ")" : "");
  }

  // Compares each rank's loss and gradient norm with its reference. Reports wrong target counts and skipped
  // steps.
  void judge_steps() {
    for (size_t s = 0; s < kCheckSteps; ++s) {
      const int64_t number = static_cast<int64_t>(s) + 1;
      const StepSums& first = ranks_.front().steps[s];
      double loss = 0, norm = 0;
      for (const RankFindings& rank : ranks_) {
        loss = std::max(loss, relative_error(rank.steps[s].loss, rank.reference[s].loss));
        norm = std::max(norm, relative_error(rank.steps[s].gradient_norm, rank.reference[s].gradient_norm));
      }
      const auto add = [&](CheckedKind kind, double error) {
        verdict_.values.push_back(
            {.kind = kind, .step = number, .parameter = {}, .error = error, .tolerance = tolerance(kind)});
      };
      add(CheckedKind::kLoss, loss);
      add(CheckedKind::kGradientNorm, norm);
      const int64_t targets = target_count(settings_.tokens(mesh_), number);
      if (first.target_count != targets)
        verdict_.broken.push_back(
            fmt::format("step {} counted {} targets of {}", number, first.target_count, targets));
      if (first.skipped)
        verdict_.broken.push_back(fmt::format(
            "step {} was skipped: its loss or gradient is not finite, loss {} and gradient norm {}", number,
            first.loss, first.gradient_norm));
      judge_equal_sums(s);
    }
  }

  // Reports a rank whose StepSums differ from rank 0's, and a rank that skipped the step when it computed
  // alone.
  void judge_equal_sums(size_t s) {
    const StepSums& first = ranks_.front().steps[s];
    const auto other = std::find_if(ranks_.begin(), ranks_.end(), [&](const RankFindings& rank) {
      return !same_bits(rank.steps[s], first);
    });
    if (other != ranks_.end())
      verdict_.broken.push_back(fmt::format("step {}: loss {} and gradient norm {} on {}, {} and {} on {}",
                                            s + 1, first.loss, first.gradient_norm, rank_text(0),
                                            other->steps[s].loss, other->steps[s].gradient_norm,
                                            rank_text(static_cast<size_t>(other - ranks_.begin()))));
    const auto skipped = std::find_if(ranks_.begin(), ranks_.end(),
                                      [&](const RankFindings& rank) { return rank.reference[s].skipped; });
    if (skipped != ranks_.end())
      verdict_.broken.push_back(fmt::format("{} alone skipped step {}: its loss or gradient is not finite",
                                            rank_text(static_cast<size_t>(skipped - ranks_.begin())), s + 1));
  }

  // Judges a parameter by its worst copy. Each replica has a copy, each end of a pipeline has one of a tied
  // table, and each rank of the tensor axis has one of a parameter that this axis does not cut. A stage
  // without the parameter counts as a copy without error.
  void judge_parameter(const ParameterSpec& parameter, size_t p) {
    for (size_t state = 0; state < kComparedStates; ++state) {
      std::vector<double> copies(static_cast<size_t>(mesh_.replicate * mesh_.pipeline * mesh_.tensor));
      ParameterError all;
      double norm = 0;
      size_t worst = 0;
      for (size_t r = 0; r < ranks_.size(); ++r) {
        const ParameterError& part = ranks_[r].errors[state][p];
        const MeshCoordinates at = mesh_coordinates(mesh_, static_cast<int64_t>(r));
        const int64_t slice = parameter.cut == Cut::kNone ? at.tensor : 0;
        const int64_t copy = (at.replicate * mesh_.pipeline + at.pipeline) * mesh_.tensor + slice;
        copies[static_cast<size_t>(copy)] += part.squared_error;
        if (!(part.worst_block <= all.worst_block)) worst = r;
        all.add(part);
        norm = std::max(norm, ranks_[r].norms[state][p]);
      }
      double squared = 0;
      for (const double copy : copies) squared = copy <= squared ? squared : copy;
      const bool is_update = state == kCheckSteps;
      CheckedValue value{.kind = is_update ? CheckedKind::kUpdate : CheckedKind::kGradient,
                         .step = is_update ? 0 : static_cast<int64_t>(state) + 1,
                         .parameter = parameter.name,
                         .error = squared == 0 ? 0 : std::sqrt(squared / norm),
                         .row = all.row,
                         .column = all.column,
                         .rank = static_cast<int64_t>(worst)};
      if (!all.finite || !std::isfinite(norm)) value.error = all.worst_block = kInfinite;
      value.tolerance = tolerance(value.kind);
      verdict_.values.push_back(value);
      value.kind = is_update ? CheckedKind::kUpdateBlock : CheckedKind::kGradientBlock;
      value.error = all.worst_block;
      value.tolerance = tolerance(value.kind);
      verdict_.values.push_back(value);
    }
  }

  // Reports copies of a shard that are not bitwise equal, padding that is not zero, and a unit without a
  // stage.
  void judge_units(int64_t state) {
    const auto s = static_cast<size_t>(state);
    for (size_t u = 0; u < table_.size(); ++u) {
      const auto holds = [&](const RankFindings& rank) { return rank.units[s][u].is_held; };
      if (std::ranges::none_of(ranks_, holds))
        verdict_.broken.push_back(fmt::format("no stage has {}", table_[u].name));
      for (size_t r = 0; r < ranks_.size(); ++r) {
        const UnitFacts& own = ranks_[r].units[s][u];
        if (!own.is_held) continue;
        MeshCoordinates replica = mesh_coordinates(mesh_, static_cast<int64_t>(r)), stage = replica,
                        slice = replica;
        replica.replicate = 0;
        stage.pipeline = 0;
        slice.tensor = 0;
        const auto compare = [&](const MeshCoordinates& with, bool equal, const char* what) {
          const auto other = static_cast<size_t>(mesh_.rank_of(with));
          if (!equal)
            verdict_.broken.push_back(fmt::format("the {} of {} ({}) {} {} other bits on {} than on {}",
                                                  state_text(state), table_[u].name, what, when_text(state),
                                                  state < kCheckSteps ? "has" : "have", rank_text(r),
                                                  rank_text(other)));
          return equal;
        };
        const auto facts = [&](const MeshCoordinates& of) -> const UnitFacts& {
          return ranks_[static_cast<size_t>(mesh_.rank_of(of))].units[s][u];
        };
        const bool is_shared = facts(stage).is_held;  // the rank itself, or the other holder of a tied table
        if (!compare(replica, own.shard_hash == facts(replica).shard_hash, "replicas") ||
            !compare(stage, !is_shared || own.shard_hash == facts(stage).shard_hash, "stages") ||
            !compare(slice, own.replicated_hash == facts(slice).replicated_hash,
                     "what the tensor axis does not cut"))
          return;
        if (own.padding > 0) {
          verdict_.broken.push_back(fmt::format("the padding of the {} of {} {} is {} on {}, not 0",
                                                state_text(state), table_[u].name, when_text(state),
                                                own.padding, rank_text(r)));
          return;
        }
      }
    }
  }

  // Adds a note, not a failure, if a rank alone computes other bits than rank 0 alone: processors may differ.
  void judge_ranks_alone() {
    for (size_t r = 1; r < ranks_.size(); ++r) {
      bool equal = true;
      for (size_t s = 0; s < kCheckSteps; ++s)
        equal = equal && same_bits(ranks_[r].reference[s], ranks_.front().reference[s]);
      for (size_t state = 0; state < kComparedStates; ++state)
        for (size_t p = 0; p < ranks_[r].norms[state].size(); ++p)
          equal = equal && same_bits(ranks_[r].norms[state][p], ranks_.front().norms[state][p]);
      if (equal) continue;
      verdict_.notes.push_back(fmt::format(
          "{} alone computes other bits than {} alone: their processors, threads or libraries differ",
          rank_text(r), rank_text(0)));
      return;
    }
  }

  const std::vector<RankFindings>& ranks_;
  const MeshSizes& mesh_;
  const std::vector<std::string>& hosts_;
  const CheckSettings& settings_;
  std::vector<UnitSpec> table_;
  std::array<double, kCheckedKinds.size()> tolerances_;
  MeshVerdict verdict_;
};

}  // namespace

std::string CheckedValue::text() const {
  const std::string when = step > 0 ? fmt::format("in step {}", step) : "by both steps";
  if (kind == CheckedKind::kLoss) return "the loss " + when;
  if (kind == CheckedKind::kGradientNorm) return "the gradient norm " + when;
  const bool is_update = kind == CheckedKind::kUpdate || kind == CheckedKind::kUpdateBlock;
  const std::string text = fmt::format("the {} of {} {}", is_update ? "update" : "gradient", parameter, when);
  if (kind == CheckedKind::kGradient || kind == CheckedKind::kUpdate) return text;
  return fmt::format("{} at row {}, column {} on rank {}", text, row, column, rank);
}

std::array<double, kCheckedKinds.size()> check_tolerances(const CheckSettings& settings,
                                                          const MeshSizes& mesh) {
  const ShardingOptions& sharding = settings.step.sharding;
  // The relative rounding error of a result. The error of float32 has a margin for long sums; bfloat16 needs
  // no margin, because its products are summed in float32.
  const double rounding = sharding.compute == DType::kFloat32 ? 4 * 0x1p-24 : 0x1p-9;
  const double depth = static_cast<double>(settings.model.num_hidden_layers) + 2;
  // Gradients summed in bfloat16 are rounded once over the fsdp axis, and twice over the replicate axis: the
  // terms and the sum.
  const int roundings = (mesh.fsdp > 1 ? 1 : 0) + (mesh.replicate > 1 ? 2 : 0);
  const double travel = sharding.reduce == DType::kBFloat16 ? roundings * 0x1p-9 : 0;
  const double loss = 2 * rounding + travel / 8;
  const double norm = rounding * depth + travel / 8;
  const double gradient = 16 * rounding * depth + 4 * travel;
  // The last term is the float32 rounding of a weight relative to its update: the weights of norms are about
  // 1, and an update is about as large as the learning rate.
  const double update = 2 * gradient + 2 * 0x1p-24 / settings.learning_rate;
  return {loss, norm, gradient, 3 * gradient, update, 3 * update};
}

bool MeshVerdict::holds() const {
  return broken.empty() &&
         std::all_of(values.begin(), values.end(), [](const CheckedValue& value) { return value.holds(); });
}

const CheckedValue& MeshVerdict::worst(CheckedKind kind) const {
  const CheckedValue* worst = worst_of(values, [&](const CheckedValue& value) { return value.kind == kind; });
  RIPSTOP_CHECK(worst != nullptr, "no {} was compared", to_string(kind));
  return *worst;
}

const CheckedValue& MeshVerdict::worst_parameter() const {
  const auto is_parameter = [](const CheckedValue& value) { return !value.parameter.empty(); };
  const CheckedValue* worst = worst_of_first_failure(values, is_parameter);
  if (worst == nullptr) worst = worst_of(values, is_parameter);
  RIPSTOP_CHECK(worst != nullptr, "no parameter was compared");
  return *worst;
}

std::string MeshVerdict::complaint() const {
  std::vector<const CheckedValue*> failures;
  const auto add = [&](const CheckedValue* value) {
    if (value != nullptr) failures.push_back(value);
  };
  add(worst_of_first_failure(values, [](const CheckedValue& value) { return !value.parameter.empty(); }));
  for (const CheckedKind kind : {CheckedKind::kLoss, CheckedKind::kGradientNorm})
    add(worst_of_first_failure(values, [&](const CheckedValue& value) { return value.kind == kind; }));
  // Sorts by step, because a wrong norm in step 1 changes the gradients of step 2.
  std::stable_sort(failures.begin(), failures.end(),
                   [](const CheckedValue* a, const CheckedValue* b) { return order_of(*a) < order_of(*b); });
  std::string text;
  const auto say = [&](const std::string& each) { text += (text.empty() ? "" : "; ") + each; };
  for (const CheckedValue* value : failures)
    say(fmt::format("{} is off by {:.2g} (tolerance {:.2g})", value->text(), value->error, value->tolerance));
  for (const std::string& each : broken) say(each);
  return text;
}

MeshVerdict judge(const std::vector<RankFindings>& ranks, const MeshSizes& mesh,
                  const std::vector<std::string>& hosts, const CheckSettings& settings) {
  return Judge(ranks, mesh, hosts, settings).verdict();
}

}  // namespace ripstop
