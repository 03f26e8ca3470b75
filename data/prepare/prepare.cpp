#include "data/prepare/prepare.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "data/chat/chat_template.h"
#include "data/chat/encode_conversation.h"
#include "data/corpus/corpus_names.h"
#include "data/dataset/conversation_example.h"
#include "data/dataset/prompt_template.h"
#include "data/dataset/token_dataset_writer.h"
#include "data/files/hash.h"
#include "data/files/whole_file.h"
#include "data/prepare/encode_pool.h"
#include "data/prepare/length_histogram.h"
#include "data/prepare/prepare_checks.h"
#include "data/prepare/prepare_json.h"
#include "data/process/child_process.h"
#include "data/process/partial_directory.h"
#include "data/text/hash_set.h"
#include "data/text/utf8.h"
#include "data/tokenizer/special_names.h"
#include "data/tokenizer/text_sample.h"
#include "data/tokenizer/tokenizer.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

/// Maximum size of the sample on which a tokenizer is trained.
constexpr int64_t kSampleBytes = int64_t{32} << 20;

struct Fault {
  Skip skip;
  std::string_view why;
};
constexpr Fault kEmptyDocument{Skip::kEmpty, "the document is empty or null"};
constexpr Fault kNoAnswer{Skip::kNoAnswer, "no turn of the assistant counts that has a text"};

/// The place of an example: "FILE:LINE", "FILE" if it has no line number, or its id if it has no file.
std::string place_of(const CorpusExample& example) {
  const std::string& file = example.file.empty() ? example.id : example.file;
  return example.line > 0 ? fmt::format("{}:{}", file, example.line) : file;
}

/// place_of(example), then the fault. `refusal`: EncodedExample::refusal.
std::string describe(const CorpusExample& example, const Fault& fault, const std::string& refusal = "") {
  return fmt::format("{}: {}{}", place_of(example), fault.why,
                     fault.skip == Skip::kNotText ? example.not_text : refusal);
}

