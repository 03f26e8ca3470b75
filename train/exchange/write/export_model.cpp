#include "train/exchange/write/export_model.h"

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <utility>

#include "data/chat/chat_style.h"
#include "data/dataset/prompt_template.h"
#include "data/dataset/token_dataset.h"
#include "data/files/directory.h"
#include "data/files/whole_file.h"
#include "data/process/partial_directory.h"
#include "data/tokenizer/tokenizer.h"
#include "parallel/agreement.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/exchange/hugging_face/generation_file.h"
#include "train/exchange/peft/peft_adapter.h"
#include "train/exchange/write/export_files.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

// Name and bytes of each file other than the weights.
using SmallFiles = std::vector<std::pair<std::string, std::string>>;

// The prompt template of the training; empty if the run has none, or was not trained on summaries.
std::string find_template(Io& io, const TrainedModel& trained, ExampleKind kind) {
  const fs::path path = trained.run / "prompt_template.txt";
  if (kind != ExampleKind::kSummary || !path_exists(io, path)) return "";
  return read_plain_file(path, 1 << 20, ExitCode::kInputData);
}

// All text around {document} in `prompt_template`, including text of the chat template of `choice`.
TemplateParts frame_of(const TrainedModel& trained, const TokenizerChoice& choice,
                       const std::string& prompt_template) {
  const Tokenizer tokenizer(trained.run, choice);
  return PromptTemplate(tokenizer, prompt_template).frame();
}

// Sets what the card says of the prompt: with a chat template, the whole text around the document.
void describe_prompt(const TrainedModel& trained, const std::string& prompt_template, bool asks,
                     ModelCard& card) {
  constexpr const char* kTurn = "{document}";
  const std::optional<TokenizerChoice> questions = read_question_choice(trained.run);
  const TokenizerChoice choice = asks && questions ? *questions : read_tokenizer_choice(trained.run);
  card.prompt_template = prompt_template;
  card.chat_template = choice.chat_template.value_or("");
  if (!card.chat_template.empty() && (asks || !prompt_template.empty())) {
    const TemplateParts parts = frame_of(trained, choice, asks ? kTurn : prompt_template);
    (asks ? card.question : card.prompt_template) = parts.before + kTurn + parts.separator;
    if (parts.strips_begin) card.document += ".lstrip()";
    if (parts.strips_end) card.document += ".rstrip()";
  }
  if (asks || !questions || questions->chat_template.value_or("").empty()) return;
  const TemplateParts parts = frame_of(trained, *questions, kTurn);
  card.question = parts.before + kTurn + parts.separator;
  card.asked_by = *questions->chat_template;
}

// Whether apply_chat_template, with the tokenizer's own `files`, writes the same text as `chat`.
bool is_own(const ChatTemplate& chat, const TokenizerFiles& files) {
  try {
    if (own_chat_template(files) != chat.name()) return false;
  } catch (const Error&) {
    return false;
  }
  // Some templates write today's date.
  return !chat.has_date() || (files.choice.chat_date == kDefaultChatDate &&
                              chat_template_text(files).find("strftime_now") == std::string::npos);
}

bool has_chat_template(const Tokenizer& tokenizer) {
  return !tokenizer.files().choice.chat_template.value_or("").empty();
}

// Puts the chat template of `tokenizer`, if any, into the files of an export, unless the tokenizer's own
// files have it.
void add_chat_template(const Tokenizer& tokenizer, const ExportOptions& options, ExportedTokenizer& files) {
  if (!has_chat_template(tokenizer)) return;
  const ChatTemplate chat(tokenizer);
  if (is_own(chat, tokenizer.files())) return;
  std::erase_if(files.texts, [](const auto& file) { return file.first == kChatTemplateFile; });
  files.texts.emplace_back(kChatTemplateFile, chat.jinja());
  options.note(fmt::format(
      "{} is written for the chat template {} of the training, as the tokenizer's files have no such text",
      kChatTemplateFile, chat.name()));
}

