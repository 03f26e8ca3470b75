#include "train/commands/checkpoint_verbs.h"
#include "train/commands/end_failed.h"
#include "train/commands/model_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <optional>

#include "data/files/directory.h"
#include "data/process/shell_word.h"
#include "data/text/json_reader.h"
#include "parallel/launch_environment.h"
#include "parallel/mpi_world.h"
#include "train/checkpoint/manifest.h"
#include "train/exchange/peft/peft_adapter.h"
#include "train/exchange/read/open_model.h"
#include "train/exchange/write/export_model.h"
#include "train/machine/version.h"
#include "train/report/human_text.h"
#include "train/report/live_line.h"
#include "train/report/standard_streams.h"
#include "train/run/stop_signal.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

using Json = JsonReader::Json;

constexpr const char* kPeft = "peft";
constexpr const char *kModelClass = "AutoModelForCausalLM", *kPeftClass = "AutoPeftModelForCausalLM";

struct ExportArguments {
  std::string run, output, checkpoint = "best", format = "huggingface", dtype, base;
  CardFacts facts;
  bool json = false;
};

// The exception after a stop request, caught in export_on_all_ranks.
struct ExportStopped {};

// A live line of progress, shown if `speaks`. update() throws ExportStopped on a stop request.
class ExportLine {
 public:
  ExportLine(bool speaks, const StopSignal* stop) : speaks_(speaks), stop_(stop) {}

  void update(const char* doing, int64_t done, int64_t total) {
    if (stop_ != nullptr && stop_->requested()) throw ExportStopped{};
    if (speaks_) progress_.update(std::string("export: ") + doing, "byte", done, total);
  }
  void finish() { progress_.finish(); }

 private:
  bool speaks_;
  const StopSignal* stop_;
  Progress progress_{stderr};
};

// The document of --json. Scripts rely on its keys.
Json json_of(const ExportArguments& given, const TrainedModel& trained, const ExportReport& report) {
  Json files = Json::array();
  for (const CheckedFile& file : report.files)
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3_128", file.hash}});
  const CheckpointState& state = trained.state();
  return {{"directory", given.output},
          {"format", given.format},
          {"checkpoint", trained.stored.directory().string()},
          {"step", state.step},
          {"dtype", to_string(report.dtype)},
          {"tensors", report.tensors},
          {"parameters", given.format == kPeft ? adapter_parameter_count(state.model, state.adapted->lora)
                                               : parameter_count(state.model)},
          {"tokenizer", report.has_tokenizer},
          {"bytes", report.bytes()},
          {"files", std::move(files)}};
}

std::string python_command(const ExportArguments& given, const ExportReport& report) {
  // A Python string in double quotes, because the shell's quotes around the program are single.
  const std::string directory = text_of_json(fs::absolute(given.output).lexically_normal().string());
  const bool is_peft = given.format == kPeft, has_tokenizer = report.has_tokenizer && !is_peft;
  const auto& [tokenizer, options] = report.python_tokenizer;
  return "python -c " +
         shell_word(fmt::format(
             "from {} import {}{}; m = {}.from_pretrained({}){}; print(m)", is_peft ? "peft" : "transformers",
             is_peft ? kPeftClass : kModelClass, has_tokenizer ? fmt::format(", {}", tokenizer) : "",
             is_peft ? kPeftClass : kModelClass, directory,
             has_tokenizer ? fmt::format("; t = {}.from_pretrained({}{})", tokenizer, directory, options)
                           : ""));
}

// "1 file of weights, 1.0 MiB; beside them 2 files, 9.1 KiB: config.json, README.md".
std::string files_text(const ExportReport& report) {
  int64_t weights = 0;
  std::vector<std::string> others;
  for (int64_t i = 0; i < std::ssize(report.files); ++i) {
    const CheckedFile& file = report.files[static_cast<size_t>(i)];
    if (i < report.weight_files)
      weights += file.bytes;
    else
      others.push_back(file.name);
  }
  return fmt::format("{} of weights, {}; beside them {}, {}: {}", counted(report.weight_files, "file"),
                     bytes_text(weights), counted(std::ssize(others), "file"),
                     bytes_text(report.bytes() - weights), fmt::join(others, ", "));
}

// Prints the report, and for people the next command. `base_export`: ExportedAdapters::base_export.
void print_report(const ExportArguments& given, const TrainedModel& trained, const ExportReport& report,
                  const std::string& base_export, double seconds) {
  if (given.json) return print_out("{}\n", text_of_json(json_of(given, trained, report), 2));
  print_to(stdout, "{} holds {} as {}: {}, read back and found equal\n", given.output,
           trained.stored.directory().string(), to_string(report.dtype), counted(report.tensors, "tensor"));
  print_to(stdout, "{}\n{} written in {}, {:.2f} GB/s\n", files_text(report), bytes_text(report.bytes()),
           duration_text(seconds), static_cast<double>(report.bytes()) / 1e9 / std::max(seconds, 1e-3));
  if (report.writes_summaries)
    print_to(
        stdout,
        "next: ripstop summarize {} --input articles.jsonl, or in Python, as its README.md shows:\n  {}\n",
        shell_word(given.output), python_command(given, report));
  else if (!base_export.empty())
    print_to(stdout, "next: {}\nthen this export once more, to another directory, with --base {}\n",
             base_export, kBaseExport);
  else
    print_to(stdout, "next: {}\n", python_command(given, report));
}

// Whether the base `directory` is a checkpoint, not a Hugging Face model. The name decides if it is absent.
bool is_checkpoint_place(Io& io, const fs::path& directory) {
  return directory_exists(io, directory)
             ? !is_pretrained_model(directory)
             : parse_step_directory_name(directory.filename().string()).has_value();
}

