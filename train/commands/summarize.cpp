#include <fmt/core.h>

#include <cstdio>
#include <optional>
#include <utility>

#include "data/dataset/dataset_directory.h"
#include "data/dataset/prompt_template.h"
#include "data/files/directory.h"
#include "data/files/whole_file.h"
#include "data/text/utf8.h"
#include "data/tokenizer/special_names.h"
#include "parallel/agreement.h"
#include "train/commands/commands.h"
#include "train/commands/end_failed.h"
#include "train/commands/model_arguments.h"
#include "train/exchange/hugging_face/generation_file.h"
#include "train/exchange/hugging_face/model_tokenizer.h"
#include "train/generate/document_lines.h"
#include "train/generate/loaded_model.h"
#include "train/generate/write_texts.h"
#include "train/report/human_text.h"
#include "train/report/live_line.h"
#include "train/report/standard_streams.h"
#include "train/report/terminal.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

struct SummarizeArguments {
  ModelArguments model;
  std::string input = "-";
  std::string output = "-";
  std::string prompt_template;
  std::string tokenizer;  ///< --tokenizer; empty: the run's own
  bool force = false;
};

/// Reads documents from a file or standard input. A bad line of a file is reported before the model is
/// loaded, not after hours of work.
class DocumentInput {
 public:
  /// `path` may be "-", standard input. Checks all lines of a file, but only the first document of standard
  /// input or a pipe, which can be read only once.
  DocumentInput(const std::string& path, const Questions* questions)
      : questions_(questions),
        is_live_(path == "-" && terminal_of(stdin).is_terminal),
        lines_(announced(path)) {
    if (path == "-" || !fs::is_regular_file(path)) {
      first_ = next_document(lines_, questions_);
      return;
    }
    if (is_plain_text(path)) {
      first_ = whole_document(lines_, questions_);
      total_ = 1;
      return;
    }
    TextLines all(path);
    while (next_document(all, questions_)) ++total_;
  }

  /// Whether a person types the documents.
  bool is_live() const { return is_live_; }
  /// The number of documents; 0: not known.
  int64_t total() const { return total_; }

  /// The next documents, at most `most`; empty at the end.
  std::vector<DocumentLine> next(int64_t most) {
    std::vector<DocumentLine> read;
    if (first_) read.push_back(*std::exchange(first_, std::nullopt));
    while (std::ssize(read) < most) {
      std::optional<DocumentLine> line = next_document(lines_, questions_);
      if (!line) break;
      read.push_back(std::move(*line));
    }
    return read;
  }

 private:
  // Returns `path`. First tells a person what to type, because a silent program seems to hang.
  const std::string& announced(const std::string& path) const {
    if (is_live_)
      print_to(stderr,
               "reading {} from standard input, one JSON object a line: {{\"{}\": \"...\"}} "
               "(Ctrl-D ends; --input FILE reads a file)\n",
               is_asked() ? "questions" : "documents",
               is_asked() && questions_->chat == nullptr ? "prompt" : "document");
    return path;
  }

  bool is_asked() const { return questions_ != nullptr && questions_->takes_documents; }

  const Questions* questions_;  // null: all lines are documents
  bool is_live_;
  TextLines lines_;
  std::optional<DocumentLine> first_;
  int64_t total_ = 0;
};

// The prompt template: --template if given, else the run's copy, the exported model's, or the data set's.
std::string template_of(const TrainedModel& trained, const Tokenizer& tokenizer, const std::string& given) {
  if (!given.empty()) return given;
  const fs::path copy = trained.run / "prompt_template.txt";
  if (fs::exists(copy)) return read_plain_file(copy, 1 << 20, ExitCode::kInputData);
  if (trained.stored.is_pretrained())
    if (std::optional<ExportedPrompt> prompt = read_prompt_json(trained.run))
      return std::move(prompt->prompt_template);
  for (const char* split : {"test.h5", "validation.h5", "train.h5"}) {
    const fs::path data = fs::path(trained.config.data.first()) / split;
    if (!fs::exists(data)) continue;
    const TokenDataset dataset(data);
    // Throws if this directory now has a data set of another tokenizer, perhaps with another prompt.
    require_dataset_tokenizer(dataset, tokenizer);
    return dataset.header().prompt_template;
  }
  throw Error(ExitCode::kUsage,
              fmt::format("{} does not say which prompt it was trained on", trained.run.string()),
              fmt::format("give --template, e.g. '{}'", "{document}\\n\\nTL;DR:"));
}

