#include "train/exchange/write/export_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/dataset/token_dataset.h"
#include "data/files/directory.h"
#include "data/files/whole_file.h"
#include "data/process/partial_directory.h"
#include "data/tokenizer/tokenizer.h"
#include "parallel/agreement.h"
#include "train/exchange/hugging_face/prompt_file.h"
#include "train/exchange/peft/peft_config.h"
#include "train/exchange/write/disk_room.h"
#include "train/exchange/write/export_files.h"
#include "train/exchange/write/export_tokenizer.h"
#include "train/exchange/write/model_card.h"
#include "train/report/human_text.h"
#include "train/report/metrics.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

// Name and bytes of each file beside the weights.
using SmallFiles = std::vector<std::pair<std::string, std::string>>;

// The run's own copy; none if the run has none. With another one the model's ids would mean other words.
std::optional<Tokenizer> find_tokenizer(Io& io, const ExportSource& source) {
  if (!path_exists(io, source.run / "tokenizer.model")) return std::nullopt;
  Tokenizer tokenizer(source.run);
  const std::string& trained_with = source.model.checkpoint()->manifest.state.tokenizer_sha256;
  if (!trained_with.empty() && tokenizer.sha256() != trained_with)
    throw Error(ExitCode::kInputData,
                fmt::format("{} is not the tokenizer that {} was trained with", tokenizer.name(),
                            source.model.directory().string()),
                "put the tokenizer.model of its data set there, or move the file away to export without one");
  return tokenizer;
}

// The template of the training; empty if the run does not have it.
std::string find_template(Io& io, const fs::path& run) {
  const fs::path path = run / "prompt_template.txt";
  return path_exists(io, path) ? read_plain_file(path, 1 << 20, ExitCode::kInputData) : std::string();
}

// Whether the run was trained on running text. Its log says so. Without one, as of a copied checkpoint, the
// directory of the data set may still tell.
bool is_running_text(const fs::path& run, const RunConfig& config) {
  const std::optional<StartEvent> start = first_start(run / "metrics.jsonl");
  if (start) return start->data.kind == to_string(ExampleKind::kText);
  try {
    const auto json = nlohmann::ordered_json::parse(
        read_plain_file(fs::path(config.data.directory) / "prepare.json", 1 << 24, ExitCode::kInputData));
    return json.at("arguments").at("source") == "text";
  } catch (const Error&) {
    return false;
  } catch (const nlohmann::ordered_json::exception&) {
    return false;
  }
}

