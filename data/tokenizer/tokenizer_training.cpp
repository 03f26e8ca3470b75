#include <sentencepiece_trainer.h>

#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/files/hash.h"
#include "data/text/hash_set.h"
#include "data/text/utf8.h"
#include "data/tokenizer/tokenizer.h"
#include "model/core/error.h"
#include "model/core/number.h"
#include "model/core/one_line.h"

namespace ripstop {
namespace {

constexpr int64_t kFewestPieces = 300;       // bytes, control tokens, and some letters
constexpr int64_t kPiecesWithoutText = 259;  // bytes and control tokens
/// Up to this bound on pieces, a refusal names the largest possible size. The trainer finds it by making all
/// merges, in a second or two.
constexpr int64_t kMostToCount = 32'000;
/// Longer lines are cut, at a space if there is one: the trainer crashes at words of 32,768 letters.
constexpr size_t kMostLineBytes = 32'000;

class LineIterator final : public sentencepiece::SentenceIterator {
 public:
  explicit LineIterator(const std::vector<std::string>& lines) : lines_(lines) {}
  bool done() const override { return at_ == lines_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return lines_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& lines_;
  size_t at_ = 0;
};

struct WordBound {
  int64_t words = 0;                          ///< different words in the lines
  int64_t pieces = kPiecesWithoutText + 128;  ///< upper bound on pieces; 128 for ASCII
};

/// Bounds the number of pieces: each merge inside a word makes at most one piece. A word of n bytes has at
/// most n merges with the space before it, n - 1 without; a run of n spaces has at most n - 1.
WordBound bound_words(const std::vector<std::string>& lines) {
  HashSet seen;
  WordBound bound;
  for (const std::string& line : lines) {
    const char *at = line.data(), *const end = at + line.size();
    while (at != end) {
      const bool space = *at == ' ';
      const char* const next = std::find_if(at, end, [&](char c) { return (c == ' ') != space; });
      if (seen.insert(hash64(at, next - at))) {
        bound.words += !space;
        bound.pieces += 2 * (next - at);
      }
      at = next;
    }
  }
  return bound;
}

/// The number after `before` in `text`; nullopt if there is none.
std::optional<int64_t> number_after(const std::string& text, std::string_view before) {
  const size_t at = text.find(before);
  if (at == std::string::npos) return std::nullopt;
  const size_t begin = at + before.size();
  return parse_whole_number(text.substr(begin, text.find_first_not_of("0123456789", begin) - begin));
}

sentencepiece::util::Status learn(const std::vector<std::string>& lines, int64_t vocabulary_size,
                                  std::string& model) {
  const std::unordered_map<std::string, std::string> arguments = {
      {"model_type", "bpe"},
      {"vocab_size", std::to_string(vocabulary_size)},
      // LLaMA-2's options. Without normalization, decode() returns the text that was encoded.
      {"byte_fallback", "true"},
      {"split_digits", "true"},
      {"allow_whitespace_only_pieces", "true"},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"add_dummy_prefix", "true"},
      {"character_coverage", "0.99995"},
      // The default of 4,192 bytes would skip long lines. The model's bytes hold this number.
      {"max_sentence_length", "1048576"},
      {"num_threads", "1"},
      {"unk_id", "0"},
      {"bos_id", "1"},
      {"eos_id", "2"},
      {"pad_id", "-1"},
      {"minloglevel", "3"}};
  LineIterator iterator(lines);
  return sentencepiece::SentencePieceTrainer::Train(arguments, &iterator, &model);
}

/// The largest possible size, which the trainer names when it refuses a larger one; nullopt if it names none.
std::optional<int64_t> most_pieces(const sentencepiece::util::Status& status) {
  return number_after(status.ToString(), "value <= ");
}

[[noreturn]] void refuse_large(int64_t vocabulary_size, int64_t most) {
  if (most < kFewestPieces) {
    throw Error(
        ExitCode::kUsage,
        fmt::format("cannot train a tokenizer: the text gives at most {} pieces, at least {} are needed",
                    most, kFewestPieces),
        "give more text, or --tokenizer FILE");
  }
  throw Error(
      ExitCode::kUsage,
      fmt::format("cannot train a tokenizer of {} pieces: the text gives at most {}", vocabulary_size, most),
      fmt::format("--vocab-size {} or less, or more text", most));
}

/// Throws Error(kUsage) for too few different words, which the trainer would notice only after all merges.
[[noreturn]] void refuse_few_words(const std::vector<std::string>& lines, const WordBound& bound,
                                   int64_t vocabulary_size) {
  if (bound.pieces <= kMostToCount) {
    std::string ignored;
    const auto status = learn(lines, bound.pieces, ignored);
    if (const auto most = status.ok() ? bound.pieces : most_pieces(status))
      refuse_large(vocabulary_size, *most);
  }
  throw Error(ExitCode::kUsage,
              fmt::format("cannot train a tokenizer of {} pieces: the text's {} different words are too few",
                          vocabulary_size, bound.words),
              "a smaller --vocab-size (8000 is usual for a language), or more text");
}

/// Throws Error(kUsage). Usual refusals get our words, as the trainer names source files and its options.
[[noreturn]] void refuse(const sentencepiece::util::Status& status, int64_t vocabulary_size) {
  if (const auto most = most_pieces(status)) refuse_large(vocabulary_size, *most);
  const std::string text = in_one_line(status.ToString());
  if (const auto fewest = number_after(text, fmt::format("{} vs ", vocabulary_size))) {
    throw Error(ExitCode::kUsage,
                fmt::format("cannot train a tokenizer of {} pieces: the text's letters alone take {}",
                            vocabulary_size, *fewest),
                fmt::format("--vocab-size {} is the least for this text, twice that is better", *fewest));
  }
  throw Error(ExitCode::kUsage,
              fmt::format("cannot train a tokenizer of {} pieces: {}", vocabulary_size, text),
              "another --vocab-size, or more text");
}

}  // namespace

void check_vocabulary_size(int64_t vocabulary_size) {
  if (vocabulary_size >= kFewestPieces && vocabulary_size <= kLargestVocabulary) return;
  throw Error(ExitCode::kUsage,
              fmt::format("a vocabulary of {} pieces: {} to {} are possible", vocabulary_size, kFewestPieces,
                          kLargestVocabulary),
              "--vocab-size 8000 is usual for a language");
}

std::string train_tokenizer(const std::function<bool(std::string&)>& next_line, int64_t vocabulary_size) {
  check_vocabulary_size(vocabulary_size);
  std::vector<std::string> lines;
  for (std::string line; next_line(line);) {
    std::string_view rest = line;
    while (rest.size() > kMostLineBytes) {
      // Without the space, because the trainer puts one before each line: so the words stay the same.
      const size_t space = rest.substr(0, kMostLineBytes).rfind(' ');
      const bool cuts_word = space == rest.npos || space == 0;
      const size_t end = cuts_word ? character_begin(rest, kMostLineBytes) : space;
      lines.emplace_back(rest.substr(0, end));
      rest.remove_prefix(cuts_word ? end : end + 1);
    }
    lines.emplace_back(rest);
  }
  if (const WordBound bound = bound_words(lines); bound.pieces < vocabulary_size)
    refuse_few_words(lines, bound, vocabulary_size);
  std::string model;
  const auto status = learn(lines, vocabulary_size, model);
  if (!status.ok()) refuse(status, vocabulary_size);
  return model;
}

}  // namespace ripstop