Tokenizer open_tokenizer(const TrainedModel& trained, const std::string& given) {
  if (given.empty() && !has_tokenizer(trained.run))
    throw Error(ExitCode::kInputData, fmt::format("{} has {}", trained.run.string(), kNoTokenizer),
                "give the one that the model was trained with: --tokenizer FILE, or a directory that has it");
  return given.empty() ? Tokenizer(trained.run) : Tokenizer(given, read_tokenizer_choice(trained.run));
}

// Throws if the model was not trained with the tokenizer, because its ids would mean other words. Sets `note`
// if that could not be fully checked.
Tokenizer tokenizer_of(const TrainedModel& trained, const std::string& given, std::string& note) {
  Tokenizer tokenizer = open_tokenizer(trained, given);
  std::string remedy = "put the tokenizer of its data set there, or give it with --tokenizer";
  if (!given.empty()) remedy = "give the file that the model was trained with";
  if (!given.empty() && has_tokenizer(trained.run))
    remedy = fmt::format("leave --tokenizer out: {} has the model's own", trained.run.string());
  note = compare_tokenizers({.model = trained.stored.directory(),
                             .model_sha256 = trained.state().tokenizer_sha256,
                             .model_ids = trained.state().model.vocab_size,
                             .user = tokenizer.name(),
                             .remedy = remedy},
                            tokenizer);
  return tokenizer;
}

// Each replica summarizes a share of rank 0's documents.
struct Summarizer {
  MpiWorld& launch;
  double patience_seconds;  ///< the deadline while the ranks wait for rank 0's documents
  InferenceModel& model;
  const Tokenizer& tokenizer;
  const PromptTemplate& prompt;     ///< prompt of documents
  const PromptTemplate& questions;  ///< prompt of lines with DocumentLine::is_question
  const GenerationSettings& settings;
  int64_t done = 0;  ///< documents of earlier calls of run()

  /// The first character of a text sent to other ranks tells its kind.
  static constexpr char kQuestion = '?', kDocument = '=';

  /// The summaries of rank 0's `lines` in order, on all ranks; empty without lines. Collective.
  std::vector<WrittenText> run(const std::vector<DocumentLine>& lines) {
    std::vector<std::string> documents;
    for (const DocumentLine& line : lines)
      documents.push_back((line.is_question ? kQuestion : kDocument) + line.document);
    Communicator& world = model.model().mesh().world();
    launch.set_deadline(patience_seconds);
    const std::vector<std::string> all = gather_dealt(world, /*tensor=*/world.size(), documents);
    launch.set_deadline(MpiOptions().deadline_seconds);
    const int64_t first = std::exchange(done, done + std::ssize(all));
    return write_dealt_texts(model, tokenizer, settings, std::ssize(all), [&](int64_t i) {
      return DocumentPrompt{encode(all[static_cast<size_t>(i)]), first + i};
    });
  }

  /// The prompt of a text from run(). Cuts the text to 64 KiB if it has a word too long for the tokenizer.
  EncodedPrompt encode(const std::string& document) const {
    std::optional<ReadConversation> question;
    std::string text = document.substr(1);
    if (document.front() == kQuestion) {
      question = read_question(JsonReader("a question", ExitCode::kInputData), JsonReader::Json::parse(text));
      text = question->turns.back().content;
    }
    const auto encoded = [&] {
      if (!question) return prompt.encode(text);
      question->turns.back().content = text;
      return questions.encode_question(*question, model.options().context - settings.max_new_tokens);
    };
    try {
      return encoded();
    } catch (const LongWordError&) {
      constexpr size_t kMostBytes = size_t{1} << 16;
      if (text.size() <= kMostBytes) throw;
      text.resize(character_begin(text, kMostBytes));
      return encoded();
    }
  }
};

