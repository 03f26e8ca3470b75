#include "train/commands/check_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "data/text/json_struct.h"
#include "train/plan/plan_text.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

using Json = JsonReader::Json;

std::string checked_model_text(const CheckSettings& settings) {
  const ModelConfig& m = settings.model;
  const char* what = settings.kind == CheckedModel::kWhole         ? "the config's"
                     : settings.kind == CheckedModel::kFewerLayers ? "the config's with fewer layers"
                                                                   : "a small one of the same shape";
  const LoraConfig& lora = settings.step.sharding.lora;
  return fmt::format(
      "{}{}: {}, {}{}", what, settings.reason.empty() ? "" : " (" + settings.reason + ")",
      counted(parameter_count(m), "parameter"), model_text(m),
      lora.any() ? fmt::format("; frozen, with adapters of {} (alpha and dropout of the check, not of the "
                               "config, and a smaller rank if the config's does not fit this model)",
                               adapters_text(lora))
                 : "");
}

std::string steps_text(const CheckReport& report) {
  const ShardingOptions& sharding = report.settings.step.sharding;
  const CheckTokens tokens = report.settings.tokens(report.verdict.mesh);
  return fmt::format(
      "{} of {} on each of {}, {} of {} tokens each, in several documents; {} and {} targets; in step 2 {}",
      kCheckSteps, fmt::format("{} micro-batches", tokens.micro_batches),
      counted(tokens.data_ranks, "data rank"), counted(sharding.sequence_count, "sequence"),
      sharding.sequence_length, report.verdict.steps[0].target_count, report.verdict.steps[1].target_count,
      tokens.data_ranks > 1 ? fmt::format("data rank {} has no sequence", tokens.data_ranks - 1)
                            : "one sequence is empty");
}

std::string computed_text(const CheckSettings& settings) {
  const StepOptions& step = settings.step;
  return fmt::format("in {}, gradients sent in {}, recompute {} (alone {}), {}, {}, units {}",
                     to_string(step.sharding.compute), to_string(step.sharding.reduce),
                     to_string(step.sharding.recompute), to_string(settings.reference_recompute),
                     step.max_grad_norm > 0 ? "clipping" : "no clipping",
                     step.adamw.weight_decay > 0 ? "weight decay" : "no weight decay",
                     units_text(step.sharding.reshard_after_forward));
}

// The values that an operation sends along its axis, for people.
std::string_view cargo_text(const SentByOperation& sent) {
  if (sent.axis == "world") return "loss, targets, gradient norm";
  if (sent.axis == kReplicateAxis) return "gradients";
  if (sent.axis == kPipelineAxis) return "activations and their gradients";
  if (sent.axis == kFsdpAxis) return sent.operation == "all_gather" ? "weights" : "gradients";
  if (sent.operation == "all_gather") return "gather_sequence, statistics of the loss";
  if (sent.operation == "reduce_scatter") return "scatter_sum";
  if (sent.operation == "exchange") return "gather_sequence and scatter_sum in parts";
  return "gradients of what it does not cut";
}

std::string value_line(const MeshVerdict& verdict, CheckedKind kind, const char* name) {
  const CheckedValue& value = verdict.worst(kind);
  return fmt::format("{:<22}{:>10.2g}{:>12.2g}   {}{}", name, value.error, value.tolerance,
                     value.holds() ? "" : "FAILS: ", value.text());
}

Json value_json(const CheckedValue& value) {
  Json json{{"what", to_string(value.kind)}, {"step", value.step > 0 ? Json(value.step) : Json(nullptr)}};
  if (!value.parameter.empty()) json["parameter"] = value.parameter;
  json["error"] = value.error;
  json["tolerance"] = value.tolerance;
  json["holds"] = value.holds();
  if (value.kind == CheckedKind::kGradientBlock || value.kind == CheckedKind::kUpdateBlock) {
    json["row"] = value.row;
    json["column"] = value.column;
    json["rank"] = value.rank;
  }
  return json;
}

Json model_json(const CheckSettings& settings) {
  const ModelConfig& m = settings.model;
  const LoraConfig& lora = settings.step.sharding.lora;
  FieldWriter json;
  json("kind", to_string(settings.kind));
  json("reason", settings.reason);
  json("parameters", parameter_count(m));
  for_each_field(m, json);
  json("adapters", lora.any() ? Json(adapters_text(lora)) : Json(nullptr));
  return json.json;
}

Json sums_json(const std::array<StepSums, kCheckSteps>& steps) {
  Json json = Json::array();
  for (const StepSums& step : steps)
    json.push_back({{"loss", step.loss},
                    {"gradient_norm", step.gradient_norm},
                    {"targets", step.target_count},
                    {"skipped", step.skipped}});
  return json;
}

