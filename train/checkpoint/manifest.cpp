// The names in a checkpoint, and the text of a manifest. manifest_reader.cpp reads it.
#include "train/checkpoint/manifest.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "data/files/hash.h"
#include "model/core/error.h"
#include "model/core/number.h"

namespace ripstop {
namespace {

using Json = nlohmann::ordered_json;

/// The oldest format version whose readers understand a manifest. They skip "validation" and its members, and
/// "takeover", but would read bfloat16 moments as float32, and adapters as a model.
int minimum_reader(const Manifest& manifest) {
  if (manifest.state.adapted) return 6;
  return manifest.moments == DType::kFloat32 ? 1 : 4;
}

std::string_view to_string(Cut cut) {
  return cut == Cut::kNone ? "none" : cut == Cut::kRows ? "rows" : "columns";
}

Json json_of(const ModelConfig& model) {
  Json json;
  for_each_field(model, [&](const char* name, const auto& value) { json[name] = value; });
  return json;
}

Json json_of(const std::optional<BestSoFar>& best) {
  if (!best || !std::isfinite(best->value)) return nullptr;  // JSON has no NaN
  return {{"metric", best->metric}, {"value", best->value}, {"step", best->step}};
}

Json json_of(const std::optional<AdaptedBase>& adapted) {
  if (!adapted) return nullptr;
  const LoraConfig& lora = adapted->lora;
  return {{"rank", lora.rank},
          {"alpha", lora.alpha},
          {"dropout", lora.dropout},
          {"rslora", lora.rslora},
          {"targets", lora.target_names()},
          {"base",
           {{"directory", adapted->directory},
            {"hash", adapted->hash},
            {"samples", adapted->samples},
            {"dtype", adapted->dtype}}}};
}

Json validation_of(const CheckpointState& state) {
  return {{"step", state.validated_step},
          {"content_hash", state.validation_content_hash},
          {"since_best", state.validations_since_best}};
}

Json json_of(const std::vector<UnitSpec>& units) {
  Json list = Json::array();
  for (const UnitSpec& unit : units) {
    Json tensors = Json::array();
    for (const PhysicalTensor& tensor : unit.tensors) {
      Json parts = Json::array();
      for (const ParameterSpec& p : tensor.parts)
        parts.push_back({{"name", p.name},
                         {"rows", p.rows},
                         {"columns", p.columns},
                         {"cut", to_string(p.cut)},
                         {"grain", p.grain}});
      tensors.push_back(std::move(parts));
    }
    list.push_back({{"name", unit.name}, {"tensors", std::move(tensors)}});
  }
  return list;
}

Json json_of(const std::vector<StoredFile>& files) {
  Json list = Json::array();
  for (const StoredFile& f : files)
    list.push_back({{"rank", f.rank},
                    {"bytes", f.bytes},
                    {"sidecar_bytes", f.sidecar_bytes},
                    {"sidecar_hash", f.sidecar_hash}});
  return list;
}

}  // namespace

int64_t Manifest::bytes() const {
  int64_t sum = 0;
  for (const StoredFile& file : files) sum += file.bytes + file.sidecar_bytes;
  return sum;
}

std::vector<StoredArray> Manifest::arrays_of(int64_t rank) const {
  return stored_arrays(stored_shards(units, mesh, rank), moments);
}

std::string manifest_ending(std::string_view body) {
  StreamHash hash;
  hash.update(body);
  return fmt::format(",\n \"hash\": \"xxh3-128:{}\"\n}}\n", hash.hex());
}

std::vector<UnitSpec> stored_table(const CheckpointState& state) {
  return trained_table(state.model, state.adapted ? state.adapted->lora : LoraConfig{});
}

std::string step_directory_name(int64_t step) {
  return fmt::format("step_{:08}", step);
}

std::optional<int64_t> parse_step_directory_name(const std::string& name) {
  constexpr std::string_view kPrefix = "step_";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::optional<int64_t> step = parse_whole_number(std::string_view(name).substr(kPrefix.size()));
  // One step has one name: "step_7" is none.
  if (!step || name != step_directory_name(*step)) return std::nullopt;
  return step;
}

std::string rank_file_name(int64_t rank) {
  return fmt::format("rank_{:05}.h5", rank);
}

std::string sidecar_file_name(int64_t rank) {
  return fmt::format("rank_{:05}.blocks", rank);
}

std::string manifest_text(const Manifest& manifest) {
  const CheckpointState& state = manifest.state;
  const Json document = {{"format", Manifest::kFormat},
                         {"version", Manifest::kVersion},
                         {"min_reader", minimum_reader(manifest)},
                         {"layout", UnitLayout::kVersion},
                         {"written_by", manifest.written_by},
                         {"step", state.step},
                         {"updates", state.updates},
                         {"cursor", {{"epoch", state.epoch}, {"pack", state.sequence}}},
                         {"tokens", state.tokens},
                         {"best", json_of(state.best)},
                         {"validation", validation_of(state)},
                         {"takeover", state.takeover},
                         {"mesh",
                          {{"replicate", manifest.mesh.replicate},
                           {"fsdp", manifest.mesh.fsdp},
                           {"tensor", manifest.mesh.tensor}}},
                         {"moments", to_string(manifest.moments)},
                         {"model", json_of(state.model)},
                         {"data",
                          {{"content_hash", state.data_content_hash},
                           {"tokenizer_sha256", state.tokenizer_sha256},
                           {"pack_plan_hash", state.pack_plan_hash}}},
                         {"config", state.config},
                         {"adapters", json_of(state.adapted)},
                         {"units", json_of(manifest.units)},
                         {"files", json_of(manifest.files)}};
  // A text that is not UTF-8 must not cost a checkpoint: wrong bytes become U+FFFD.
  std::string body = document.dump(1, ' ', false, Json::error_handler_t::replace);
  body.resize(body.size() - 2);  // the last "\n}": the ending has it
  return body + manifest_ending(body);
}

}  // namespace ripstop
