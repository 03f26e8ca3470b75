#include "data/tokenizer/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>

#include "data/text/json_reader.h"
#include "data/text/utf8.h"
#include "data/tokenizer/regex_syntax.h"
#include "data/tokenizer/tokenizer.h"

namespace ripstop {
namespace {

using Json = JsonReader::Json;

constexpr int64_t kMostValues = 1'000'000;  // values and keys outside of vocabulary and merges
constexpr size_t kMostTextBytes = size_t{64} << 10;
constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Takes vocabulary and merges out of the document while it is parsed, so that memory stays small. Stores
/// their first fault in `problem` instead of throwing, so that a model of another type is refused first.
class LargeParts {
 public:
  LargeParts(const JsonReader& reader, BpeParts& model) : reader_(reader), model_(model) {}

  std::string problem;  // "" if there is none

  bool take(Json::parse_event_t event, std::span<const std::string> path, const Json& value) {
    using Event = Json::parse_event_t;
    const bool large = path.size() >= 3 && path[0] == "model";
    const bool of_vocabulary = large && path[1] == "vocab", of_merges = large && path[1] == "merges";
    const bool is_part =
        path.size() == 2 && path[0] == "model" && (path[1] == "vocab" || path[1] == "merges");
    if (is_part && event == Event::value && !value.is_null())
      set_problem(fmt::format("'{}' is neither a list nor an object", path[1]));
    if (path.size() == 2 && path[0] == "model" &&
        event == (path[1] == "vocab" ? Event::array_start : Event::object_start))
      set_problem(path[1] == "vocab" ? "'vocab' is a list" : "'merges' is an object");
    if (!of_vocabulary && !of_merges) {
      if (event != Event::object_end && event != Event::array_end && ++values_ > kMostValues)
        reader_.refuse("has more than {} values beside vocabulary and merges", kMostValues);
      return path.size() == 1 && event == Event::key && (path[0] == "truncation" || path[0] == "padding");
    }
    if (of_vocabulary && event == Event::value) take_piece(path, value);
    if (of_merges && event == Event::value) take_merge(path, value);
    if (of_merges && event == Event::array_end) end_pair(path);
    return event != Event::array_start && event != Event::object_start;  // keep the start: its members follow
  }

 private:
  void set_problem(std::string text) {
    if (problem.empty()) problem = std::move(text);
  }
  void take_piece(std::span<const std::string> path, const Json& value) {
    const bool whole = value.is_number_unsigned() && path.size() == 3;
    if (!whole || value.get<uint64_t>() >= static_cast<uint64_t>(kLargestVocabulary))
      return set_problem(fmt::format("the id of the piece '{}' must be a whole number below {}",
                                     begin_of(path[2], 100), kLargestVocabulary));
    if (problem.empty()) model_.vocabulary.emplace_back(path[2], value.get<int64_t>());
  }
  /// Takes a merge "a b", or one element of a merge ["a", "b"].
  void take_merge(std::span<const std::string> path, const Json& value) {
    if (!value.is_string()) return set_problem("a merge must be a text, or a list of two");
    std::string text = value.get<std::string>();
    if (path.size() == 4) {
      pair_.push_back(std::move(text));
    } else if (path.size() == 3 && !text.starts_with("#version")) {
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
        return set_problem(
            fmt::format("merge {} must be two pieces with a space between them", model_.merges.size()));
      pair_ = {text.substr(0, space), text.substr(space + 1)};
      end_pair(path);
    }
  }
  void end_pair(std::span<const std::string> path) {
    if (path.size() != 3 || pair_.size() != 2 || pair_[0].empty() || pair_[1].empty())
      return set_problem(fmt::format("merge {} must be two pieces", model_.merges.size()));
    if (problem.empty()) model_.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
    pair_.clear();
  }

  const JsonReader& reader_;
  BpeParts& model_;
  std::vector<std::string> pair_;
  int64_t values_ = 0;
};

class Components {
 public:
  Components(const JsonReader& reader, TokenizerJson& result) : reader_(reader), result_(result) {}

  void read(const Json& document) {
    read_model(reader_.member(document, "model"));
    if (const Json* added = reader_.find(document, "added_tokens")) read_added(*added);
    if (const Json* json = reader_.find(document, "normalizer")) read_normalizer(*json);
    if (const Json* json = reader_.find(document, "pre_tokenizer")) read_pre_tokenizer(*json);
    if (const Json* json = reader_.find(document, "post_processor")) read_post_processor(*json);
    if (const Json* json = reader_.find(document, "decoder")) read_decoder(*json);
  }

