#include "data/dataset/token_dataset.h"

#include <algorithm>
#include <cstring>

#include "data/files/hash.h"
#include "data/files/whole_file.h"
#include "data/text/json_reader.h"
#include "model/core/error.h"

namespace ripstop {

std::span<const TextField> text_fields(ExampleKind kind) {
  static constexpr std::array<TextField, 3> kOfPair = {
      {{"id", &ExampleText::id}, {"document", &ExampleText::document}, {"summary", &ExampleText::summary}}};
  static constexpr std::array<TextField, 2> kOfConversation = {
      {{"id", &ExampleText::id}, {"messages", &ExampleText::messages}}};
  if (kind == ExampleKind::kConversation) return kOfConversation;
  return kOfPair;
}

bool are_valid(ExampleKind kind, std::span<const TargetSpan> spans, int64_t count) {
  if (spans.empty()) return false;
  int64_t before = 0;
  for (const TargetSpan& span : spans) {
    const bool ascends = before <= span.cut_begin && span.cut_begin <= span.cut_end &&
                         span.cut_end <= span.target_begin && span.target_begin <= span.target_end &&
                         span.target_end <= count && span.target_begin >= 1;
    if (!ascends) return false;
    before = span.target_end;
  }
  const TargetSpan& first = spans.front();
  return kind == ExampleKind::kConversation ||
         (spans.size() == 1 && first.target_end == count && first.target_begin < count);
}

std::string content_hash(const TokenDatasetHeader& header, std::span<const std::string> parts,
                         const std::string& text_hash) {
  StreamHash hash;
  hash.update(fmt::format("ripstop tokens {}\n{}\n{}\n{}\n{} {} {:d}\n", kTokenDatasetVersion,
                          to_string(header.kind), header.vocabulary_size, header.tokenizer_sha256,
                          header.begin_tokens, header.end_token, header.reads_special_tokens));
  // Hash the lengths, too: a text may contain a line end.
  for (const std::string& text : {header.prompt_template, header.separator, header.chat_template,
                                  header.chat_date, header.why_only_last})
    hash.update(fmt::format("{}:{}\n", text.size(), text));
  for (const std::string& part : parts) hash.update(part + "\n");
  hash.update(text_hash);
  return hash.hex();
}

std::string hash_outside(const InputFile& file, int64_t tokens_offset, int64_t tokens_bytes) {
  StreamHash hash;
  std::string buffer(1 << 20, '\0');
  const auto take = [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t part = std::min<int64_t>(end - begin, 1 << 20);
      file.read_at(begin, buffer.data(), part);
      hash.update(buffer.data(), part);
      begin += part;
    }
  };
  take(0, tokens_offset);
  take(tokens_offset + tokens_bytes, file.bytes());
  return hash.hex();
}