/// Whether `c` is an ASCII control character other than tab, LF and CR. Bad conversions leave them in texts.
bool is_control(unsigned char c) {
  return (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f;
}

/// Calls body(text, is_answer) for each text of the example.
template <class Body>
void for_texts(const CorpusExample& example, Body body) {
  for (const Message& turn : example.conversation) body(turn.content, turn.role == Role::kAssistant);
  if (!example.conversation.empty()) return;
  body(example.document, false);
  body(example.summary, true);
}

/// The fault that the example shows before it is encoded; nullopt if there is none.
std::optional<Fault> fault_of(const CorpusExample& example, ExampleKind kind) {
  if (example.invalid_utf8) return Fault{Skip::kInvalidUtf8, "not valid UTF-8"};
  bool has_nul = example.id.find('\0') != std::string::npos;
  for_texts(example, [&](const std::string& text, bool) { has_nul |= text.find('\0') != std::string::npos; });
  if (has_nul) return Fault{Skip::kNul, "has a NUL byte"};
  if (!example.not_text.empty())
    return Fault{Skip::kNotText, "tools and parts other than text are not read: "};
  if (kind == ExampleKind::kConversation) {
    const auto answers = [](const Message& turn) {
      return turn.role == Role::kAssistant && turn.counts && !strip(turn.content).empty();
    };
    if (std::ranges::none_of(example.conversation, answers)) return kNoAnswer;
    return std::nullopt;
  }
  if (strip(example.document).empty()) return kEmptyDocument;
  if (kind == ExampleKind::kSummary && strip(example.summary).empty())
    return Fault{Skip::kEmpty, "the summary is empty or null"};
  return std::nullopt;
}

struct SplitState {
  std::optional<TokenDatasetWriter> writer;
  SplitReport report;
  LengthHistogram documents, summaries, examples;
};

class Preparation {
 public:
  explicit Preparation(const PrepareOptions& options)
      : options_(options),
        template_(!options.prompt_template.empty() ? options.prompt_template
                  : options.chat_template.empty()  ? std::string(kDefaultTemplate)
                                                   : std::string(kDefaultChatPrompt)) {}

  PrepareReport run();

 private:
  void note(const std::string& text) const {
    if (options_.note) options_.note(text);
  }
  bool stop_requested() const { return options_.stop_requested && options_.stop_requested(); }
  void check_stop() const {
    if (stop_requested()) throw PrepareStopped{};
  }
  ExampleKind kind() const {
    if (report_.source.kind == SourceKind::kMessages) return ExampleKind::kConversation;
    return report_.source.kind == SourceKind::kText ? ExampleKind::kText : ExampleKind::kSummary;
  }
  /// Whether an input is compressed, by its name.
  bool is_packed() const {
    return std::ranges::any_of(report_.source.inputs, [](const std::filesystem::path& path) {
      return path.extension() == ".gz" || path.extension() == ".tgz";
    });
  }
  CorpusCounts read(const std::string& doing, const ExampleSink& sink);
  std::string learn_tokenizer();
  void encode_all(const Tokenizer& tokenizer, const PromptTemplate& prompt,
                  const PartialDirectory& directory);
  void take(EncodedExample& encoded);
  TokenExample encode(const CorpusExample& source, const Tokenizer& tokenizer,
                      const PromptTemplate& prompt) const;
  void skip(const CorpusExample& example, const Fault& fault, const std::string& refusal);
  void note_special_names() const;

  const PrepareOptions& options_;
  std::string template_;
  PrepareReport report_;
  std::array<SplitState, kSplits> splits_;
  HashSet seen_;
  int64_t begin_tokens_ = 1;
  int64_t documents_with_names_ = 0, summaries_with_names_ = 0;  // how many have names of special tokens
  std::string first_name_;                                       // the first name found: "FILE:LINE: </s>"
  std::string how_read_;                                         // how names are read: as tokens or as text
  std::string only_last_;                                        // TokenExample::why_only_last of any example
};

/// Reads the corpus once and reports progress. Throws PrepareStopped if a stop was requested.
CorpusCounts Preparation::read(const std::string& doing, const ExampleSink& sink) {
  CorpusProgress position;
  const std::string unit(progress_unit(report_.source));
  int64_t examples = 0;
  const auto tell = [&] {
    if (options_.progress) options_.progress({doing, unit, position.done, position.total});
  };
  const CorpusCounts counts = read_corpus(report_.source, position, [&](CorpusExample& example) {
    check_stop();
    if (++examples % 256 == 0) tell();
    sink(example);
  });
  position.done = position.total;
  tell();
  return counts;
}

/// "74 bytes", "19.7 KiB", "32.0 MiB".
std::string size_text(int64_t bytes) {
  if (bytes < 1 << 10) return fmt::format("{} bytes", bytes);
  const bool small = bytes < 1 << 20;
  return fmt::format("{:.1f} {}", static_cast<double>(bytes) / (small ? 1 << 10 : 1 << 20),
                     small ? "KiB" : "MiB");
}

/// Trains on the train split, with the separator after the document of each pair. Returns the .model's bytes.
std::string Preparation::learn_tokenizer() {
  const std::string separator = parse_template(template_).separator;
  TextSample sample(kSampleBytes);
  std::string first_fault;
  read(is_packed() ? "reading compressed text for the tokenizer" : "reading text for the tokenizer",
       [&](CorpusExample& example) {
         // The tokenizer must not see texts on which the model is evaluated.
         if (example.split != Split::kTrain) return;
         if (const std::optional<Fault> fault = fault_of(example, kind())) {
           if (first_fault.empty()) first_fault = describe(example, *fault);
           return;
         }
         std::string text;
         for_texts(example, [&](const std::string& each, bool is_answer) {
           if (is_answer && kind() == ExampleKind::kSummary) text += separator + "\n";
           text += each;
           if (kind() == ExampleKind::kConversation) text += "\n";
         });
         sample.add(std::move(text));
       });
  if (sample.empty()) refuse_empty_train(report_.source, first_fault);
  note(fmt::format("learning a tokenizer of {} pieces from {} of text", options_.vocab_size,
                   size_text(sample.bytes())));
  // SentencePiece cannot be interrupted, but a process can be killed.
  const std::optional<std::string> model = run_in_child(
      [&] {
        return train_tokenizer([&](std::string& line) { return sample.next_line(line); },
                               options_.vocab_size);
      },
      [&] { return stop_requested(); });
  if (!model) throw PrepareStopped{};
  return *model;
}

void Preparation::skip(const CorpusExample& example, const Fault& fault, const std::string& refusal) {
  const std::string what = describe(example, fault, refusal);
  if (options_.strict)
    throw Error(ExitCode::kInputData, what, "without --strict such examples are skipped and counted");
  if (report_.first_skipped.empty()) report_.first_skipped = what;
  ++splits_[static_cast<size_t>(example.split)].report.skipped.at(static_cast<size_t>(fault.skip));
}

void Preparation::take(EncodedExample& encoded) {
  const CorpusExample& source = encoded.source;
  std::optional<Fault> fault = fault_of(source, kind());
  if (!fault && encoded.has_long_word) fault = {Skip::kLongWord, "the tokenizer cannot encode it: "};
  if (!fault && !encoded.refusal.empty()) fault = {Skip::kRefused, "the chat template refuses it: "};
  // A template may leave answers without targets or tokens.
  if (!fault && kind() == ExampleKind::kConversation && encoded.tokens.targets() == 0) fault = kNoAnswer;
  // If the tokenizer drops all letters of a text and has no BOS, only EOS is left: there is nothing to learn.
  if (!fault && std::ssize(encoded.tokens.tokens) < 2) fault = kEmptyDocument;
  // Examples arrive in the order of the corpus, so of several equal examples the first stays.
  if (!fault && !seen_.insert(encoded.pair_hash))
    fault = {Skip::kDuplicate, "an earlier example has the same texts"};
  if (fault) {
    skip(source, *fault, encoded.refusal);
    return;
  }
  SplitState& split = splits_[static_cast<size_t>(source.split)];
  const auto tokens = static_cast<int64_t>(encoded.tokens.tokens.size());
  const int64_t targets = encoded.tokens.targets();
  // Scoring needs the texts of validation and test. The texts of train would only enlarge the data set.
  if (source.split == Split::kTrain) {
    split.writer->add(encoded.tokens);
  } else {
    ExampleText text{source.id, source.document, source.summary};
    if (kind() == ExampleKind::kConversation) std::swap(text.document, text.messages);
    split.writer->add(encoded.tokens, &text);
  }
  if (!encoded.tokens.why_only_last.empty()) only_last_ = encoded.tokens.why_only_last;
  split.report.targets += targets;
  split.report.control_characters += encoded.has_control;
  const std::string_view name =
      encoded.name_in_answer.empty() ? encoded.name_in_document : encoded.name_in_answer;
  if (!name.empty() && first_name_.empty()) first_name_ = fmt::format("{}: {}", place_of(source), name);
  documents_with_names_ += !encoded.name_in_document.empty();
  summaries_with_names_ += !encoded.name_in_answer.empty();
  const TargetSpan& span = encoded.tokens.spans.back();
  split.documents.add(kind() == ExampleKind::kSummary ? span.cut_end - span.cut_begin
                      : kind() == ExampleKind::kText  ? tokens - begin_tokens_
                                                      : tokens - targets);
  split.summaries.add(kind() == ExampleKind::kText ? 0 : targets - (kind() == ExampleKind::kSummary));
  split.examples.add(tokens);
}

/// Finds in `text` the name of a special token of this tokenizer, else of an end or turn token of another
/// family of models, for which the data may have been made. Returns "" if there is none.
std::string special_name_in(std::string_view text, const SpecialNames& special) {
  std::string name = special.find(text);
  for (const std::string_view other :
       {"</s>", "<eos>", "<|im_end|>", "<|im_start|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>",
        "<|end|>", "<end_of_turn>", "[/INST]"})
    if (name.empty() && text.find(other) != std::string_view::npos) name = other;
  return name;
}

/// Any thread may call. Throws LongWordError, ConversationError; Error(kInputData) for a missing template.
TokenExample Preparation::encode(const CorpusExample& source, const Tokenizer& tokenizer,
                                 const PromptTemplate& prompt) const {
  if (kind() == ExampleKind::kText) return prompt.encode_text(source.document);
  if (kind() == ExampleKind::kSummary) return prompt.encode_pair(source.document, source.summary);
  if (source.is_joined)
    return joined_example(tokenizer, source.conversation[0].content, source.conversation[1].content);
  if (prompt.chat() == nullptr)
    throw Error(ExitCode::kInputData, place_of(source) + ": turns need a chat template, and there is none",
                "--chat-template auto takes the tokenizer's own; texts in prompt and completion need none");
  // Drop the turns behind the last answer that counts: they have no targets, and a template may render that
  // answer in another way if turns follow.
  Conversation turns = source.conversation;
  end_with_answer(turns);
  const EncodedConversation encoded = encode_conversation(*prompt.chat(), tokenizer, turns);
  if (const EncodedTurn& last = encoded.turns.back(); last.target_begin == last.end)
    throw ConversationError("it shows the prompt of the last answer in another way once that follows");
  return conversation_example(encoded);
}

void Preparation::encode_all(const Tokenizer& tokenizer, const PromptTemplate& prompt,
                             const PartialDirectory& directory) {
  for (int s = 0; s < kSplits; ++s) {
    TokenDatasetHeader header;
    header.kind = kind();
    header.vocabulary_size = tokenizer.vocabulary_size();
    header.tokenizer_sha256 = tokenizer.sha256();
    header.begin_tokens = std::ssize(tokenizer.begin());
    header.end_token = tokenizer.eos();
    header.reads_special_tokens = tokenizer.reads_special_tokens();
    header.prompt_template = prompt.text();
    header.separator = prompt.separator();
    header.chat_template = tokenizer.files().choice.chat_template.value_or("");
    header.chat_date = tokenizer.files().choice.chat_date;
    header.with_text = static_cast<Split>(s) != Split::kTrain;
    splits_[static_cast<size_t>(s)].writer.emplace(
        directory / fmt::format("{}.h5", to_string(static_cast<Split>(s))), header);
  }
  const SpecialNames special(tokenizer);
  {
    // The pool's threads end with this scope, before the writers finish.
    EncodePool pool(
        options_.threads,
        [&](EncodedExample& example) {
          const CorpusExample& source = example.source;
          if (fault_of(source, kind())) return;
          try {
            example.tokens = encode(source, tokenizer, prompt);
          } catch (const LongWordError& error) {
            example.has_long_word = true;
            example.refusal = error.what();
            return;
          } catch (const ConversationError& error) {
            example.refusal = error.what();
            return;
          }
          const std::array<uint64_t, 2> hashes{hash64(source.document), hash64(source.summary)};
          example.pair_hash = hash64(hashes.data(), sizeof hashes);
          for_texts(source, [&](const std::string& text, bool is_answer) {
            std::string& name = is_answer ? example.name_in_answer : example.name_in_document;
            if (name.empty()) name = special_name_in(text, special);
            example.has_control |= std::ranges::any_of(text, is_control);
          });
        },
        [&](EncodedExample& example) { take(example); });
    report_.counts = read(is_packed() ? "encoding compressed text" : "encoding",
                          [&](CorpusExample& example) { pool.add(std::move(example)); });
    pool.finish();
  }
  for (int s = 0; s < kSplits; ++s) {
    check_stop();
    SplitState& split = splits_[static_cast<size_t>(s)];
    split.report.examples = split.writer->examples();
    split.report.tokens = split.writer->tokens();
    split.report.content_hash = split.writer->finish();
    split.writer.reset();
    split.report.document_tokens = split.documents.statistics();
    split.report.summary_tokens = split.summaries.statistics();
    split.report.example_tokens = split.examples.statistics();
    report_.splits[static_cast<size_t>(s)] = split.report;
  }
}

/// Notes how many texts contain the name of a special token. Some notebooks append "</s>" to summaries.
void Preparation::note_special_names() const {
  if (first_name_.empty()) return;
  note(fmt::format(
      "{} summaries and {} documents have the name of a special token in them, which is {} and learnt as "
      "such; every example gets its first and last token without that. The first: {}",
      summaries_with_names_, documents_with_names_, how_read_, first_name_));
}

PrepareReport Preparation::run() {
  check_options(options_, template_);
  PartialDirectory directory(posix_io(), options_.output, options_.note);
  std::optional<Tokenizer> tokenizer;
  if (!options_.tokenizer.empty()) {
    tokenizer.emplace(options_.tokenizer, tokenizer_choice(options_));
    tokenizer->eos();  // throws if the end token is not known
    if (const int64_t begin = std::ssize(tokenizer->begin()); begin > kMostBeginTokens)
      fail(ExitCode::kInputData, "{}: each text would begin with {} tokens, at most {} are accepted",
           tokenizer->name(), begin, kMostBeginTokens);
    for (const std::string& text : tokenizer->notes()) note(text);
  }
  report_.source = resolve_source(options_.source);
  check_train_files(options_, report_.source);
  if (kind() == ExampleKind::kText && !options_.chat_template.empty())
    throw Error(ExitCode::kUsage, "--chat-template is for pairs and conversations, the input is running text",
                "leave it out, or give JSON lines with document and summary");
  for (const std::string& text : notes_on(report_.source)) note(text);
  if (!tokenizer) tokenizer.emplace(learn_tokenizer(), "the trained tokenizer");
  const PromptTemplate prompt(*tokenizer, template_);
  report_.tokenizer_sha256 = tokenizer->sha256();
  report_.vocabulary_size = tokenizer->vocabulary_size();
  report_.tokenizer_trained = options_.tokenizer.empty();
  begin_tokens_ = std::ssize(tokenizer->begin());
  for (const auto& [name, bytes] : tokenizer->files().carried)
    create_file(posix_io(), directory / name, bytes);
  const SpecialNames special(*tokenizer);
  how_read_ = special.how_read();
  if (tokenizer->reads_special_tokens()) how_read_ += " if the tokenizer has it, else as text,";
  if (const std::string name = special.find(template_); !name.empty())
    note(fmt::format("the template has the name of a special token, {}, which is {}", name,
                     special.how_read()));
  encode_all(*tokenizer, prompt, directory);
  note_special_names();
  if (!only_last_.empty()) note(only_last_ + ": runs need data.loss_on = \"last\"");
  const auto has_examples = [](const SplitReport& split) { return split.examples > 0; };
  if (std::none_of(report_.splits.begin(), report_.splits.end(), has_examples)) refuse_empty(report_);
  write_prepare_json(directory.path(), options_, template_, tokenizer->files().choice, report_);
  directory.rename_to_output();
  return report_;
}

}  // namespace

SkipCounts PrepareReport::skipped() const {
  SkipCounts sum = {};
  for (const SplitReport& split : splits)
    for (size_t why = 0; why < sum.size(); ++why) sum[why] += split.skipped[why];
  return sum;
}

PrepareReport prepare(const PrepareOptions& options) {
  return Preparation(options).run();
}

}  // namespace ripstop