 private:
  std::string type_of(const Json& json, const char* what) const {
    if (!json.is_object()) reader_.refuse("the {} is no object", what);
    return reader_.text(json, "type", 100);
  }
  [[noreturn]] void refuse_type(const char* what, const std::string& type) const {
    reader_.refuse_with("ids might differ from those of the model's own tokenizer, so it is not guessed at",
                        "the {} '{}' is not supported", what, type);
  }
  /// Refuses members that are not in `known`: they might change ids.
  void allow(const Json& json, std::initializer_list<std::string_view> known) const {
    for (const auto& [key, value] : json.items())
      if (key != "type" && std::ranges::find(known, key) == known.end())
        reader_.refuse("'{}' has an unknown member '{}'",
                       json.contains("type") ? json["type"].dump() : "a component", begin_of(key, 100));
  }
  std::string text(const Json& json, const char* key) const {
    return reader_.text(json, key, kMostTextBytes);
  }
  std::string one_letter(const Json& json, const char* key) const {
    const std::string letter = text(json, key);
    if (letter.empty() || sequence_bytes(letter) != letter.size())
      reader_.refuse("'{}' must be one letter", key);
    return letter;
  }
  bool flag_or(const Json& json, const char* key, bool absent) const {
    return reader_.find(json, key) == nullptr ? absent : reader_.flag(json, key);
  }
  int32_t id(const Json& json, const char* what) const {
    if (!json.is_number_unsigned() || json.get<uint64_t>() >= static_cast<uint64_t>(kLargestVocabulary))
      reader_.refuse("the id of {} must be a whole number below {}", what, kLargestVocabulary);
    return json.get<int32_t>();
  }
  template <class Read>
  void for_each_of(const Json& json, const char* key, const Read& read) const {
    allow(json, {key});
    constexpr size_t kMostSteps = 100;
    for (const Json& each : reader_.list(json, key, 0, 1000)) {
      read(each);
      if (result_.normalizer.size() + result_.pre_tokenizer.size() + result_.decoder.size() > kMostSteps)
        reader_.refuse("has more than {} components", kMostSteps);
    }
  }
  /// Compiles `source`; errors of the expression then name the file.
  TextPattern regex(std::string_view source) const {
    try {
      return {std::string(source), Regex(source)};
    } catch (const Error& error) {
      reader_.refuse("{}", error.what());
    }
  }
  TextPattern pattern(const Json& json) const {
    const Json& kind = reader_.member(json, "pattern");
    if (!kind.is_object() || kind.size() != 1 || !(kind.contains("String") || kind.contains("Regex")))
      reader_.refuse("'pattern' must be an object with either 'String' or 'Regex'");
    if (kind.contains("Regex")) return regex(text(kind, "Regex"));
    TextPattern literal{text(kind, "String"), std::nullopt};
    if (literal.source.empty()) reader_.refuse("'pattern' is an empty text");
    return literal;
  }

  void read_model(const Json& json);
  void read_added(const Json& json);
  void read_normalizer(const Json& json);
  void read_pre_tokenizer(const Json& json);
  void read_metaspace(const Json& json);
  void read_post_processor(const Json& json);
  void read_template(const Json& json);
  void read_decoder(const Json& json);

  TextStep replacement(const Json& json) const {
    return {.kind = TextStep::Kind::kReplace, .pattern = pattern(json), .content = text(json, "content")};
  }
  TextStep::Behavior behavior(const Json& json) const {
    const std::string word = reader_.text(json, "behavior", 100);
    constexpr std::array<std::string_view, 5> kWords{"Removed", "Isolated", "MergedWithPrevious",
                                                     "MergedWithNext", "Contiguous"};
    const auto found = std::ranges::find(kWords, word);
    if (found == kWords.end()) reader_.refuse("the behavior '{}' is unknown", word);
    return static_cast<TextStep::Behavior>(found - kWords.begin());
  }
  void add_split(TextPattern pattern, TextStep::Behavior behavior, bool invert = false) {
    result_.pre_tokenizer.push_back({.kind = TextStep::Kind::kSplit,
                                     .pattern = std::move(pattern),
                                     .invert = invert,
                                     .behavior = behavior});
  }
  /// The pieces before which Metaspace puts its letter; nullopt: none.
  std::optional<TextStep::Where> prepend_scheme(const Json& json) const {
    const std::string word = reader_.find(json, "prepend_scheme") ? text(json, "prepend_scheme") : "always";
    if (word != "always" && word != "first" && word != "never")
      reader_.refuse("the prepend_scheme '{}' is unknown", begin_of(word, 100));
    if (!flag_or(json, "add_prefix_space", true) && word != "never")
      reader_.refuse("'add_prefix_space' is false, but 'prepend_scheme' is '{}'", word);
    if (word == "never") return std::nullopt;
    return word == "first" ? TextStep::Where::kFirstUnlessThere : TextStep::Where::kUnlessThere;
  }

