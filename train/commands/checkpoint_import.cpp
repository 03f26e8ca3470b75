#include "train/commands/checkpoint_verbs.h"

#include <fmt/core.h>

#include <algorithm>

#include "data/process/shell_word.h"
#include "data/text/json_reader.h"
#include "train/exchange/read/open_model.h"
#include "train/exchange/write/export_model.h"
#include "train/report/human_text.h"
#include "train/report/live_line.h"
#include "train/report/standard_streams.h"
#include "train/run/stop_signal.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

struct ImportArguments {
  std::string model;
  std::string output;
  bool json = false;
};

// Throws the errors of find_stored_model and open_stored_model, and Error(kUsage) for a checkpoint.
StoredModel open_model(Io& io, const std::string& path) {
  StoredModel model = open_stored_model(io, find_stored_model(io, path, "best"));
  if (!model.is_pretrained())
    throw Error(ExitCode::kUsage, fmt::format("{} is a checkpoint of ripstop already", path),
                fmt::format("model.pretrained={} begins a run with its weights", shell_word(path)));
  return model;
}

// The exception after a stop request: destructors then remove the unfinished files.
struct ImportStopped {};

int64_t import_with_progress(Io& io, const StoredModel& model, const fs::path& output,
                             const StopSignal& stop) {
  const int64_t elements = parameter_count(model.config());
  Progress progress(stderr);
  return import_model(
      io, model, output, [](const std::string& note) { print_to(stderr, "{}\n", note); },
      [&](int64_t done) {
        if (stop.requested()) throw ImportStopped{};
        progress.update("import", "element", std::min(done, elements), elements);
      });
}

ExitCode import_checkpoint(const ImportArguments& given) {
  Io io;
  const StopSignal stop(StopFor::kCleanUp);
  const StoredModel model = open_model(io, given.model);
  int64_t bytes = 0;
  try {
    bytes = import_with_progress(io, model, given.output, stop);
  } catch (const ImportStopped&) {
    stop.end_process();
  }
  if (given.json) {
    const JsonReader::Json document{
        {"directory", given.output},
        {"checkpoint", (fs::path(given.output) / "checkpoints" / step_directory_name(0)).string()},
        {"bytes", bytes},
        {"parameter_count", parameter_count(model.config())}};
    print_out("{}\n", text_of_json(document, 2));
    return ExitCode::kOk;
  }
  print_to(stdout,
           "{} holds the checkpoint of step 0: {} parameters, {} with moments of zero, which take no room\n",
           given.output, parameter_count(model.config()), bytes_text(bytes));
  if (model.state().tokenizer_sha256.empty())
    print_to(stdout, "warning: {} has no tokenizer that can be read: summarize needs one in {}\n",
             given.model, given.output);
  print_to(stdout, "model.pretrained={} begins a run with its weights\n", shell_word(given.output));
  return ExitCode::kOk;
}

}  // namespace

void add_checkpoint_import(Verb& checkpoint) {
  Verb verb = checkpoint.verb("import", "makes a checkpoint of a model of Hugging Face");
  const auto given = std::make_shared<ImportArguments>();
  verb.path("MODEL", given->model, "a directory with config.json and weights").required();
  verb.path("OUT", given->output, "a directory to make, as that of a run").required();
  verb.flag("--json", given->json, "one JSON document");
  verb.add_details(
      "Training does not need it: model.pretrained takes MODEL itself. A checkpoint has hashes of all its "
      "bytes, and\nits weights are float32.");
  verb.set_example("ripstop checkpoint import models/Llama-2-7b-hf imported/llama2-7b");
  verb.set_action([given] { return import_checkpoint(*given); });
}

}  // namespace ripstop
