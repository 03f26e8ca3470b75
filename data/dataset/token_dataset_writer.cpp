#include "data/dataset/token_dataset_writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "data/files/file.h"
#include "data/files/hash.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

/// Reads through a buffer, because a spool file may be larger than memory.
class SpoolReader {
 public:
  explicit SpoolReader(const std::filesystem::path& path) : file_(path, ExitCode::kStorage) {}
  void read(void* out, int64_t bytes) {
    char* to = static_cast<char*>(out);
    while (bytes > 0) {
      if (at_ == static_cast<int64_t>(buffer_.size())) refill();
      const int64_t part = std::min(bytes, static_cast<int64_t>(buffer_.size()) - at_);
      std::memcpy(to, buffer_.data() + at_, static_cast<size_t>(part));
      at_ += part, to += part, bytes -= part;
    }
  }

 private:
  void refill() {
    buffer_.resize(static_cast<size_t>(std::min<int64_t>(1 << 18, file_.bytes() - position_)));
    RIPSTOP_CHECK(!buffer_.empty(), "{} ends early", file_.path().string());
    file_.read_at(position_, buffer_.data(), static_cast<int64_t>(buffer_.size()));
    position_ += static_cast<int64_t>(buffer_.size());
    at_ = 0;
  }
  InputFile file_;
  std::string buffer_;
  int64_t position_ = 0, at_ = 0;
};

}  // namespace

int64_t TokenExample::targets() const {
  int64_t sum = 0;
  for (const TargetSpan& span : spans) sum += span.target_end - span.target_begin;
  return sum;
}

/// HDF5 needs the sizes of the arrays first. Until they are known, each array grows in a spool file.
struct TokenDatasetWriter::State {
  std::filesystem::path path;
  TokenDatasetHeader header;
  std::vector<std::filesystem::path> spool_paths;
  std::vector<OutputFile> spools;                      // tokens, kIndexArrays, text fields
  std::array<StreamHash, kIndexArrays.size()> hashes;  // for each of kIndexArrays
  StreamHash text_hash;
  std::string block;  // bytes of /tokens that are not yet hashed
  int64_t examples = 0, tokens = 0, targets = 0, spans = 0, turns = 0, blocks = 0;

  enum Spool : size_t {
    kTokens,
    kExampleOffset,
    kTargetOffset,
    kTargetBegin,
    kTargetEnd,
    kCutBegin,
    kCutEnd,
    kTurnBegin,
    kBlockHash,
    kText
  };

  void append_number(Spool spool, int64_t number) {
    spools[spool].append(&number, 8);
    hashes[spool - kExampleOffset].update(&number, 8);
  }
  void append_tokens(const std::vector<int32_t>& ids);
  void append_index(const TokenExample& example);
  void append_text(const ExampleText& text);
  void end_block() {
    append_number(kBlockHash, static_cast<int64_t>(hash64(block.data(), static_cast<int64_t>(block.size()))));
    ++blocks;
    block.clear();
  }
  std::vector<Hdf5Array> write_skeleton(const std::string& content, const std::string& text) const;
};

void TokenDatasetWriter::State::append_tokens(const std::vector<int32_t>& ids) {
  std::string bytes;
  bytes.reserve(ids.size() * 4);
  const auto kept = static_cast<size_t>(token_bytes(header.vocabulary_size));
  for (const int32_t id : ids) {
    RIPSTOP_CHECK(id >= 0 && id < header.vocabulary_size, "token {} of {}", id, header.vocabulary_size);
    bytes.append(reinterpret_cast<const char*>(&id), kept);  // machine and file are both little-endian
  }
  spools[kTokens].append(bytes.data(), static_cast<int64_t>(bytes.size()));
  for (size_t at = 0; at < bytes.size();) {
    const size_t part = std::min(bytes.size() - at, static_cast<size_t>(kTokenBlockBytes) - block.size());
    block.append(bytes, at, part);
    at += part;
    if (static_cast<int64_t>(block.size()) == kTokenBlockBytes) end_block();
  }
}

TokenDatasetWriter::TokenDatasetWriter(const std::filesystem::path& path, TokenDatasetHeader header)
    : state_(std::make_unique<State>()) {
  state_->path = path;
  state_->header = std::move(header);
  const size_t fields = state_->header.with_text ? text_fields(state_->header.kind).size() : 0;
  for (size_t i = 0; i < State::kText + fields; ++i) {
    state_->spool_paths.push_back(path.string() + fmt::format(".spool{}", i));
    state_->spools.emplace_back(state_->spool_paths.back());
  }
  // Begin with offset 0: there is one more offset than examples.
  for (const auto offsets : {State::kExampleOffset, State::kTargetOffset}) state_->append_number(offsets, 0);
}

TokenDatasetWriter::~TokenDatasetWriter() {
  std::error_code ignored;
  for (const auto& path : state_->spool_paths) std::filesystem::remove(path, ignored);
}

void TokenDatasetWriter::State::append_index(const TokenExample& example) {
  for (const TargetSpan& span : example.spans) {
    append_number(kTargetBegin, tokens + span.target_begin);
    append_number(kTargetEnd, tokens + span.target_end);
    append_number(kCutBegin, tokens + span.cut_begin);
    append_number(kCutEnd, tokens + span.cut_end);
  }
  for (const int64_t turn : example.turn_begin) append_number(kTurnBegin, tokens + turn);
  if (header.why_only_last.empty()) header.why_only_last = example.why_only_last;
  ++examples;
  tokens += std::ssize(example.tokens);
  targets += example.targets();
  spans += std::ssize(example.spans);
  turns += std::ssize(example.turn_begin);
  append_number(kExampleOffset, tokens);
  append_number(kTargetOffset, spans);
}