namespace {

template <class T>
std::string hash_of(const std::vector<T>& values) {
  StreamHash hash;
  hash.update(values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
  return hash.hex();
}

/// Compares the file with its entry in the prepare.json beside it, if any. Throws Error(kInputData).
void check_against_prepare_json(const InputFile& file) {
  const std::filesystem::path beside = file.path().parent_path() / "prepare.json";
  std::error_code ignored;
  if (!std::filesystem::exists(beside, ignored)) return;
  const JsonReader reader(beside.string(), ExitCode::kInputData);
  const JsonReader::Json json = reader.parse(read_plain_file(beside, 64 << 20, ExitCode::kInputData));
  const std::string file_name = file.path().filename().string();
  // A file that was copied beside another prepare.json may have no entry there.
  if (!json.contains("files") || !json["files"].contains(file_name)) return;
  const JsonReader::Json& entry = json["files"][file_name];
  const int64_t bytes = reader.integer(entry, "bytes", 0, INT64_MAX);
  const int64_t begin = reader.integer(entry, "tokens_offset", 0, bytes);
  const int64_t length = reader.integer(entry, "tokens_bytes", 0, bytes - begin);
  const std::string expected = reader.text(entry, "hash_outside_tokens", 32);
  if (bytes != file.bytes()) {
    fail(ExitCode::kInputData, "{}: {} bytes, prepare.json says {}", file.path().string(), file.bytes(),
         bytes);
  }
  if (const std::string hash = hash_outside(file, begin, length); hash != expected)
    fail(ExitCode::kInputData,
         "{}: hash {} differs from {} in prepare.json: the file is damaged or was replaced",
         file.path().string(), hash, expected);
}

}  // namespace

TokenDataset::TokenDataset(const std::filesystem::path& path) : path_(path) {
  file_.emplace(path);
  check_against_prepare_json(*file_);  // before libhdf5, which may crash on a damaged file
  Hdf5File hdf5(path);
  read_header(hdf5);
  // The content hash covers the tokens through their blocks' hashes, which read_block() compares.
  const std::vector<std::string> hashes = read_index(hdf5);
  if (const std::string found = ripstop::content_hash(header_, hashes, hdf5.text("text_hash"));
      found != content_hash_)
    fail(ExitCode::kInputData, "{}: content hash {} differs from the {} it states: the file is damaged",
         path_.string(), found, content_hash_);
  // Only text() needs `hdf5` from now on.
  if (header_.with_text) hdf5_.emplace(std::move(hdf5));
}

void TokenDataset::read_header(const Hdf5File& hdf5) {
  const std::string where = path_.string();
  if (!hdf5.has_attribute("format_version")) fail(ExitCode::kInputData, "{}: not a ripstop data set", where);
  if (const int64_t version = hdf5.integer("format_version"); version != kTokenDatasetVersion) {
    throw Error(
        ExitCode::kInputData,
        fmt::format("{}: data set format {}, this program reads {}", where, version, kTokenDatasetVersion),
        version < kTokenDatasetVersion ? "make it again by ripstop prepare" : "");
  }
  const std::string kind = hdf5.text("kind");
  const std::optional<ExampleKind> known = value_of<ExampleKind>(kind);
  if (!known) fail(ExitCode::kInputData, "{}: unknown kind '{}'", where, kind);
  header_.kind = *known;
  header_.vocabulary_size = hdf5.integer("vocabulary_size");
  if (header_.vocabulary_size < 1 || header_.vocabulary_size > INT32_MAX) {
    fail(ExitCode::kInputData, "{}: vocabulary_size is {}", where, header_.vocabulary_size);
  }
  header_.tokenizer_sha256 = hdf5.text("tokenizer_sha256");
  header_.begin_tokens = hdf5.integer("begin_tokens");
  header_.end_token = hdf5.integer("end_token");
  header_.reads_special_tokens = hdf5.integer("reads_special_tokens") != 0;
  if (header_.begin_tokens < 0 || header_.begin_tokens > kMostBeginTokens || header_.end_token < 0 ||
      header_.end_token >= header_.vocabulary_size)
    fail(ExitCode::kInputData, "{}: begin_tokens is {}, end_token is {}", where, header_.begin_tokens,
         header_.end_token);
  header_.prompt_template = hdf5.text("template");
  header_.separator = hdf5.text("separator");
  header_.chat_template = hdf5.text("chat_template");
  header_.chat_date = hdf5.text("chat_date");
  header_.why_only_last = hdf5.text("only_last");
  header_.with_text = hdf5.has_strings("text/id");
  content_hash_ = hdf5.text("content_hash");
}

/// Reads and checks all arrays of the index, which all later code trusts. Returns the arrays' hashes.
std::vector<std::string> TokenDataset::read_index(const Hdf5File& hdf5) {
  std::vector<std::string> hashes;
  const auto read = [&](auto& into, Hdf5Type type = Hdf5Type::kInt64) -> const char* {
    const char* array_name = kIndexArrays[hashes.size()];
    const Hdf5Array& array = hdf5.array(array_name, type);
    into.resize(static_cast<size_t>(array.count));
    file_->read_at(array.offset_bytes, into.data(), array.bytes());
    hashes.push_back(hash_of(into));
    return array_name;
  };
  read(example_offset_);
  check_sizes(hdf5);
  check_examples();
  read(target_offset_);
  const int64_t spans = hdf5.array(kIndexArrays[hashes.size()], Hdf5Type::kInt64).count;
  check_target_offsets(spans);
  spans_.resize(static_cast<size_t>(spans));
  for (int32_t TargetSpan::*member :
       {&TargetSpan::target_begin, &TargetSpan::target_end, &TargetSpan::cut_begin, &TargetSpan::cut_end}) {
    std::vector<int64_t> places;
    const char* array_name = read(places);
    take_places(array_name, places, member);
  }
  read(turn_begin_);
  check_spans();
  read(block_hash_, Hdf5Type::kUint64);
  const int64_t bytes = tokens() * token_bytes_;
  if (hdf5.integer("token_block_bytes") != kTokenBlockBytes ||
      static_cast<int64_t>(block_hash_.size()) != (bytes + kTokenBlockBytes - 1) / kTokenBlockBytes)
    fail(ExitCode::kInputData, "{}: {} block hashes for {} bytes of tokens", path_.string(),
         block_hash_.size(), bytes);
  return hashes;
}

/// Compares the sizes that the attributes state with the arrays.
void TokenDataset::check_sizes(const Hdf5File& hdf5) {
  const std::string where = path_.string();
  token_bytes_ = token_bytes(header_.vocabulary_size);
  const Hdf5Array& tokens = hdf5.array("tokens", token_bytes_ == 2 ? Hdf5Type::kUint16 : Hdf5Type::kInt32);
  tokens_offset_bytes_ = tokens.offset_bytes;
  if (example_offset_.empty() || hdf5.integer("examples") != examples())
    fail(ExitCode::kInputData, "{}: {} offsets for {} examples", where, example_offset_.size(),
         hdf5.integer("examples"));
  if (example_offset_.back() != tokens.count || hdf5.integer("tokens") != tokens.count)
    fail(ExitCode::kInputData, "{}: the index says {} tokens, /tokens has {}", where, example_offset_.back(),
         tokens.count);
  if (!header_.with_text) return;
  for (const TextField& field : text_fields(header_.kind))
    if (hdf5.strings_count(std::string("text/") + field.name) != examples())
      fail(ExitCode::kInputData, "{}: /text/{} does not have {} strings", where, field.name, examples());
}

void TokenDataset::check_examples() const {
  if (example_offset_.front() != 0)
    fail(ExitCode::kInputData, "{}: the first example begins at token {}", path_.string(),
         example_offset_.front());
  for (int64_t i = 0; i < examples(); ++i) {
    const int64_t begin = example_begin(i), end = example_end(i);
    // Compare before subtracting: differences of hostile offsets may overflow. Spans store places as int32.
    if (end <= begin || begin < 0 || end > tokens() || end - begin < 2 || end - begin > INT32_MAX)
      fail(ExitCode::kInputData, "{}: example {} spans tokens {} to {}", path_.string(), i, begin, end);
  }
}

/// `spans`: elements of /target_begin. Keeps the offsets of conversations: other examples have one span each.
void TokenDataset::check_target_offsets(int64_t spans) {
  const std::vector<int64_t>& at = target_offset_;
  if (at.size() != example_offset_.size() || at.front() != 0 || at.back() != spans)
    fail(ExitCode::kInputData, "{}: {} target offsets up to {} for {} examples with {} spans", path_.string(),
         at.size(), at.empty() ? 0 : at.back(), examples(), spans);
  const bool has_one = header_.kind != ExampleKind::kConversation;
  for (size_t i = 0; i + 1 < at.size(); ++i)
    if (at[i + 1] <= at[i] || at[i + 1] > spans || (has_one && at[i + 1] != at[i] + 1))
      fail(ExitCode::kInputData, "{}: example {} has the spans {} to {} of {}", path_.string(), i, at[i],
           at[i + 1], spans);
  if (has_one) target_offset_ = {};
}

/// Stores `places`, one a span, in `member`, counted from the example's first token.
void TokenDataset::take_places(const char* array_name, const std::vector<int64_t>& places,
                               int32_t TargetSpan::*member) {
  if (places.size() != spans_.size())
    fail(ExitCode::kInputData, "{}: /{} has {} elements for {} spans", path_.string(), array_name,
         places.size(), spans_.size());
  for (int64_t i = 0; i < examples(); ++i) {
    const int64_t begin = example_begin(i), end = example_end(i);
    const auto first = static_cast<size_t>(spans(i).data() - spans_.data());
    for (size_t k = first; k < first + spans(i).size(); ++k) {
      if (places[k] < begin || places[k] > end)
        fail(ExitCode::kInputData, "{}: example {} at tokens {} to {} has {} {}", path_.string(), i, begin,
             end, array_name, places[k]);
      spans_[k].*member = static_cast<int32_t>(places[k] - begin);
    }
  }
}

void TokenDataset::check_spans() const {
  for (size_t i = 0; i < turn_begin_.size(); ++i)
    if (turn_begin_[i] < (i == 0 ? 0 : turn_begin_[i - 1] + 1) || turn_begin_[i] >= tokens())
      fail(ExitCode::kInputData, "{}: turn {} begins at token {}", path_.string(), i, turn_begin_[i]);
  for (int64_t i = 0; i < examples(); ++i) {
    const TargetSpan& first = spans(i).front();
    if (!are_valid(header_.kind, spans(i), example_end(i) - example_begin(i)) || head(i) > first.cut_begin)
      fail(ExitCode::kInputData,
           "{}: example {} at tokens {} to {} has targets or what may be cut in a wrong order, first at {}",
           path_.string(), i, example_begin(i), example_end(i), example_begin(i) + first.target_begin);
  }
}

std::span<const TargetSpan> TokenDataset::spans(int64_t example) const {
  const auto at = static_cast<size_t>(example);
  if (target_offset_.empty()) return {&spans_[at], 1};
  return {spans_.data() + target_offset_[at], spans_.data() + target_offset_[at + 1]};
}

int64_t TokenDataset::turns(int64_t begin, int64_t end) const {
  const auto first = std::ranges::lower_bound(turn_begin_, begin);
  return std::lower_bound(first, turn_begin_.end(), end) - first;
}

int64_t TokenDataset::head(int64_t example) const {
  const auto first = std::ranges::lower_bound(turn_begin_, example_begin(example));
  return first == turn_begin_.end() || *first >= example_end(example) ? 0 : *first - example_begin(example);
}

void TokenDataset::read_block(int64_t block, std::string& bytes) const {
  const int64_t first = block * kTokenBlockBytes;
  bytes.resize(static_cast<size_t>(std::min(kTokenBlockBytes, tokens() * token_bytes_ - first)));
  file_->read_at(tokens_offset_bytes_ + first, bytes.data(), static_cast<int64_t>(bytes.size()));
  if (hash64(bytes.data(), static_cast<int64_t>(bytes.size())) != block_hash_[static_cast<size_t>(block)]) {
    fail(ExitCode::kInputData, "{}: block {} of its tokens is damaged (its hash differs)", path_.string(),
         block);
  }
}

void TokenDataset::read_tokens(int64_t begin, int64_t end, int32_t* out) const {
  RIPSTOP_CHECK(begin >= 0 && begin <= end && end <= tokens(), "tokens {} to {} of {}", begin, end, tokens());
  const int64_t per_block = kTokenBlockBytes / token_bytes_;
  std::string bytes;
  for (int64_t at = begin; at < end;) {
    const int64_t block = at / per_block, stop = std::min(end, (block + 1) * per_block);
    read_block(block, bytes);
    for (; at < stop; ++at, ++out) {
      *out = 0;  // machine and file are both little-endian
      std::memcpy(out, bytes.data() + (at - block * per_block) * token_bytes_,
                  static_cast<size_t>(token_bytes_));
      // The writer may have hashed a wrong id, for which the embedding would read outside its table.
      if (*out < 0 || *out >= header_.vocabulary_size) {
        fail(ExitCode::kInputData, "{}: token {} at place {}, the vocabulary has {}", path_.string(), *out,
             at, header_.vocabulary_size);
      }
    }
  }
}

std::vector<ExampleText> TokenDataset::text(int64_t first, int64_t count) const {
  if (!header_.with_text) {
    fail(ExitCode::kInputData, "{}: has no text, only tokens; use the validation or test file",
         path_.string());
  }
  std::vector<ExampleText> texts(static_cast<size_t>(count));
  for (const auto& [name, member] : text_fields(header_.kind)) {
    auto values = hdf5_->strings(std::string("text/") + name, first, count);
    for (size_t i = 0; i < values.size(); ++i) texts[i].*member = std::move(values[i]);
  }
  return texts;
}

}  // namespace ripstop
