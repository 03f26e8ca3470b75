// Reads a manifest. The bytes may come from anywhere, so every value is checked before it is used.
#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "data/files/whole_file.h"
#include "data/text/json_reader.h"
#include "model/core/error.h"
#include "model/lora.h"
#include "train/checkpoint/manifest.h"

namespace ripstop {
namespace {

using Json = JsonReader::Json;

// Limits that keep products below 64 bits, and the work on a forged manifest small.
constexpr int64_t kMostElements = int64_t{1} << 50;  // of one parameter
constexpr int64_t kMostRanks = 1'000'000, kMostUnits = 100'000, kMostRanksTimesUnits = 100'000'000;

/// The members of a manifest, each with the version that is the first to have it.
constexpr std::array<std::pair<std::string_view, int64_t>, 21> kMembers = {
    {{"format", 1},  {"version", 1}, {"min_reader", 1}, {"layout", 1}, {"written_by", 1}, {"step", 1},
     {"updates", 1}, {"cursor", 1},  {"tokens", 1},     {"best", 1},   {"validation", 2}, {"takeover", 5},
     {"mesh", 1},    {"moments", 4}, {"model", 1},      {"data", 1},   {"config", 1},     {"adapters", 6},
     {"units", 1},   {"files", 1},   {"hash", 1}}};

/// Reads one manifest. Every error names it.
class Reader : public JsonReader {
 public:
  explicit Reader(const std::string& name) : JsonReader(name, ExitCode::kStorage) {}

  /// Refuses members other than `keys`, unless the manifest is of a later version, which may have more.
  void only(const Json& object, const std::vector<std::string_view>& keys) const;

  void check_version(const Json& document);
  /// Refuses members of the document that its version does not have. Needs check_version.
  void only_members(const Json& document) const;
  int64_t version() const { return version_; }
  ModelConfig model(const Json& json) const;
  std::optional<BestSoFar> best(const Json& json) const;
  /// Sets what the versions from 2 on tell of validations.
  void validation(const Json& json, CheckpointState& state) const;
  std::optional<AdaptedBase> adapters(const Json& json, const ModelConfig& model) const;
  MeshSizes mesh(const Json& json) const;
  DType moments(const Json& document) const;
  ParameterSpec parameter(const Json& json, std::set<std::string>& names) const;
  PhysicalTensor tensor(const Json& json, std::set<std::string>& names) const;
  std::vector<UnitSpec> units(const Json& document) const;
  std::vector<StoredFile> files(const Json& document, const Manifest& manifest) const;