/// Writes `line` to `file`, or to standard output if `file` is nullopt.
void write_line(const std::string& line, std::optional<SummaryFile>& file) {
  if (file) return file->append(line);
  print_out("{}\n", line);
  // Flushes at once, because a reader may wait for the line. Ends the process if the reader is gone.
  require_output();
}

/// Summarizes batches of documents until rank 0 has no more. Only rank 0 has `input` and, if the output is a
/// file, `output`. Collective.
void summarize_all(Summarizer& summarizer, std::optional<DocumentInput>& input,
                   std::optional<SummaryFile>& output, int64_t at_once) {
  Progress progress(stderr);
  int64_t cut = 0, empty = 0, with_names = 0;
  const SpecialNames special(summarizer.tokenizer);
  const auto show = [&] { progress.update("summarize", "document", summarizer.done, input->total()); };
  if (input) show();
  while (true) {
    std::vector<DocumentLine> read;
    // Reads one document at a time from a person, who waits for each summary.
    if (input) read = input->next(input->is_live() ? 1 : at_once);
    const std::vector<WrittenText> summaries = summarizer.run(read);
    // `summaries` is equal on all ranks, so all leave the loop together.
    if (summaries.empty()) break;
    // Clears the progress line, because the summaries may go to its terminal.
    progress.clear();
    for (size_t i = 0; i < read.size(); ++i) {
      const auto& [text, cut_tokens, at_limit] = summaries[i];
      write_line(with_summary(read[i].line, text, cut_tokens), output);
      if (cut_tokens > 0) ++cut;
      if (read[i].document.empty()) ++empty;
      if (!special.find(read[i].document).empty() &&
          (!read[i].is_question || &summarizer.prompt == &summarizer.questions))
        ++with_names;
    }
    if (input && !input->is_live()) show();
  }
  if (!input) return;
  progress.finish();
  const std::string all = counted(summarizer.done, "document");
  if (cut > 0)
    print_to(stderr, "{} of {} cut to fit the context of {} tokens beside {}\n", cut, all,
             summarizer.model.options().context, counted(summarizer.settings.max_new_tokens, "new token"));
  if (empty > 0) print_to(stderr, "{} of {} empty or null: their summaries are of nothing\n", empty, all);
  if (with_names > 0)
    print_to(stderr, "note: {} of {} with the name of a special token, which is {}\n", with_names, all,
             special.how_read());
  if (output) output->finish();
}

// Throws if input and output are one file, because writing summaries would destroy the documents there.
void refuse_same_file(const SummarizeArguments& given) {
  std::error_code ignored;
  if (given.output != "-" && fs::equivalent(given.input, given.output, ignored))
    throw Error(ExitCode::kUsage, fmt::format("--input and --output are the same file, {}", given.output),
                "give --output another name, as summaries.jsonl");
}