// The files of the run's tokenizer; empty without a tokenizer. Throws if the training used another tokenizer,
// because ids would then mean other words.
ExportedTokenizer tokenizer_of_run(const TrainedModel& trained, const ExportOptions& options) {
  std::vector<int32_t> ends = trained.config.generation.eos_token_id;
  if (!has_tokenizer(trained.run)) {
    options.note(
        fmt::format("{} has {}: the export has the weights alone", trained.run.string(), kNoTokenizer));
    ExportedTokenizer none;
    none.ids.ends = std::move(ends);
    return none;
  }
  const Tokenizer tokenizer(trained.run);
  for (const std::string& text : tokenizer.notes()) options.note(text);
  const std::string& trained_with = trained.state().tokenizer_sha256;
  if (!trained_with.empty() && tokenizer.sha256() != trained_with)
    throw Error(ExitCode::kInputData,
                fmt::format("{} is not the tokenizer that {} was trained with", tokenizer.name(),
                            trained.stored.directory().string()),
                "put the tokenizer of its data set there, or move the file away to export without one");
  const std::optional<Tokenizer> asked = question_tokenizer(trained.run, tokenizer, ends);
  const bool asks = asked && trained_kind(trained) == ExampleKind::kConversation;
  ExportedTokenizer files =
      exported_tokenizer(asks ? *asked : tokenizer, trained.state().model.max_position_embeddings);
  if (!files.difference.empty()) options.note("the tokenizer: " + files.difference);
  files.ids.ends = std::move(ends);
  add_chat_template(asked && has_chat_template(*asked) ? *asked : tokenizer, options, files);
  return files;
}

// All files except the weights. Adapters have no generation_config.json: that of the base is read. The
// tokenizer is the run's: a base may lack one, or transformers may read the base's tokenizer differently.
SmallFiles small_files(Io& io, const TrainedModel& trained, const ExportLayout& layout,
                       const ExportOptions& options, ExportReport& report) {
  const ExportedAdapters* const adapters = options.adapters ? &*options.adapters : nullptr;
  ExportedTokenizer tokenizer = tokenizer_of_run(trained, options);
  for (const std::string& text : trained.stored.notes()) options.note(text);
  if (adapters != nullptr && !adapters->base_export.empty())
    options.note(
        fmt::format("the base {} is a checkpoint of ripstop, which peft does not read: export it, "
                    "and name the export by --base",
                    adapters->base));
  if (trained.stored.base() != nullptr && !options.dtype && layout.dtype() != ExportDType::kFloat32)
    options.note(
        fmt::format("the merged weights are rounded to {}, which may lose the smaller part of what "
                    "adapters add: --dtype float32 keeps it",
                    to_string(layout.dtype())));
  const ExampleKind kind = trained_kind(trained);
  const bool has_turns = kind == ExampleKind::kConversation;
  const std::string prompt_template = find_template(io, trained, kind);
  report.has_tokenizer = tokenizer.is_there();
  report.python_tokenizer = tokenizer.python;
  report.writes_summaries = report.has_tokenizer && !prompt_template.empty() && adapters == nullptr;
  SmallFiles files;
  if (adapters != nullptr)
    files = {{kPeftConfigFile, peft_config_json(adapters->lora, adapters->base)}};
  else
    files = {{"config.json", pretrained_config_json(trained.state().model, layout.dtype(), tokenizer.ids)},
             {"generation_config.json", generation_config_json(trained.config.generation, tokenizer.ids)}};
  ModelCard card{.trained = trained,
                 .dtype = layout.dtype(),
                 .adapters = adapters,
                 .tokenizer = tokenizer,
                 .prompt_template = {},
                 .written_by = options.written_by,
                 .facts = options.facts};
  describe_prompt(trained, prompt_template, has_turns, card);
  files.emplace_back("README.md", model_card(card));
  if (adapters == nullptr && (has_turns || !prompt_template.empty()))
    files.emplace_back(
        kPromptFile, prompt_json({has_turns ? "{document}" : prompt_template, trained.context(), has_turns}));
  if (std::string index = layout.index_json(); !index.empty())
    files.emplace_back("model.safetensors.index.json", std::move(index));
  for (auto& file : tokenizer.texts) files.push_back(std::move(file));
  return files;
}

ExportDType dtype_of(const TrainedModel& trained, const ExportOptions& options) {
  if (options.dtype) return *options.dtype;
  // An import has no updates, and its weights may come from float16, which bfloat16 would round.
  if (options.adapters || trained.state().updates == 0) return ExportDType::kFloat32;
  // A run that computes in bfloat16 rounds its weights in every step: the export has what it computes with.
  // Rounding merged adapters loses bits, as a note of small_files() says.
  return trained.config.precision.compute == FloatChoice::kBfloat16 ? ExportDType::kBFloat16
                                                                    : ExportDType::kFloat32;
}

// `what_needs`: words for the message: "the export needs".
void require_room(Io& io, const fs::path& folder, int64_t bytes, const std::string& what_needs,
                  const std::string& hint) {
  int64_t room = 0;
  if (io.free_bytes(folder, room) != 0) fail_storage(folder, "get the free space", errno);
  if (room >= bytes) return;
  throw Error(
      ExitCode::kStorage,
      fmt::format("{}: {} free, {} {}", folder.string(), bytes_text(room), what_needs, bytes_text(bytes)),
      hint);
}