void add_results(const CheckReport& report, Json& document) {
  const MeshVerdict& verdict = report.verdict;
  document["sent_per_step"] = Json::array();
  for (const SentByOperation& sent : report.sent)
    document["sent_per_step"].push_back(
        {{"axis", sent.axis}, {"operation", sent.operation}, {"calls", sent.calls}, {"bytes", sent.bytes}});
  document["on_the_mesh"] = sums_json(verdict.steps);
  document["alone"] = sums_json(verdict.reference);
  document["worst"] = Json::array();
  for (const CheckedKind kind : kCheckedKinds) document["worst"].push_back(value_json(verdict.worst(kind)));
  document["worst_parameter"] = value_json(verdict.worst_parameter());
  document["values"] = Json::array();
  for (const CheckedValue& value : verdict.values) document["values"].push_back(value_json(value));
  document["broken"] = verdict.broken;
  document["axes_alone"] = Json::array();
  for (const AxisCheck& axis : report.axes_alone)
    document["axes_alone"].push_back({{"axis", to_string(axis.axis)},
                                      {"ranks", axis.ranks},
                                      {"holds", axis.holds ? Json(*axis.holds) : Json(nullptr)}});
  document["notes"] = report.notes;
}

}  // namespace

std::string check_text(const CheckReport& report) {
  const MeshVerdict& verdict = report.verdict;
  std::vector<std::string> lines{fmt::format("mesh        {} ({}), against one rank alone",
                                             verdict.mesh.to_text(), counted(verdict.mesh.ranks(), "rank")),
                                 "model       " + checked_model_text(report.settings),
                                 "steps       " + steps_text(report),
                                 "computed    " + computed_text(report.settings)};
  for (const SentByOperation& sent : report.sent)
    lines.push_back(fmt::format("sent        {:<10} {:<15} {:>10} in {:>3} calls a step: {}", sent.axis,
                                sent.operation, bytes_text(sent.bytes), sent.calls, cargo_text(sent)));
  lines.push_back(fmt::format("\n{:<22}{:>10}{:>12}", "largest error of", "error", "tolerance"));
  const std::array<const char*, kCheckedKinds.size()> names{"loss",        "gradient norm", "a gradient",
                                                            "  its block", "an update",     "  its block"};
  for (size_t k = 0; k < names.size(); ++k) lines.push_back(value_line(verdict, kCheckedKinds[k], names[k]));
  lines.push_back(
      verdict.broken.empty()
          ? fmt::format("replicas,{} what the tensor axis does not cut, and padding: equal to the bit",
                        verdict.mesh.pipeline > 1 ? " a tied table of two stages," : "")
          : "");
  for (const std::string& each : verdict.broken) lines.push_back("FAILS: " + each);
  for (const std::string& note : report.notes) lines.push_back("note: " + note);
  if (const std::string suspects = suspects_text(report); !suspects.empty()) lines.push_back(suspects);
  lines.push_back(verdict.holds() ? "holds: this mesh computes what one rank computes"
                                  : "FAILS: this mesh does not compute what one rank computes");
  return fmt::format("{}", fmt::join(lines, "\n"));
}

std::string check_document(const CheckReport& report) {
  const CheckSettings& settings = report.settings;
  const ShardingOptions& sharding = settings.step.sharding;
  Json document{{"verdict", report.verdict.holds() ? "holds" : "fails"},
                {"config", report.config_file},
                {"mesh", report.verdict.mesh},
                {"ranks", report.verdict.mesh.ranks()},
                {"device", settings.device == DeviceKind::kCuda ? "cuda" : "cpu"},
                {"model", model_json(settings)},
                {"steps", kCheckSteps},
                {"micro_batches_per_step", check_micro_batches(report.verdict.mesh)},
                {"micro_batch_sequences", sharding.sequence_count},
                {"sequence_length", sharding.sequence_length},
                {"compute", to_string(sharding.compute)},
                {"reduce", to_string(sharding.reduce)},
                {"recompute", to_string(sharding.recompute)},
                {"recompute_alone", to_string(settings.reference_recompute)},
                {"overlap_tensor", sharding.overlap_tensor},
                {"reshard_after_forward", sharding.reshard_after_forward},
                {"clipping", settings.step.max_grad_norm > 0},
                {"weight_decay", settings.step.adamw.weight_decay > 0}};
  add_results(report, document);
  return text_of_json(document, 2);
}

std::string suspects_text(const CheckReport& report) {
  std::vector<std::string> fail, hold;
  for (const AxisCheck& axis : report.axes_alone)
    if (axis.holds)
      (*axis.holds ? hold : fail).push_back(fmt::format("{} {}", to_string(axis.axis), axis.ranks));
  if (fail.empty() && hold.empty()) {
    const MeshSizes& mesh = report.verdict.mesh;
    if (report.verdict.holds() || mesh.ranks() == 1) return "";
    for (const MeshAxis axis : kMeshAxes)
      if (mesh[axis] == mesh.ranks()) return fmt::format("only {} moves data on this mesh", to_string(axis));
    return "";
  }
  if (fail.empty()) return fmt::format("each axis alone holds: {}", fmt::join(hold, ", "));
  return fmt::format("alone {} {}, too{}", fmt::join(fail, " and "), fail.size() == 1 ? "fails" : "fail",
                     hold.empty() ? "" : fmt::format("; {} alone holds", fmt::join(hold, " and ")));
}

}  // namespace ripstop