// The adapters, and the path of their base for PEFT's files: --base if given, else the base of training.
// Collective.
ExportedAdapters exported_adapters(Io& io, Communicator& world, const ExportArguments& given,
                                   const TrainedModel& trained) {
  const AdaptedBase& adapted = *trained.state().adapted;
  ExportedAdapters adapters{.lora = adapted.lora, .base = adapted.directory, .base_export = {}};
  if (!given.base.empty()) {
    require_base_or_export(io, world, adapted, trained.state().model, given.base);
    adapters.base = normal_path(given.base).string();
  }
  if (is_checkpoint_place(io, adapters.base))
    adapters.base_export = fmt::format("ripstop checkpoint export --dtype {} {} {}", adapted.dtype,
                                       shell_word(adapters.base), kBaseExport);
  return adapters;
}

void export_checkpoint(MpiWorld& world, const ExportArguments& given, ExportLine& line) {
  Io io;
  const auto begin = std::chrono::steady_clock::now();
  // PEFT's files have the path of the base, not its weights.
  const BaseChoice base = given.format == kPeft ? BaseChoice{.is_needed = false} : BaseChoice{given.base};
  const TrainedModel trained =
      find_trained_model(io, world.communicator(), given.run, given.checkpoint, base);
  if (trained.stored.is_pretrained())
    throw Error(ExitCode::kUsage, fmt::format("{} is a model of Hugging Face already", given.run),
                "give the directory of a run, or one of its checkpoints");
  const bool speaks = world.communicator().rank() == 0;
  if (speaks) warn_of_superseded(io, trained.stored.directory());
  const std::optional<AdaptedBase>& adapted = trained.state().adapted;
  if (given.format == kPeft && !adapted)
    throw Error(ExitCode::kUsage,
                fmt::format("{} has no adapters: all of its weights were trained", given.run),
                "--format huggingface exports it");
  std::optional<ExportedAdapters> adapters;
  if (given.format == kPeft) adapters = exported_adapters(io, world.communicator(), given, trained);
  const ExportOptions options{
      .dtype = find_export_dtype(given.dtype),
      .adapters = adapters,
      .hashes_files = given.json,
      .written_by = fmt::format("ripstop {} ({})", version(), git_commit()),
      .facts = given.facts,
      .note = [](const std::string& text) { LiveLine(stderr).print("note: " + text); }};
  const auto progress = [&](const char* doing, int64_t done, int64_t total) {
    line.update(doing, done, total);
  };
  const ExportReport report =
      export_model(io, world.communicator(), trained, given.output, options, progress);
  line.finish();
  if (speaks)
    print_report(given, trained, report, adapters ? adapters->base_export : "",
                 std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

ExitCode export_on_all_ranks(const ExportArguments& given) {
  // A stopped single process removes its unfinished files. Several ranks are killed by the signal; a later
  // export removes their files.
  std::optional<StopSignal> stop;
  if (launch_size() == 1) stop.emplace(StopFor::kCleanUp);
  ExportLine line(launch_rank() == 0, stop ? &*stop : nullptr);
  try {
    MpiWorld world(world_options("checkpoint export"));
    return world.run([&] {
      export_checkpoint(world, given, line);
      return ExitCode::kOk;
    });
  } catch (const ExportStopped&) {
    line.finish();
    stop->end_process();
    return ExitCode::kBug;  // not reached: the signal that stopped the export ends the process
  }
}

}  // namespace

void add_checkpoint_export(Verb& checkpoint) {
  const auto given = std::make_shared<ExportArguments>();
  Verb verb = checkpoint.verb("export", "a directory that from_pretrained of transformers or peft loads");
  verb.add_details(
      "Runs alone, and on several ranks, which then share the work; the checkpoint may be of any mesh.");
  verb.path("RUN|CHECKPOINT", given->run, "a run's directory, or a checkpoint's").required();
  verb.path("OUT", given->output, "the directory to be made").required();
  verb.option("--format", given->format,
              "huggingface: the whole model, with adapters merged into it; peft: its adapters alone")
      .choices({"huggingface", kPeft})
      .show_default();
  verb.option(
          "--dtype", given->dtype,
          "float32, bfloat16 or float16; default: the precision.compute of the run; float32 for an import")
      .choices({"float32", "bfloat16", "float16"});
  verb.path("--checkpoint", given->checkpoint, "of a run: best, latest, a step, or a step directory")
      .show_default();
  verb.path("--base", given->base, kBaseOptionHelp);
  verb.option("--license", given->facts.license,
              "a hub's name of the license, for README.md: apache-2.0, llama2");
  verb.option("--language", given->facts.language, "code of the texts' language, for README.md: en");
  verb.flag("--json", given->json, "one JSON document");
  verb.set_example(
      "ripstop checkpoint export --format huggingface runs/xsum exported/xsum\n"
      "  srun -n 8 ripstop checkpoint export --dtype bfloat16 runs/xsum exported/xsum\n"
      "  ripstop checkpoint export --format peft runs/lora exported/adapters");
  verb.set_action([given] {
    for (const std::string& word : {given->facts.license, given->facts.language})
      if (std::ranges::any_of(word, [](uint8_t c) { return std::isalnum(c) == 0 && c != '.' && c != '-'; }))
        throw CommandLineError(fmt::format("'{}' is not a name of a license or language", word),
                               "letters, digits, - and . alone: --license apache-2.0 --language en");
    return export_on_all_ranks(*given);
  });
}

}  // namespace ripstop