// Enough space for a checkpoint's headers, sidecars and manifest.
constexpr int64_t kRoomBesideWeights = int64_t{64} << 20;

CheckpointState imported_state(const StoredModel& model, const fs::path& output) {
  CheckpointState state = model.state();
  RunConfig config = parse_run_config(state.config, model.directory().string());
  config.run.directory = output.string();
  config.data.directory = output.string();  // no data set exists; messages show this name
  state.config = to_toml(config);
  return state;
}

}  // namespace

int64_t ExportReport::bytes() const {
  int64_t sum = 0;
  for (const CheckedFile& file : files) sum += file.bytes;
  return sum;
}

ExportReport export_model(Io& io, Communicator& world, const TrainedModel& trained, const fs::path& output,
                          const ExportOptions& options, ExportProgress progress) {
  const ModelConfig& model = trained.state().model;
  const ExportDType dtype = dtype_of(trained, options);
  const ExportLayout layout = options.adapters ? ExportLayout(model, options.adapters->lora, dtype)
                                               : ExportLayout(model, dtype, options.most_file_bytes);
  ExportReport report{.dtype = dtype, .tensors = std::ssize(layout.tensors()), .files = {}};
  std::optional<PartialDirectory> partial;  // on rank 0 only
  std::vector<CheckedFile> small;
  do_on_rank_0(world, [&] {
    // Errors must come before the weights are written, which may take long.
    const SmallFiles files = small_files(io, trained, layout, options, report);
    partial.emplace(io, output, options.note);
    int64_t bytes = layout.bytes();
    for (const auto& [name, text] : files) bytes += std::ssize(text);
    require_room(io, partial->folder(), bytes, "the export needs",
                 fmt::format("free some space, name a directory on another disk{}",
                             dtype == ExportDType::kFloat32 ? ", or export with --dtype bfloat16" : ""));
    for (const auto& [name, text] : files)
      small.push_back(write_checked_file(io, partial->path(), name, text));
  });
  const fs::path directory = text_of_rank_0(world, partial ? partial->path().string() : std::string());
  report.files = export_weights(io, world, trained.stored, layout, directory, options.hashes_files, progress);
  report.weight_files = std::ssize(report.files);
  report.files.insert(report.files.end(), small.begin(), small.end());
  do_and_agree(world, [&] {
    if (partial) partial->rename_to_output();
  });
  return report;
}

int64_t import_model(Io& io, const StoredModel& model, const fs::path& output,
                     const std::function<void(const std::string&)>& note,
                     const std::function<void(int64_t elements)>& progress) {
  const std::vector<UnitSpec> table = parameter_table(model.config());
  std::vector<UnitLayout> layouts;
  layouts.reserve(table.size());  // keeps elements in place, because the sources refer to them
  std::vector<ArraySource> sources;
  std::atomic<int64_t> done = 0;  // elements that all threads have read, with padding
  for (const UnitSpec& unit : table) {
    const UnitLayout& layout = layouts.emplace_back(unit, 1, 0, 1);
    sources.push_back([&](int64_t first, int64_t count, void* to) {
      read_pretrained(*model.pretrained(), layout, first, first + count, static_cast<float*>(to));
      done += count;
    });
    sources.resize(sources.size() + 2);  // empty sources: the moments are zero
  }
  PartialDirectory partial(io, output, note);
  for (const std::string& text : model.notes()) note("note: " + text);
  require_room(
      io, partial.folder(),
      checkpoint_elements(table, kMeshOfOne) * element_bytes(DType::kFloat32) + kRoomBesideWeights,
      "weights in float32 and what lies beside them need up to",
      "free some space, or give model.pretrained the model's own directory: training needs no import");
  const std::unique_ptr<Communicator> self = make_self_communicator("import");
  check_storages(*model.pretrained(), *self);
  CheckpointWriter writer(io, partial / "checkpoints", *self, kMeshOfOne, table, DType::kFloat32,
                          std::move(sources));
  const SaveReport report = writer.save(imported_state(model, output), {.watch = [&] {
                                          if (progress) progress(done);
                                        }});
  if (!model.state().tokenizer_sha256.empty()) {
    const Tokenizer tokenizer(model.directory());
    for (const std::string& text : tokenizer.notes()) note("note: " + text);
    for (const auto& [name, bytes] : tokenizer.files().carried) create_file(io, partial / name, bytes);
  }
  sync_directory(io, partial.path());
  partial.rename_to_output();
  return report.bytes;
}

}  // namespace ripstop