void TokenDatasetWriter::State::append_text(const ExampleText& text) {
  size_t spool = kText;
  for (const TextField& each : text_fields(header.kind)) {
    const std::string& field = text.*each.member;
    const int64_t bytes = static_cast<int64_t>(field.size());
    spools[spool].append(&bytes, 8);
    spools[spool++].append(field.data(), bytes);
    // Hash the lengths, too: without them, "ab" + "c" and "a" + "bc" would have the same hash.
    text_hash.update(&bytes, 8);
    text_hash.update(field);
  }
}

void TokenDatasetWriter::add(const TokenExample& example, const ExampleText* text) {
  State& s = *state_;
  const int64_t count = std::ssize(example.tokens);
  RIPSTOP_CHECK(count >= 2 && count <= INT32_MAX && are_valid(s.header.kind, example.spans, count),
                "an example of {} tokens with {} spans", count, example.spans.size());
  const std::vector<int64_t>& turns = example.turn_begin;
  RIPSTOP_CHECK(turns.empty() || (turns.front() >= 0 && turns.front() <= example.spans.front().cut_begin &&
                                  turns.back() < count && std::ranges::is_sorted(turns, std::less_equal())),
                "{} turns of {} tokens", turns.size(), count);
  RIPSTOP_CHECK((text != nullptr) == s.header.with_text, "text given: {}", text != nullptr);
  s.append_tokens(example.tokens);
  s.append_index(example);
  if (text != nullptr) s.append_text(*text);
}

int64_t TokenDatasetWriter::examples() const {
  return state_->examples;
}
int64_t TokenDatasetWriter::tokens() const {
  return state_->tokens;
}

std::vector<Hdf5Array> TokenDatasetWriter::State::write_skeleton(const std::string& content,
                                                                 const std::string& text) const {
  Hdf5Writer writer(path);
  const Hdf5Attributes attributes = {{"format_version", kTokenDatasetVersion},
                                     {"kind", std::string(to_string(header.kind))},
                                     {"vocabulary_size", header.vocabulary_size},
                                     {"tokenizer_sha256", header.tokenizer_sha256},
                                     {"begin_tokens", header.begin_tokens},
                                     {"end_token", header.end_token},
                                     {"reads_special_tokens", int64_t{header.reads_special_tokens}},
                                     {"template", header.prompt_template},
                                     {"separator", header.separator},
                                     {"chat_template", header.chat_template},
                                     {"chat_date", header.chat_date},
                                     {"only_last", header.why_only_last},
                                     {"examples", examples},
                                     {"tokens", tokens},
                                     {"targets", targets},
                                     {"spans", spans},
                                     {"turns", turns},
                                     {"token_block_bytes", kTokenBlockBytes},
                                     {"text_hash", text},
                                     {"content_hash", content}};
  for (const auto& [key, value] : attributes) writer.set_attribute(key, value);
  const bool narrow = token_bytes(header.vocabulary_size) == 2;
  std::vector<Hdf5Array> arrays;
  arrays.push_back(writer.add_array({"tokens", narrow ? Hdf5Type::kUint16 : Hdf5Type::kInt32, tokens}));
  const std::array<int64_t, kIndexArrays.size()> counts = {examples + 1, examples + 1, spans, spans,
                                                           spans,        spans,        turns, blocks};
  for (size_t i = 0; i < counts.size(); ++i)
    arrays.push_back(writer.add_array(
        {kIndexArrays[i], i + 1 < counts.size() ? Hdf5Type::kInt64 : Hdf5Type::kUint64, counts[i]}));
  if (header.with_text) {
    const auto fields = text_fields(header.kind);
    for (size_t i = 0; i < fields.size(); ++i) {
      // For each text, the spool file has its length as int64, then its bytes.
      SpoolReader reader(spool_paths[kText + i]);
      std::string value;
      writer.add_strings(std::string("text/") + fields[i].name, examples, [&]() -> std::string_view {
        int64_t bytes = 0;
        reader.read(&bytes, 8);
        value.resize(static_cast<size_t>(bytes));
        reader.read(value.data(), bytes);
        return value;
      });
    }
  }
  writer.close();
  return arrays;
}

std::string TokenDatasetWriter::finish() {
  State& s = *state_;
  if (!s.block.empty()) s.end_block();
  for (OutputFile& spool : s.spools) spool.flush();
  const std::string text = s.text_hash.hex();
  std::vector<std::string> hashes;
  for (const StreamHash& hash : s.hashes) hashes.push_back(hash.hex());
  const std::string content = content_hash(s.header, hashes, text);
  const std::vector<Hdf5Array> arrays = s.write_skeleton(content, text);
  OutputFile out(s.path, OutputFile::Mode::kExisting);
  for (size_t i = 0; i < arrays.size(); ++i) {
    const InputFile spool(s.spool_paths[i], ExitCode::kStorage);
    copy_begin(spool, out, arrays[i].offset_bytes, arrays[i].bytes());
  }
  out.sync();
  // Until the sync, the spool files are the only complete copy.
  for (const auto& path : s.spool_paths) std::filesystem::remove(path);
  s.spool_paths.clear();
  return content;
}

}  // namespace ripstop