  const JsonReader& reader_;
  TokenizerJson& result_;
  bool has_affixes_ = false;  // a post-processor that adds tokens was read
};

void Components::read_model(const Json& json) {
  BpeParts& model = result_.model;
  allow(json, {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
               "byte_fallback", "ignore_merges", "vocab", "merges"});
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (reader_.find(json, key) && !text(json, key).empty())
      reader_.refuse("the model's '{}' is not supported", key);
  if (reader_.find(json, "dropout") && reader_.number(json, "dropout") != 0)
    reader_.refuse("the model's 'dropout' would make ids random");
  model.has_unk = reader_.find(json, "unk_token") != nullptr;
  if (model.has_unk) model.unk_token = text(json, "unk_token");
  model.fuse_unk = flag_or(json, "fuse_unk", false);
  model.byte_fallback = flag_or(json, "byte_fallback", false);
  model.ignore_merges = flag_or(json, "ignore_merges", false);
}

void Components::read_added(const Json& json) {
  if (!json.is_array()) reader_.refuse("'added_tokens' must be a list");
  for (const Json& each : json) {
    if (!each.is_object()) reader_.refuse("an added token is no object");
    allow(each, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token;
    token.content = text(each, "content");
    token.id = id(reader_.member(each, "id"), "an added token");
    token.single_word = reader_.flag(each, "single_word");
    token.lstrip = reader_.flag(each, "lstrip");
    token.rstrip = reader_.flag(each, "rstrip");
    token.normalized = reader_.flag(each, "normalized");
    token.special = reader_.flag(each, "special");
    if (token.content.empty()) continue;  // `tokenizers` skips empty tokens, too
    token.spelling = token.content;
    result_.added.push_back(std::move(token));
  }
}

void Components::read_normalizer(const Json& json) {
  const std::string type = type_of(json, "normalizer");
  if (type == "Sequence")
    return for_each_of(json, "normalizers", [&](const Json& each) { read_normalizer(each); });
  TextStep step;
  constexpr std::array<std::string_view, 4> kForms{"NFC", "NFD", "NFKC", "NFKD"};
  if (const auto form = std::ranges::find(kForms, type); form != kForms.end()) {
    allow(json, {});
    step.form = static_cast<NormalForm>(form - kForms.begin());
  } else if (type == "Lowercase" || type == "ByteLevel") {
    allow(json, {});
    step.kind = type == "Lowercase" ? TextStep::Kind::kLowercase : TextStep::Kind::kByteLetters;
  } else if (type == "Strip") {
    allow(json, {"strip_left", "strip_right"});
    step.kind = TextStep::Kind::kStrip;
    step.left = reader_.flag(json, "strip_left");
    step.right = reader_.flag(json, "strip_right");
  } else if (type == "Prepend") {
    allow(json, {"prepend"});
    step.kind = TextStep::Kind::kPrepend;
    step.content = text(json, "prepend");
  } else if (type == "Replace") {
    allow(json, {"pattern", "content"});
    step = replacement(json);
    // Refused, because some later steps of `tokenizers` skip letters that stand for no part of the text.
    if (step.pattern.regex && step.pattern.regex->matches_empty())
      reader_.refuse("a normalizer that replaces the empty text is not supported");
  } else {
    refuse_type("normalizer", type);
  }
  result_.normalizer.push_back(std::move(step));
}

void Components::read_pre_tokenizer(const Json& json) {
  using Behavior = TextStep::Behavior;
  const std::string type = type_of(json, "pre-tokenizer");
  if (type == "Sequence") {
    for_each_of(json, "pretokenizers", [&](const Json& each) { read_pre_tokenizer(each); });
  } else if (type == "ByteLevel") {
    allow(json, {"add_prefix_space", "trim_offsets", "use_regex"});
    if (reader_.flag(json, "add_prefix_space"))
      result_.pre_tokenizer.push_back(
          {.kind = TextStep::Kind::kPrepend, .where = TextStep::Where::kUnlessThere, .content = " "});
    if (flag_or(json, "use_regex", true)) add_split(regex(kGpt2Words), Behavior::kIsolated);
    result_.pre_tokenizer.push_back({.kind = TextStep::Kind::kByteLetters});
  } else if (type == "Metaspace") {
    read_metaspace(json);
  } else if (type == "Split") {
    allow(json, {"pattern", "behavior", "invert"});
    TextPattern parts = pattern(json);
    // Else the hash would be that of Punctuation or Whitespace, which have these sources.
    if (parts.regex && (parts.source == "punctuation" || parts.source == "words")) parts.source += "(?:)";
    add_split(std::move(parts), behavior(json), reader_.flag(json, "invert"));
  } else if (type == "Digits") {
    allow(json, {"individual_digits"});
    add_split(regex(R"(\p{N})"),
              reader_.flag(json, "individual_digits") ? Behavior::kIsolated : Behavior::kContiguous);
  } else if (type == "Punctuation") {
    allow(json, {"behavior"});
    const std::string letters = punctuation_class();
    add_split({"punctuation", Regex(letters, "punctuation")},
              json.contains("behavior") ? behavior(json) : Behavior::kIsolated);
  } else if (type == "Whitespace") {
    allow(json, {});
    add_split({"words", Regex(fmt::format(R"([{0}]+|[^{0}{1}]+)", kWordSets, kSpaceRanges), "words")},
              Behavior::kRemoved, true);
  } else if (type == "WhitespaceSplit") {
    allow(json, {});
    add_split(regex(R"(\s)"), Behavior::kRemoved);
  } else if (type == "CharDelimiterSplit") {
    allow(json, {"delimiter"});
    add_split({one_letter(json, "delimiter"), std::nullopt}, Behavior::kRemoved);
  } else {
    refuse_type("pre-tokenizer", type);
  }
}

void Components::read_metaspace(const Json& json) {
  allow(json, {"replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep"});
  const std::string letter = one_letter(json, "replacement");
  result_.pre_tokenizer.push_back(
      {.kind = TextStep::Kind::kReplace, .pattern = {" ", std::nullopt}, .content = letter});
  if (const auto where = prepend_scheme(json)) {
    // Refused: the piece that `tokenizers` takes as the first depends on how it traces changed letters.
    if (*where == TextStep::Where::kFirstUnlessThere && !result_.normalizer.empty() &&
        std::ranges::find(result_.pre_tokenizer, TextStep::Kind::kSplit, &TextStep::kind) !=
            result_.pre_tokenizer.end())
      reader_.refuse("a Metaspace with 'first' behind a normalizer and a pre-tokenizer is not supported");
    result_.pre_tokenizer.push_back({.kind = TextStep::Kind::kPrepend, .where = *where, .content = letter});
  }
  if (flag_or(json, "split", true)) add_split({letter, std::nullopt}, TextStep::Behavior::kMergedWithNext);
}

void Components::read_post_processor(const Json& json) {
  const std::string type = type_of(json, "post-processor");
  if (type == "Sequence")
    return for_each_of(json, "processors", [&](const Json& each) { read_post_processor(each); });
  if (type == "ByteLevel") return allow(json, {"add_prefix_space", "trim_offsets", "use_regex"});
  if (type != "TemplateProcessing" && type != "RobertaProcessing" && type != "BertProcessing")
    refuse_type("post-processor", type);
  if (std::exchange(has_affixes_, true)) reader_.refuse("two post-processors add tokens");
  if (type == "TemplateProcessing") return read_template(json);
  allow(json, {"sep", "cls", "trim_offsets", "add_prefix_space"});
  result_.prefix = {id(reader_.list(json, "cls", 2, 2)[1], "'cls'")};
  result_.suffix = {id(reader_.list(json, "sep", 2, 2)[1], "'sep'")};
}

void Components::read_template(const Json& json) {
  allow(json, {"single", "pair", "special_tokens"});
  int texts = 0;
  for (const Json& part : reader_.list(json, "single", 1, 1000)) {
    if (!part.is_object() || part.size() != 1) reader_.refuse("a part of the template is no object");
    if (part.contains("Sequence")) {
      if (reader_.text(part["Sequence"], "id", 100) != "A") reader_.refuse("a template of one text has two");
      ++texts;
      continue;
    }
    const std::string name = text(reader_.member(part, "SpecialToken"), "id");
    const Json& token = reader_.member(reader_.member(json, "special_tokens"), name.c_str());
    for (const Json& each : reader_.list(token, "ids", 0, 1000))
      (texts == 0 ? result_.prefix : result_.suffix).push_back(id(each, "a template's token"));
  }
  if (texts != 1) reader_.refuse("the template of one text has it {} times", texts);
}

void Components::read_decoder(const Json& json) {
  const std::string type = type_of(json, "decoder");
  if (type == "Sequence") return for_each_of(json, "decoders", [&](const Json& each) { read_decoder(each); });
  DecodeStep step;
  if (type == "ByteLevel") {
    allow(json, {"add_prefix_space", "trim_offsets", "use_regex"});
    step.kind = DecodeStep::Kind::kByteLevel;
  } else if (type == "ByteFallback" || type == "Fuse") {
    allow(json, {});
    step.kind = type == "Fuse" ? DecodeStep::Kind::kFuse : DecodeStep::Kind::kByteFallback;
  } else if (type == "Replace") {
    allow(json, {"pattern", "content"});
    TextStep replaces = replacement(json);
    step.kind = DecodeStep::Kind::kReplace;
    step.pattern = std::move(replaces.pattern);
    step.content = std::move(replaces.content);
  } else if (type == "Strip") {
    allow(json, {"content", "start", "stop"});
    step.kind = DecodeStep::Kind::kStrip;
    step.content = one_letter(json, "content");
    step.start = reader_.integer(json, "start", 0, 1000);
    step.stop = reader_.integer(json, "stop", 0, 1000);
  } else if (type == "Metaspace") {
    allow(json, {"replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep"});
    step.kind = DecodeStep::Kind::kMetaspace;
    step.content = one_letter(json, "replacement");
    step.drops_first = prepend_scheme(json).has_value();
  } else {
    refuse_type("decoder", type);
  }
  result_.decoder.push_back(std::move(step));
}

/// Refuses a document that is not a tokenizer.json with a BPE model.
void check_kind(const JsonReader& reader, const Json& document) {
  if (document.contains("config") && document.contains("vocab"))
    reader.refuse_with("give a tokenizer.json made from it: the model's Hugging Face directory may have one",
                       "is a tekken.json, which is not supported");
  if (!document.contains("model") || !document["model"].is_object())
    reader.refuse("has no 'model': it is no tokenizer.json");
  if (reader.find(document, "version") && reader.text(document, "version", 100) != "1.0")
    reader.refuse("has the version '{}', 1.0 is supported", reader.text(document, "version", 100));
  const Json& model = document["model"];
  // Files of the first versions of `tokenizers` do not name the type.
  const std::string type = reader.find(model, "type") ? reader.text(model, "type", 100)
                           : model.contains("merges") ? "BPE"
                                                      : "?";
  if (type != "BPE")
    reader.refuse_with("BPE is; a SentencePiece tokenizer.model is, too, if the model has one",
                       "a model of the type '{}' is not supported", type);
  for (const char* key : {"vocab", "merges"})
    if (!model.contains(key) || model[key].is_null()) reader.refuse("the model has no '{}'", key);
}

}  // namespace

TokenizerJson read_tokenizer_json(std::string_view json, const std::string& name) {
  const JsonReader reader(name, ExitCode::kInputData);
  if (std::ssize(json) > kMostTokenizerBytes)
    reader.refuse("{} bytes, at most {} are accepted", json.size(), kMostTokenizerBytes);
  TokenizerJson result;
  LargeParts large(reader, result.model);
  const Json document = reader.parse(json, JsonReader::kMostLevels,
                                     [&](Json::parse_event_t event, std::span<const std::string> path,
                                         const Json& value) { return large.take(event, path, value); });
  check_kind(reader, document);
  if (!large.problem.empty()) reader.refuse("{}", large.problem);
  if (result.model.vocabulary.empty()) reader.refuse("the vocabulary is empty");
  Components(reader, result).read(document);
  return result;
}

}  // namespace ripstop