std::string title_of(const fs::path& run) {
  const fs::path whole = fs::absolute(run).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

// The tokenizer of the run, if it has one, as the files of Hugging Face.
struct ExportedTokenizer {
  SpecialIds ids;
  TokenizerFiles files;
  bool is_there = false;
  bool has_json = false;  // its places in a text are known in Python
};

ExportedTokenizer exported_tokenizer(Io& io, const ExportSource& source, const ExportOptions& options) {
  const auto note = [&](const std::string& text) {
    if (options.note) options.note(text);
  };
  const std::optional<Tokenizer> tokenizer = find_tokenizer(io, source);
  if (!tokenizer) {
    note(fmt::format("{} has no tokenizer.model: the export has the weights alone", source.run.string()));
    return {};
  }
  ExportedTokenizer found{
      .ids = {.bos = tokenizer->bos(), .eos = tokenizer->eos()},
      .files = tokenizer_files(*tokenizer,
                               source.model.checkpoint()->manifest.state.model.max_position_embeddings),
      .is_there = true};
  found.has_json =
      std::ranges::any_of(found.files.texts, [](const auto& file) { return file.first == "tokenizer.json"; });
  if (!found.files.difference.empty()) note("the tokenizer: " + found.files.difference);
  return found;
}

// All but the weights and what is known of them. On rank 0.
SmallFiles small_files(Io& io, const ExportSource& source, const ExportLayout& layout,
                       const ExportOptions& options, ExportReport& report) {
  const CheckpointState& state = source.model.checkpoint()->manifest.state;
  ExportedTokenizer tokenizer = exported_tokenizer(io, source, options);
  if (options.note && source.model.base() != nullptr && !options.dtype &&
      layout.dtype() != ExportDType::kFloat32)
    options.note(
        fmt::format("the merged weights are rounded to {}, which may lose the smaller part of what adapters "
                    "add: --dtype float32 keeps it",
                    to_string(layout.dtype())));
  report.has_tokenizer = tokenizer.is_there;
  const bool of_text = is_running_text(source.run, source.config);
  const std::string prompt_template = of_text ? std::string() : find_template(io, source.run);
  report.writes_summaries = report.has_tokenizer && !prompt_template.empty();
  SmallFiles files = {
      {"config.json", pretrained_config_json(state.model, layout.dtype(), tokenizer.ids)},
      {"generation_config.json", generation_config_json(source.config.generation, tokenizer.ids)},
      {"README.md", model_card({.title = title_of(source.run),
                                .state = &state,
                                .mesh = source.model.checkpoint()->manifest.mesh,
                                .config = &source.config,
                                .dtype = layout.dtype(),
                                .base = {},
                                .base_export = {},
                                .is_running_text = of_text,
                                .prompt_template = prompt_template,
                                .tokenizer_difference = tokenizer.files.difference,
                                .has_tokenizer = tokenizer.is_there,
                                .has_tokenizer_json = tokenizer.has_json,
                                .scores = known_scores(source.run),
                                .written_by = options.written_by})}};
  if (!prompt_template.empty())
    files.emplace_back(kPromptFile, prompt_json({.prompt_template = prompt_template,
                                                 .context = std::min(source.config.data.sequence_length,
                                                                     state.model.max_position_embeddings)}));
  if (std::string index = layout.index_json(); !index.empty())
    files.emplace_back("model.safetensors.index.json", std::move(index));
  for (auto& file : tokenizer.files.texts) files.push_back(std::move(file));
  return files;
}

// Those of adapters. How texts are generated is their base's. The tokenizer is that of the run: in a base it
// may be missing, or be read in another way.
SmallFiles adapter_files(Io& io, const ExportSource& source, const ExportLayout& layout,
                         const ExportedAdapters& adapters, const ExportOptions& options,
                         ExportReport& report) {
  ExportedTokenizer tokenizer = exported_tokenizer(io, source, options);
  report.has_tokenizer = tokenizer.is_there;
  if (options.note && !adapters.base_export.empty())
    options.note(
        fmt::format("the base {} is a checkpoint of ripstop, which peft does not read: export it, and "
                    "name the export by --base",
                    adapters.base));
  const bool of_text = is_running_text(source.run, source.config);
  const ModelCard card{.title = title_of(source.run),
                       .state = &source.model.checkpoint()->manifest.state,
                       .mesh = source.model.checkpoint()->manifest.mesh,
                       .config = &source.config,
                       .dtype = layout.dtype(),
                       .adapters = &adapters.lora,
                       .base = adapters.base,
                       .base_export = adapters.base_export,
                       .is_running_text = of_text,
                       .prompt_template = of_text ? std::string() : find_template(io, source.run),
                       .tokenizer_difference = tokenizer.files.difference,
                       .has_tokenizer = tokenizer.is_there,
                       .has_tokenizer_json = tokenizer.has_json,
                       .scores = known_scores(source.run),
                       .written_by = options.written_by};
  SmallFiles files = {{kPeftConfigFile, peft_config_json(adapters.lora, adapters.base)},
                      {"README.md", model_card(card)}};
  for (auto& file : tokenizer.files.texts) files.push_back(std::move(file));
  return files;
}

ExportDType dtype_of(const ExportSource& source, const ExportOptions& options) {
  if (options.dtype) return *options.dtype;
  // An import was never computed with, and may be of float16.
  if (source.model.checkpoint()->manifest.state.updates == 0) return ExportDType::kFloat32;
  // A run that computes in bfloat16 rounds its weights so for every step. Merged adapters it does not round
  // so: small_files() says it.
  return source.config.precision.compute == FloatChoice::kBfloat16 ? ExportDType::kBFloat16
                                                                   : ExportDType::kFloat32;
}

// Writes the weights of the model, whose units are those of the layout, and beside them what rank 0 gets
// from `small_files`, which may add to the report.
ExportReport export_directory(Io& io, Communicator& world, const StoredModel& model,
                              const ExportLayout& layout, const fs::path& output,
                              const ExportOptions& options, ExportProgress progress,
                              FunctionRef<SmallFiles(ExportReport&)> small_files) {
  ExportReport report{.dtype = layout.dtype(), .tensors = std::ssize(layout.tensors()), .files = {}};
  std::optional<PartialDirectory> partial;  // rank 0's
  std::vector<CheckedFile> small;
  do_and_agree(world, [&] {
    if (world.rank() != 0) return;
    // Everything that can be refused comes before the weights, which may take long.
    const SmallFiles files = small_files(report);
    partial.emplace(io, output, options.note);
    int64_t bytes = layout.bytes();
    for (const auto& [name, text] : files) bytes += std::ssize(text);
    require_room(io, partial->folder(), bytes, "the export needs",
                 "free some space, name a directory on another disk, or export with --dtype bfloat16");
    for (const auto& [name, text] : files)
      small.push_back(write_checked_file(io, partial->path(), name, text));
  });
  const fs::path directory = text_of_rank_0(world, partial ? partial->path().string() : std::string());
  report.files = export_weights(io, world, model, layout, directory, options.hashes_files, progress);
  report.weight_files = std::ssize(report.files);
  report.files.insert(report.files.end(), small.begin(), small.end());
  do_and_agree(world, [&] {
    if (partial) partial->rename_to_output();
  });
  return report;
}

}  // namespace

int64_t ExportReport::bytes() const {
  int64_t sum = 0;
  for (const CheckedFile& file : files) sum += file.bytes;
  return sum;
}

ExportReport export_model(Io& io, Communicator& world, const ExportSource& source, const fs::path& output,
                          const ExportOptions& options, ExportProgress progress) {
  const ExportLayout layout(source.model.checkpoint()->manifest.state.model, dtype_of(source, options),
                            options.most_file_bytes);
  return export_directory(
      io, world, source.model, layout, output, options, progress,
      [&](ExportReport& report) { return small_files(io, source, layout, options, report); });
}

ExportReport export_adapters(Io& io, Communicator& world, const ExportSource& source,
                             const ExportedAdapters& adapters, const fs::path& output,
                             const ExportOptions& options, ExportProgress progress) {
  const ExportLayout layout(source.model.checkpoint()->manifest.state.model, adapters.lora,
                            options.dtype.value_or(ExportDType::kFloat32));
  return export_directory(
      io, world, source.model, layout, output, options, progress,
      [&](ExportReport& report) { return adapter_files(io, source, layout, adapters, options, report); });
}

}  // namespace ripstop
