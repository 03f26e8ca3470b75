#include "data/dataset/token_dataset_writer.h"

#include <algorithm>
#include <array>
#include <cstring>

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

/// HDF5 needs the sizes of the arrays first. Until they are known, each array grows in a spool file.
struct TokenDatasetWriter::State {
  std::filesystem::path path;
  TokenDatasetHeader header;
  std::vector<std::filesystem::path> spool_paths;
  // In this order: tokens, offsets, separators, targets, block hashes, text fields.
  std::vector<OutputFile> spools;
  std::array<StreamHash, 4> hashes;  // hashes of offsets, separators, targets, block hashes
  StreamHash text_hash;
  std::string block;  // bytes of /tokens that are not yet hashed
  int64_t examples = 0, tokens = 0, targets = 0, blocks = 0;

  enum Spool : size_t { kTokens, kOffset, kSeparator, kTarget, kBlockHash, kText };

  void append_number(Spool spool, const void* number) {
    spools[spool].append(number, 8);
    hashes[spool - kOffset].update(number, 8);
  }
  void append_tokens(const std::vector<int32_t>& ids);
  void end_block() {
    const uint64_t hash = hash64(block.data(), static_cast<int64_t>(block.size()));
    append_number(kBlockHash, &hash);
    ++blocks;
    block.clear();
  }
  std::vector<Hdf5Array> write_skeleton(const std::string& content, const std::string& text) const;
};

void TokenDatasetWriter::State::append_tokens(const std::vector<int32_t>& ids) {
  std::string bytes;
  bytes.reserve(ids.size() * 4);
  const bool narrow = token_bytes(header.vocabulary_size) == 2;
  for (const int32_t id : ids) {
    RIPSTOP_CHECK(id >= 0 && id < header.vocabulary_size, "token {} of {}", id, header.vocabulary_size);
    const uint16_t low = static_cast<uint16_t>(id);
    if (narrow) {
      // Machine and file are both little-endian.
      bytes.append(reinterpret_cast<const char*>(&low), 2);
    } else {
      bytes.append(reinterpret_cast<const char*>(&id), 4);
    }
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
  const size_t fields = state_->header.with_text ? kTextFields.size() : 0;
  for (size_t i = 0; i < State::kText + fields; ++i) {
    state_->spool_paths.push_back(path.string() + fmt::format(".spool{}", i));
    state_->spools.emplace_back(state_->spool_paths.back());
  }
  // Begin with offset 0: there is one more offset than examples.
  const int64_t zero = 0;
  state_->append_number(State::kOffset, &zero);
}

TokenDatasetWriter::~TokenDatasetWriter() {
  std::error_code ignored;
  for (const auto& path : state_->spool_paths) std::filesystem::remove(path, ignored);
}

void TokenDatasetWriter::add(const TokenExample& example, const ExampleText* text) {
  State& s = *state_;
  const int64_t count = static_cast<int64_t>(example.tokens.size());
  RIPSTOP_CHECK(count >= 2, "an example of {} tokens", count);
  RIPSTOP_CHECK(
      example.separator_begin >= std::min(s.header.begin_tokens, count) && example.separator_begin <= count &&
          example.target_begin >= 1 && example.target_begin < count,
      "separator {} and target {} of {} tokens", example.separator_begin, example.target_begin, count);
  RIPSTOP_CHECK(s.header.kind == ExampleKind::kText ? example.separator_begin == count
                                                    : example.separator_begin <= example.target_begin,
                "separator {} and target {} of {} tokens", example.separator_begin, example.target_begin,
                count);
  RIPSTOP_CHECK((text != nullptr) == s.header.with_text, "text given: {}", text != nullptr);
  const int64_t begin = s.tokens, end = begin + count;
  const int64_t separator = begin + example.separator_begin, target = begin + example.target_begin;
  s.append_tokens(example.tokens);
  s.append_number(State::kOffset, &end);
  s.append_number(State::kSeparator, &separator);
  s.append_number(State::kTarget, &target);
  if (text != nullptr) {
    const std::array<const std::string*, 3> fields = {&text->id, &text->document, &text->summary};
    for (size_t i = 0; i < fields.size(); ++i) {
      const int64_t bytes = static_cast<int64_t>(fields[i]->size());
      s.spools[State::kText + i].append(&bytes, 8);
      s.spools[State::kText + i].append(fields[i]->data(), bytes);
      // Hash the lengths, too: without them, "ab" + "c" and "a" + "bc" would have the same hash.
      s.text_hash.update(&bytes, 8);
      s.text_hash.update(*fields[i]);
    }
  }
  s.tokens = end;
  s.targets += end - target;
  ++s.examples;
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
                                     {"examples", examples},
                                     {"tokens", tokens},
                                     {"targets", targets},
                                     {"token_block_bytes", kTokenBlockBytes},
                                     {"text_hash", text},
                                     {"content_hash", content}};
  for (const auto& [key, value] : attributes) writer.set_attribute(key, value);
  const bool narrow = token_bytes(header.vocabulary_size) == 2;
  std::vector<Hdf5Array> arrays;
  arrays.push_back(writer.add_array({"tokens", narrow ? Hdf5Type::kUint16 : Hdf5Type::kInt32, tokens}));
  arrays.push_back(writer.add_array({"example_offset", Hdf5Type::kInt64, examples + 1}));
  arrays.push_back(writer.add_array({"separator_begin", Hdf5Type::kInt64, examples}));
  arrays.push_back(writer.add_array({"target_begin", Hdf5Type::kInt64, examples}));
  arrays.push_back(writer.add_array({"token_block_hash", Hdf5Type::kUint64, blocks}));
  if (header.with_text) {
    for (size_t i = 0; i < kTextFields.size(); ++i) {
      // For each text, the spool file has its length as int64, then its bytes.
      SpoolReader reader(spool_paths[kText + i]);
      std::string value;
      writer.add_strings(std::string("text/") + kTextFields[i], examples, [&]() -> std::string_view {
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
  const std::string content = content_hash(
      s.header, {s.hashes[0].hex(), s.hashes[1].hex(), s.hashes[2].hex(), s.hashes[3].hex()}, text);
  // libhdf5 makes the file; then pwrite fills the arrays from the spool files.
  const std::vector<Hdf5Array> arrays = s.write_skeleton(content, text);
  OutputFile out(s.path, OutputFile::Mode::kExisting);
  for (size_t i = 0; i < arrays.size(); ++i) {
    const InputFile spool(s.spool_paths[i], ExitCode::kStorage);
    copy_range(spool, 0, out, arrays[i].offset_bytes, arrays[i].bytes());
  }
  out.sync();
  // Until the sync, the spool files are the only complete copy.
  for (const auto& path : s.spool_paths) std::filesystem::remove(path);
  s.spool_paths.clear();
  return content;
}

}  // namespace ripstop