 private:
  int64_t version_ = 0;
  bool is_newer_ = false;
};

void Reader::only(const Json& object, const std::vector<std::string_view>& keys) const {
  // A later version may have more members. It says through min_reader whether they can be skipped.
  if (is_newer_) return;
  for (const auto& [key, value] : object.items())
    if (std::ranges::find(keys, key) == keys.end()) refuse("has an unknown '{}'", key);
}

void Reader::check_version(const Json& document) {
  if (text(document, "format", 64) != Manifest::kFormat) refuse("is not of a ripstop checkpoint");
  const int64_t version = integer(document, "version", 1, 1'000'000);
  const int64_t reader = integer(document, "min_reader", 1, version);
  if (reader > Manifest::kVersion)
    refuse("is of format version {} and needs a ripstop that reads version {}; this one reads up to {}",
           version, reader, Manifest::kVersion);
  version_ = version;
  is_newer_ = version > Manifest::kVersion;
  // Another layout has other elements at the same offsets: hashes would be right and weights wrong.
  const int64_t layout = integer(document, "layout", 1, 1'000'000);
  if (layout != UnitLayout::kVersion)
    refuse("has layout version {}; this ripstop reads {}", layout, UnitLayout::kVersion);
}

void Reader::only_members(const Json& document) const {
  if (is_newer_) return;
  for (const auto& [key, value] : document.items()) {
    const auto* const known = std::ranges::find(kMembers, key, &std::pair<std::string_view, int64_t>::first);
    if (known == kMembers.end()) refuse("has an unknown '{}'", key);
    if (known->second > version_)
      refuse("is of format version {}, and has '{}', which is of version {}", version_, key, known->second);
  }
}

/// The sizes are used for products, so they are bounded here and validated as those of a config are.
ModelConfig Reader::model(const Json& json) const {
  ModelConfig model;
  std::vector<std::string_view> names;
  for_each_field(model, [&](const char* name, auto&) { names.emplace_back(name); });
  only(json, names);
  // 0 passes as a size here: validate() says more clearly what is wrong with it.
  for_each_field(model, [&]<class T>(const char* name, T& value) {
    if constexpr (std::is_same_v<T, int64_t>)
      value = integer(json, name, 0, int64_t{1} << 40);
    else if constexpr (std::is_same_v<T, bool>)
      value = flag(json, name);
    else
      value = number(json, name);
  });
  try {
    validate(model);
  } catch (const Error& error) {
    refuse("has an impossible model: {}", error.what());
  }
  return model;
}

std::optional<BestSoFar> Reader::best(const Json& json) const {
  if (json.is_null()) return std::nullopt;
  only(json, {"metric", "value", "step"});
  return BestSoFar{text(json, "metric", 64), number(json, "value"), integer(json, "step", 0, INT64_MAX)};
}

void Reader::validation(const Json& json, CheckpointState& state) const {
  state.validated_step = integer(json, "step", 0, state.step);
  state.validation_content_hash = text(json, "content_hash", 256);
  if (version_ == 2) return only(json, {"step", "content_hash"});
  only(json, {"step", "content_hash", "since_best"});
  // A step is validated once at most.
  state.validations_since_best = integer(json, "since_best", 0, state.validated_step);
}

std::optional<AdaptedBase> Reader::adapters(const Json& json, const ModelConfig& model) const {
  if (json.is_null()) return std::nullopt;
  only(json, {"rank", "alpha", "dropout", "rslora", "targets", "base"});
  AdaptedBase adapted;
  LoraConfig& lora = adapted.lora;
  lora = {.rank = integer(json, "rank", 1, int64_t{1} << 40),
          .alpha = number(json, "alpha"),
          .dropout = number(json, "dropout"),
          .rslora = flag(json, "rslora"),
          .targets = {}};
  for (const Json& name : list(json, "targets", 1, std::ssize(kLoraTargets))) {
    const auto found = std::find(kLoraTargets.begin(), kLoraTargets.end(),
                                 name.is_string() ? name.get<std::string>() : std::string());
    if (found == kLoraTargets.end()) refuse("has an adapter of an unknown target");
    lora.targets[static_cast<size_t>(found - kLoraTargets.begin())] = true;
  }
  try {
    validate(lora, model);
  } catch (const Error& error) {
    refuse("has impossible adapters: {}", error.what());
  }
  const Json& base = member(json, "base");
  adapted.directory = text(base, "directory", 4096);
  // The first ones of version 6 knew the samples alone.
  if (!base.contains("samples")) {
    only(base, {"directory", "hash"});
    adapted.samples = text(base, "hash", 256);
    return adapted;
  }
  only(base, {"directory", "hash", "samples", "dtype"});
  adapted.hash = text(base, "hash", 256);
  adapted.samples = text(base, "samples", 256);
  adapted.dtype = text(base, "dtype", 16);
  if (!adapted.dtype.empty() && adapted.dtype != "float32" && adapted.dtype != "bfloat16")
    refuse("has a base of the dtype '{}'", adapted.dtype);
  return adapted;
}

MeshSizes Reader::mesh(const Json& json) const {
  only(json, {"replicate", "fsdp", "tensor"});
  const MeshSizes mesh{integer(json, "replicate", 1, kMostRanks), integer(json, "fsdp", 1, kMostRanks),
                       integer(json, "tensor", 1, kMostRanks)};
  // Each factor is at most 10^6, so the product of three fits 64 bits.
  if (mesh.ranks() > kMostRanks) refuse("has a mesh of {} ranks", mesh.ranks());
  return mesh;
}

DType Reader::moments(const Json& document) const {
  const std::string dtype = text(document, "moments", 16);
  if (dtype != "float32" && dtype != "bfloat16") refuse("has moments of the dtype '{}'", dtype);
  return dtype == "float32" ? DType::kFloat32 : DType::kBFloat16;
}

ParameterSpec Reader::parameter(const Json& json, std::set<std::string>& names) const {
  only(json, {"name", "rows", "columns", "cut", "grain"});
  // A name is printed and is part of an array's name, so it has no slash and no control character.
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
  ParameterSpec p;
  p.name = text(json, "name", 256);
  if (p.name.empty() || p.name.find_first_not_of(kLetters) != std::string::npos)
    refuse("has a parameter whose name is not made of letters, digits, '_' and '.'");
  if (!names.insert(p.name).second) refuse("has parameter {} twice", p.name);
  p.rows = integer(json, "rows", 1, kMostElements);
  // So that rows x columns stays below the limit, too.
  p.columns = integer(json, "columns", 1, kMostElements / p.rows);
  const std::string cut = text(json, "cut", 16);
  if (cut != "none" && cut != "rows" && cut != "columns") refuse("{} has the cut '{}'", p.name, cut);
  p.cut = cut == "none" ? Cut::kNone : cut == "rows" ? Cut::kRows : Cut::kColumns;
  p.grain = integer(json, "grain", 1, p.cut == Cut::kColumns ? p.columns : p.rows);
  p.vector = p.rows == 1 && !is_adapter(p.name);
  return p;
}

PhysicalTensor Reader::tensor(const Json& json, std::set<std::string>& names) const {
  if (!json.is_array() || json.empty()) refuse("has a tensor without parameters");
  PhysicalTensor tensor;
  for (const Json& part : json) {
    tensor.parts.push_back(parameter(part, names));
    const ParameterSpec& p = tensor.parts.back();
    // Parts lie below each other in one matrix: they are cut alike and have equal columns.
    if (p.cut != tensor.parts.front().cut || p.columns != tensor.parts.front().columns)
      refuse("{} does not fit the tensor that it is in", p.name);
  }
  return tensor;
}

std::vector<UnitSpec> Reader::units(const Json& document) const {
  std::vector<UnitSpec> units;
  std::set<std::string> names, unit_names;
  for (const Json& json : list(document, "units", 1, kMostUnits)) {
    only(json, {"name", "tensors"});
    UnitSpec unit{text(json, "name", 256), {}};
    if (!unit_names.insert(unit.name).second) refuse("has unit {} twice", unit.name);
    for (const Json& t : list(json, "tensors", 1, kMostUnits)) {
      // A layout keeps replicated tensors in front. UnitLayout would stop the program with an internal error.
      const bool leads = unit.tensors.empty() || unit.tensors.back().replicated();
      unit.tensors.push_back(tensor(t, names));
      if (unit.tensors.back().replicated() && !leads)
        refuse("unit {}: replicated tensors must come first", unit.name);
    }
    units.push_back(std::move(unit));
  }
  return units;
}

std::vector<StoredFile> Reader::files(const Json& document, const Manifest& manifest) const {
  if (manifest.mesh.ranks() > kMostRanksTimesUnits / static_cast<int64_t>(manifest.units.size()))
    refuse("has {} units on {} ranks", manifest.units.size(), manifest.mesh.ranks());
  // The names of files come from ranks, never from the manifest, so it cannot point outside its directory.
  const std::vector<int64_t> ranks = storing_ranks(manifest.units, manifest.mesh);
  const Json& found = list(document, "files", 1, kMostRanks);
  if (found.size() != ranks.size()) refuse("lists {} files, {} were expected", found.size(), ranks.size());
  std::vector<StoredFile> files;
  for (const Json& json : found) {
    only(json, {"rank", "bytes", "sidecar_bytes", "sidecar_hash"});
    StoredFile file{integer(json, "rank", 0, kMostRanks), integer(json, "bytes", 1, int64_t{1} << 56),
                    integer(json, "sidecar_bytes", 1, int64_t{1} << 40), text(json, "sidecar_hash", 32)};
    if (file.rank != ranks[files.size()])
      refuse("lists a file of rank {}, one of rank {} was expected", file.rank, ranks[files.size()]);
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

Manifest parse_manifest(const std::string& bytes, const std::string& name) {
  Reader reader(name);
  const size_t ending_bytes = manifest_ending("").size();
  if (bytes.size() > static_cast<size_t>(Manifest::kMostBytes)) reader.refuse("has {} bytes", bytes.size());
  if (bytes.size() <= ending_bytes) reader.refuse("has {} bytes: it is cut short", bytes.size());
  // The hash comes before the parser: damage is reported as damage, not as an odd value.
  const std::string_view body = std::string_view(bytes).substr(0, bytes.size() - ending_bytes);
  if (std::string_view(bytes).substr(body.size()) != manifest_ending(body))
    reader.refuse("does not end with the hash of its bytes: it is damaged");

  // The whole text, hash included: that is a member of the document.
  const Json document = reader.parse(bytes);
  reader.check_version(document);
  reader.only_members(document);
  const auto count = [&](const Json& object, const char* key) {
    return reader.integer(object, key, 0, INT64_MAX);
  };
  constexpr size_t kShort = 256, kLong = size_t{1} << 20;
  Manifest manifest;
  CheckpointState& state = manifest.state;
  manifest.written_by = reader.text(document, "written_by", kShort);
  state.step = count(document, "step");
  state.updates = count(document, "updates");
  const Json& cursor = reader.member(document, "cursor");
  reader.only(cursor, {"epoch", "pack"});
  state.epoch = count(cursor, "epoch");
  // "pack" is the key of format version 1 for a sequence. It stays, so that old checkpoints can be read.
  state.sequence = count(cursor, "pack");
  state.tokens = count(document, "tokens");
  state.best = reader.best(reader.member(document, "best"));
  // Version 1 did not say. With 0, a resumed run would validate these weights a second time.
  state.validated_step = state.step;
  if (reader.version() >= 2) reader.validation(reader.member(document, "validation"), state);
  if (reader.version() >= 5) state.takeover = count(document, "takeover");
  manifest.mesh = reader.mesh(reader.member(document, "mesh"));
  if (reader.version() >= 4) manifest.moments = reader.moments(document);
  state.model = reader.model(reader.member(document, "model"));
  const Json& data = reader.member(document, "data");
  reader.only(data, {"content_hash", "tokenizer_sha256", "pack_plan_hash"});
  state.data_content_hash = reader.text(data, "content_hash", kShort);
  state.tokenizer_sha256 = reader.text(data, "tokenizer_sha256", kShort);
  state.pack_plan_hash = reader.text(data, "pack_plan_hash", kShort);
  state.config = reader.text(document, "config", kLong);
  if (reader.version() >= 6)
    state.adapted = reader.adapters(reader.member(document, "adapters"), state.model);
  manifest.units = reader.units(document);
  manifest.files = reader.files(document, manifest);
  return manifest;
}

Manifest read_manifest(Io& io, const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / Manifest::kFileName;
  return parse_manifest(read_whole_file(io, path, Manifest::kMostBytes), path.string());
}

}  // namespace ripstop