void summarize(MpiWorld& world, const SummarizeArguments& given) {
  Io io;
  refuse_same_file(given);
  // The order matters: a wrong run is refused before a person is asked to type documents, and a wrong file
  // before the weights are loaded.
  TrainedModel trained = given.model.find(io, world.communicator(), /*reads_generation_file=*/true);
  std::string note;
  const Tokenizer own = tokenizer_of(trained, given.tokenizer, note);
  print_notes(world.communicator(), {note}, own, trained, /*writes_texts=*/true);
  // Rank 0 decides for all ranks: perhaps only its node has the data set.
  const bool asks = from_rank_0(world.communicator(), [&] {
    return given.prompt_template.empty() && trained_kind(trained) == ExampleKind::kConversation;
  });
  GenerationSettings& settings = trained.config.generation;
  const std::optional<Tokenizer> asked = question_tokenizer(trained.run, own, settings.eos_token_id);
  const Tokenizer& tokenizer = asks && asked ? *asked : own;
  // Questions have no template around them. If all lines are questions, any template will do.
  const PromptTemplate prompt(tokenizer,
                              asks ? std::string(kDefaultTemplate)
                                   : template_of(trained, tokenizer, typed_template(given.prompt_template)));
  std::optional<PromptTemplate> other;
  if (asked && !asks) other.emplace(*asked, std::string(kDefaultTemplate));
  const PromptTemplate& asking = other ? *other : prompt;
  const Questions questions{asking.chat(), asks};
  const SpecialNames special(tokenizer);
  if (const std::string name = special.find(prompt.text()); !name.empty() && world.communicator().rank() == 0)
    print_to(stderr, "note: the template has the name of a special token, {}, which is {}\n", name,
             special.how_read());
  std::optional<DocumentInput> input;
  std::optional<SummaryFile> output;
  // A person or a pipe may be silent for a day. Rank 0 reads, so it waits for nobody that reads.
  const bool waits_for_reader = world.communicator().rank() != 0 && !is_file(given.input);
  const double patience_seconds = waits_for_reader ? 86'400 : MpiOptions().deadline_seconds;
  world.set_deadline(patience_seconds);
  do_on_rank_0(world.communicator(), [&] {
    if (given.output != "-") {
      check_summary_file(given.output, given.force);
      output.emplace(given.output, given.force,
                     [](const std::string& text) { print_to(stderr, "{}\n", text); });
    }
    input.emplace(given.input, asks || other ? &questions : nullptr);
  });
  world.set_deadline(MpiOptions().deadline_seconds);
  const Device device = given.model.choose_rank_device(world, trained);
  LoadedModel model(
      io, world, trained,
      inference_options(trained, device, given.model.batch_size, settings, tokenizer.vocabulary_size()),
      device);
  Summarizer summarizer{world, patience_seconds, model.model(), tokenizer, prompt, asking, settings};
  // Four batches for each replica: enough to keep all replicas busy, few enough to write early.
  summarize_all(summarizer, input, output, 4 * given.model.batch_size * model.mesh().data_ranks());
}

}  // namespace

void add_summarize(CommandLine& line) {
  Verb verb = line.verb("summarize", "summaries of documents, by a trained model");
  const auto given = std::make_shared<SummarizeArguments>();
  given->model.add_to(verb, 16);
  verb.path(
          "--input", given->input,
          "JSONL, {\"document\": \"...\"} a line; or one document of plain text if the name ends with .txt, "
          ".text or .md and the text does not begin with {; both also with .gz; - is JSONL from stdin; for a "
          "model of conversations also messages, conversations or prompt, up to the answer")
      .show_default();
  verb.path("--output", given->output,
            "the same lines with `summary`, and `cut_tokens` where the document lost its end, as plain "
            "text; - is standard output")
      .show_default();
  verb.flag("--force", given->force, "replace the file of --output if it exists");
  verb.option("--template", given->prompt_template,
              "prompt with {document}, \\n is a line feed; default: the one trained on");
  verb.path(
      "--tokenizer", given->tokenizer,
      "the SentencePiece model that the model was trained with, or a directory that has it; default: that of "
      "PATH");
  verb.add_details(
      "Of a model of Hugging Face, settings of its generation_config.json are the defaults of those below. "
      "An export of\nripstop brings its prompt, too.");
  verb.set_example(
      "ripstop summarize runs/xsum --input articles.jsonl --output summaries.jsonl\n"
      "  ripstop summarize runs/xsum --input article.txt");
  verb.set_action([given] {
    MpiWorld world(world_options("summarize"));
    return world.run([&] {
      summarize(world, *given);
      return ExitCode::kOk;
    });
  });
}

}  // namespace ripstop
