#include "train/checkpoint/manifest.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "data/files/whole_file.h"
#include "data/text/json_reader.h"
#include "data/text/json_struct.h"
#include "model/core/number.h"

namespace ripstop {
namespace {

using Json = JsonReader::Json;

// Limits against overflow (also of elements times ranks), and against much work on a forged manifest.
constexpr int64_t kMostElements = int64_t{1} << 42;  // elements of all parameters
constexpr int64_t kMostRanks = 1'000'000, kMostUnits = 100'000, kMostRanksTimesUnits = 100'000'000;

constexpr size_t kMostHashesBytes = 33 * kMostDataSets;

// Words in the order of the enumerators of Cut and DType.
constexpr std::array<std::string_view, 3> kCuts = {"none", "rows", "columns"};
constexpr std::array<std::string_view, 2> kMoments = {"float32", "bfloat16"};

// ---- the members of a manifest, in their order

struct Head {
  std::string format = Manifest::kFormat;
  int64_t version = Manifest::kVersion;
  int64_t min_reader = Manifest::kVersion;
  int64_t layout = UnitLayout::kVersion;
};

template <class Fields>
void head_fields(Fields& f, Head& head, Manifest& manifest) {
  f("format", head.format);
  f("version", head.version, 1);
  f("min_reader", head.min_reader, 1, head.version);
  f("layout", head.layout, 1);
  f("written_by", manifest.written_by);
}

template <class Fields>
void parameter_fields(Fields& f, ParameterSpec& p) {
  f("name", p.name);
  f("rows", p.rows, 1, kMostElements);
  f("columns", p.columns, 1, kMostElements / p.rows);
  f.word("cut", p.cut, kCuts);
  f("grain", p.grain, 1, p.cut == Cut::kColumns ? p.columns : p.rows);
}

template <class Fields>
void unit_fields(Fields& f, int64_t stages, UnitSpec& unit) {
  f("name", unit.name);
  f("stage", unit.stage, 0, stages - 1);
  f.list("tensors", unit.tensors, 1, kMostUnits, [](auto& list, PhysicalTensor& tensor) {
    list.elements(tensor.parts, [](auto& part, ParameterSpec& p) { parameter_fields(part, p); });
  });
}

template <class Fields>
void file_fields(Fields& f, StoredFile& file) {
  f("rank", file.rank, 0, kMostRanks);
  f("bytes", file.bytes, 1, int64_t{1} << 56);
  f("sidecar_bytes", file.sidecar_bytes, 1, int64_t{1} << 40);
  f("sidecar_hash", file.sidecar_hash, 32);
}

template <class Fields>
void body_fields(Fields& f, Manifest& manifest) {
  CheckpointState& state = manifest.state;
  f("step", state.step);
  f("updates", state.updates);
  f.group("cursor", [&](auto& cursor) {
    cursor("epoch", state.cursor.epoch);
    cursor("pack", state.cursor.sequence);
    cursor.list("sets", state.cursor.sets, 0, kMostDataSets, [](auto& set, SetCursor& at) {
      set("epoch", at.epoch);
      set("pack", at.sequence);
      set("tokens", at.tokens);
    });
  });
  f("tokens", state.tokens);
  f("best", state.best);
  f.group("validation", [&](auto& validation) {
    validation("step", state.validated_step, 0, state.step);
    validation("content_hash", state.validation_content_hash, kMostHashesBytes);
    // The limit is the last validated step, because a step has at most one validation.
    validation("since_best", state.validations_since_best, 0, state.validated_step);
  });
  f("takeover", state.takeover);
  f.group("mesh", [&](auto& mesh) {
    int64_t most = kMostRanks;
    for (const MeshAxis axis : kMeshAxes) {
      mesh(to_string(axis), manifest.mesh[axis], 1, most);
      most /= manifest.mesh[axis];
    }
  });
  f.word("moments", manifest.moments, kMoments);
  f.group("model", [&](auto& model) {
    for_each_field(state.model, [&](const char* name, auto& value, auto&&...) { model(name, value); });
  });
  f.group("data", [&](auto& data) {
    data("content_hash", state.data_content_hash, kMostHashesBytes);
    data("tokenizer_sha256", state.tokenizer_sha256);
    data("pack_plan_hash", state.pack_plan_hash, kMostHashesBytes);
  });
  f("config", state.config, size_t{1} << 20);
  f("adapters", state.adapted);
  f.list("units", manifest.units, 1, kMostUnits,
         [&](auto& each, UnitSpec& unit) { unit_fields(each, manifest.mesh.pipeline, unit); });
  f.list("files", manifest.files, 1, kMostRanks,
         [](auto& each, StoredFile& file) { file_fields(each, file); });
}

// ---- checks after reading

void check_head(const JsonReader& reader, const std::string& name, const Head& head,
                const std::string& written_by) {
  if (head.format != Manifest::kFormat) reader.refuse("is not of a ripstop checkpoint");
  const auto refuse = [&](const std::string& what) {
    throw OtherFormat(ExitCode::kStorage, name + ": " + what,
                      "go on with the version that wrote it: " + in_one_line(written_by));
  };
  if (head.version < Manifest::kVersion)
    refuse(fmt::format("was written by an older ripstop, in format version {}; this one reads version {} on",
                       head.version, Manifest::kVersion));
  if (head.min_reader > Manifest::kVersion)
    refuse(
        fmt::format("is of format version {} and needs a ripstop that reads version {}; this one reads "
                    "version {}",
                    head.version, head.min_reader, Manifest::kVersion));
  // Another layout version has other elements at the same offsets: hashes would match, but weights be wrong.
  if (head.layout != UnitLayout::kVersion)
    refuse(fmt::format("has layout version {}; this ripstop reads {}", head.layout, UnitLayout::kVersion));
}

void check_state(const JsonReader& reader, const CheckpointState& state) {
  const char* what = "an impossible model";
  try {
    validate(state.model);
    if (!state.adapted) return;
    what = "impossible adapters";
    validate(state.adapted->lora, state.model);
  } catch (const Error& error) {
    reader.refuse("has {}: {}", what, error.what());
  }
  if (std::ranges::find(kMoments, state.adapted->dtype) == kMoments.end())
    reader.refuse("has a base of the dtype '{}'", state.adapted->dtype);
}

/// Checks the parts of a tensor, and sets ParameterSpec::vector.
void check_tensor(const JsonReader& reader, PhysicalTensor& tensor, std::set<std::string>& names) {
  if (tensor.parts.empty()) reader.refuse("has a tensor without parameters");
  // No slash and no control character, because the name is printed and is part of an array's name.
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
  for (ParameterSpec& p : tensor.parts) {
    if (p.name.empty() || p.name.find_first_not_of(kLetters) != std::string::npos)
      reader.refuse("has a parameter whose name is not made of letters, digits, '_' and '.'");
    if (!names.insert(p.name).second) reader.refuse("has parameter {} twice", p.name);
    if (p.cut != tensor.parts.front().cut || p.columns != tensor.parts.front().columns)
      reader.refuse("{} does not fit the tensor that it is in", p.name);
    p.vector = p.name.ends_with("norm.weight") || p.name.ends_with(".bias");
  }
}

void check_units(const JsonReader& reader, std::vector<UnitSpec>& units) {
  std::set<std::string> names, unit_names;
  int64_t elements = 0;
  for (UnitSpec& unit : units) {
    if (!unit_names.insert(unit.name).second) reader.refuse("has unit {} twice", unit.name);
    bool leads = true;
    for (PhysicalTensor& tensor : unit.tensors) {
      check_tensor(reader, tensor, names);
      // Refuses here, because UnitLayout would stop with an internal error.
      if (tensor.replicated() && !leads)
        reader.refuse("unit {}: replicated tensors must come first", unit.name);
      leads = tensor.replicated();
    }
    for (const ParameterSpec& p : unit.parameters())
      if ((elements += p.count()) > kMostElements) reader.refuse("has more than {} elements", kMostElements);
  }
}

void check_files(const JsonReader& reader, const Manifest& manifest) {
  const int64_t mesh_ranks = manifest.mesh.ranks();
  if (mesh_ranks > kMostRanksTimesUnits / std::ssize(manifest.units))
    reader.refuse("has {} units on {} ranks", manifest.units.size(), mesh_ranks);
  const std::vector<int64_t> ranks = storing_ranks(manifest.units, manifest.mesh);
  if (manifest.files.size() != ranks.size())
    reader.refuse("lists {} files, {} were expected", manifest.files.size(), ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i)
    if (manifest.files[i].rank != ranks[i])
      reader.refuse("lists a file of rank {}, one of rank {} was expected", manifest.files[i].rank, ranks[i]);
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
  // "step_7" is not the name of a step directory.
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
  Manifest written = manifest;
  // Drops a best score that is not finite, because JSON has no NaN and no infinity.
  if (written.state.best && !std::isfinite(written.state.best->value)) written.state.best.reset();
  FieldWriter fields;
  Head head;
  head_fields(fields, head, written);
  body_fields(fields, written);
  // Bytes that are not UTF-8 become U+FFFD, so that they do not make the save fail.
  return sealed_text(fields.json);
}

Manifest parse_manifest(const std::string& bytes, const std::string& name) {
  const JsonReader reader(name, ExitCode::kStorage);
  if (bytes.size() > static_cast<size_t>(Manifest::kMostBytes)) reader.refuse("has {} bytes", bytes.size());
  // Compares the hash first, so that damage is reported as damage and not as an odd value.
  reader.require_seal(bytes);
  const Json document = reader.parse(bytes);
  Manifest manifest;
  FieldReader fields(reader, document);
  Head head;
  head_fields(fields, head, manifest);
  check_head(reader, name, head, manifest.written_by);
  // A later version may have more members; its min_reader allows this version to skip them.
  if (head.version > Manifest::kVersion) fields.skip_unknown();
  body_fields(fields, manifest);
  fields.known("hash");
  fields.end();
  check_state(reader, manifest.state);
  check_units(reader, manifest.units);
  check_files(reader, manifest);
  return manifest;
}

Manifest read_manifest(Io& io, const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / Manifest::kFileName;
  return parse_manifest(read_whole_file(io, path, Manifest::kMostBytes), path.string());
}

}  // namespace ripstop
