#include "data/token_dataset.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "data/hash.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

constexpr int64_t kFormatVersion = 1;
constexpr int64_t kBlockBytes = 16384;
constexpr std::array<const char*, 3> kTextFields = {"id", "document", "summary"};

std::string_view name(ExampleKind kind) {
  return kind == ExampleKind::kSummary ? "summary" : "text";
}

int64_t token_bytes(int64_t vocabulary_size) {
  return vocabulary_size <= 65536 ? 2 : 4;
}

/// The hash that stands for the whole content, from the hashes of its parts.
std::string content_hash(const TokenDatasetHeader& header, const std::array<std::string, 4>& parts,
                         const std::string& text_hash) {
  StreamHash hash;
  hash.update(fmt::format("ripstop tokens {}\n{}\n{}\n{}\n{}:{}\n{}:{}\n", kFormatVersion, name(header.kind),
                          header.vocabulary_size, header.tokenizer_sha256, header.prompt_template.size(),
                          header.prompt_template, header.separator.size(), header.separator));
  for (const std::string& part : parts) hash.update(part + "\n");
  hash.update(text_hash);
  return hash.hex();
}

template <class T>
std::string hash_of(const std::vector<T>& values) {
  StreamHash hash;
  hash.update(values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
  return hash.hex();
}

/// Reads a spool file from its begin to its end through a bounded buffer.
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

// ---- writing

struct TokenDatasetWriter::State {
  std::filesystem::path path;
  TokenDatasetHeader header;
  std::vector<std::filesystem::path> spool_paths;
  std::vector<OutputFile> spools;    // tokens, offsets, separators, targets, block hashes, then text fields
  std::array<StreamHash, 4> hashes;  // offsets, separators, targets, block hashes
  StreamHash text_hash;
  std::string block;  // bytes of /tokens not yet hashed
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
  const bool narrow = token_bytes(header.vocabulary_size) == 2;
  for (const int32_t id : ids) {
    RIPSTOP_CHECK(id >= 0 && id < header.vocabulary_size, "token {} of {}", id, header.vocabulary_size);
    const uint16_t low = static_cast<uint16_t>(id);
    if (narrow) {
      bytes.append(reinterpret_cast<const char*>(&low), 2);
    } else {
      bytes.append(reinterpret_cast<const char*>(&id), 4);
    }
  }
  spools[kTokens].append(bytes.data(), static_cast<int64_t>(bytes.size()));
  for (size_t at = 0; at < bytes.size();) {
    const size_t part = std::min(bytes.size() - at, static_cast<size_t>(kBlockBytes) - block.size());
    block.append(bytes, at, part);
    at += part;
    if (static_cast<int64_t>(block.size()) == kBlockBytes) end_block();
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
  RIPSTOP_CHECK(example.separator_begin >= 1 && example.separator_begin <= count &&
                    example.target_begin >= 1 && example.target_begin < count,
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
  const Hdf5Attributes attributes = {{"format_version", kFormatVersion},
                                     {"kind", std::string(name(header.kind))},
                                     {"vocabulary_size", header.vocabulary_size},
                                     {"tokenizer_sha256", header.tokenizer_sha256},
                                     {"template", header.prompt_template},
                                     {"separator", header.separator},
                                     {"examples", examples},
                                     {"tokens", tokens},
                                     {"targets", targets},
                                     {"token_block_bytes", kBlockBytes},
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
  const std::vector<Hdf5Array> arrays = s.write_skeleton(content, text);
  OutputFile out(s.path, OutputFile::Mode::kExisting);
  for (size_t i = 0; i < arrays.size(); ++i) {
    const InputFile spool(s.spool_paths[i], ExitCode::kStorage);
    copy_range(spool, 0, out, arrays[i].offset_bytes, arrays[i].bytes());
  }
  out.sync();
  for (const auto& path : s.spool_paths) std::filesystem::remove(path);
  s.spool_paths.clear();
  return content;
}

// ---- reading

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

/// Compares the file with what the prepare.json beside it says about it, where there is one that does.
void check_against_prepare_json(const InputFile& file) {
  const std::filesystem::path beside = file.path().parent_path() / "prepare.json";
  std::error_code ignored;
  if (!std::filesystem::exists(beside, ignored)) return;
  const std::string text = read_whole_file(beside, 64 << 20, ExitCode::kInputData);
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) fail(ExitCode::kInputData, "{}: not JSON", beside.string());
  const std::string file_name = file.path().filename().string();
  const auto number = [](const nlohmann::json& entry, const char* key) {
    return entry.contains(key) && entry[key].is_number_unsigned() ? entry[key].get<uint64_t>() : UINT64_MAX;
  };
  if (!json.contains("files") || !json["files"].is_object() || !json["files"].contains(file_name)) return;
  const nlohmann::json& entry = json["files"][file_name];
  const uint64_t bytes = number(entry, "bytes"), begin = number(entry, "tokens_offset");
  const uint64_t length = number(entry, "tokens_bytes");
  if (bytes > INT64_MAX || begin > bytes || length > bytes - begin ||
      !entry.value("hash_outside_tokens", nlohmann::json()).is_string()) {
    fail(ExitCode::kInputData, "{}: what it says about {} makes no sense", beside.string(), file_name);
  }
  if (static_cast<int64_t>(bytes) != file.bytes()) {
    fail(ExitCode::kInputData, "{}: {} bytes, prepare.json says {}", file.path().string(), file.bytes(),
         bytes);
  }
  const std::string hash = hash_outside(file, static_cast<int64_t>(begin), static_cast<int64_t>(length));
  if (hash != entry["hash_outside_tokens"].get<std::string>()) {
    fail(ExitCode::kInputData,
         "{}: hash {} differs from {} in prepare.json: the file is damaged or was replaced",
         file.path().string(), hash, entry["hash_outside_tokens"].get<std::string>());
  }
}

}  // namespace

TokenDataset::TokenDataset(const std::filesystem::path& path) : path_(path) {
  file_.emplace(path);
  check_against_prepare_json(*file_);
  Hdf5File hdf5(path);
  read_header(hdf5);
  read_index(hdf5);
  check_index();
  check_content_hash(hdf5);
  if (header_.with_text) hdf5_.emplace(std::move(hdf5));
}

TokenDataset::~TokenDataset() = default;
TokenDataset::TokenDataset(TokenDataset&&) noexcept = default;
TokenDataset& TokenDataset::operator=(TokenDataset&&) noexcept = default;

void TokenDataset::read_header(const Hdf5File& hdf5) {
  const std::string where = path_.string();
  if (!hdf5.has_attribute("format_version")) fail(ExitCode::kInputData, "{}: not a ripstop data set", where);
  if (const int64_t version = hdf5.integer("format_version"); version != kFormatVersion) {
    fail(ExitCode::kInputData, "{}: data set format {}, this program reads {}", where, version,
         kFormatVersion);
  }
  const std::string kind = hdf5.text("kind");
  if (kind != "summary" && kind != "text") fail(ExitCode::kInputData, "{}: unknown kind '{}'", where, kind);
  header_.kind = kind == "summary" ? ExampleKind::kSummary : ExampleKind::kText;
  header_.vocabulary_size = hdf5.integer("vocabulary_size");
  if (header_.vocabulary_size < 1 || header_.vocabulary_size > INT32_MAX) {
    fail(ExitCode::kInputData, "{}: vocabulary_size is {}", where, header_.vocabulary_size);
  }
  header_.tokenizer_sha256 = hdf5.text("tokenizer_sha256");
  header_.prompt_template = hdf5.text("template");
  header_.separator = hdf5.text("separator");
  header_.with_text = hdf5.has_strings("text/document");
  content_hash_ = hdf5.text("content_hash");
}

void TokenDataset::read_index(const Hdf5File& hdf5) {
  const auto read = [&](const char* array_name, Hdf5Type type, auto& into) {
    const Hdf5Array& array = hdf5.array(array_name, type);
    into.resize(static_cast<size_t>(array.count));
    file_->read_at(array.offset_bytes, into.data(), array.bytes());
  };
  read("example_offset", Hdf5Type::kInt64, example_offset_);
  read("separator_begin", Hdf5Type::kInt64, separator_begin_);
  read("target_begin", Hdf5Type::kInt64, target_begin_);
  read("token_block_hash", Hdf5Type::kUint64, block_hash_);
  token_bytes_ = token_bytes(header_.vocabulary_size);
  const Hdf5Array& tokens = hdf5.array("tokens", token_bytes_ == 2 ? Hdf5Type::kUint16 : Hdf5Type::kInt32);
  tokens_offset_bytes_ = tokens.offset_bytes;
  const std::string where = path_.string();
  const int64_t count = static_cast<int64_t>(separator_begin_.size());
  if (static_cast<int64_t>(example_offset_.size()) != count + 1 ||
      static_cast<int64_t>(target_begin_.size()) != count || hdf5.integer("examples") != count) {
    fail(ExitCode::kInputData, "{}: {} offsets, {} separators, {} targets for {} examples", where,
         example_offset_.size(), count, target_begin_.size(), hdf5.integer("examples"));
  }
  if (example_offset_.back() != tokens.count || hdf5.integer("tokens") != tokens.count) {
    fail(ExitCode::kInputData, "{}: the index says {} tokens, /tokens has {}", where, example_offset_.back(),
         tokens.count);
  }
  if (hdf5.integer("token_block_bytes") != kBlockBytes ||
      static_cast<int64_t>(block_hash_.size()) != (tokens.bytes() + kBlockBytes - 1) / kBlockBytes) {
    fail(ExitCode::kInputData, "{}: {} block hashes for {} bytes of tokens", where, block_hash_.size(),
         tokens.bytes());
  }
  if (header_.with_text) {
    for (const char* field : kTextFields) {
      if (hdf5.strings_count(std::string("text/") + field) != count) {
        fail(ExitCode::kInputData, "{}: /text/{} does not have {} strings", where, field, count);
      }
    }
  }
}

void TokenDataset::check_index() const {
  if (example_offset_.front() != 0) {
    fail(ExitCode::kInputData, "{}: the first example begins at token {}", path_.string(),
         example_offset_.front());
  }
  for (int64_t i = 0; i < examples(); ++i) {
    const int64_t begin = example_begin(i), end = example_end(i);
    // Not end - begin: hostile offsets may be far apart.
    if (end <= begin || begin < 0 || end - begin < 2 || end > tokens()) {
      fail(ExitCode::kInputData, "{}: example {} spans tokens {} to {}", path_.string(), i, begin, end);
    }
    if (separator_begin(i) <= begin || separator_begin(i) > end || target_begin(i) <= begin ||
        target_begin(i) >= end) {
      fail(ExitCode::kInputData,
           "{}: example {} at tokens {} to {} has its separator at {} and its target at {}", path_.string(),
           i, begin, end, separator_begin(i), target_begin(i));
    }
  }
}

void TokenDataset::check_content_hash(const Hdf5File& hdf5) const {
  const std::string found = ripstop::content_hash(
      header_,
      {hash_of(example_offset_), hash_of(separator_begin_), hash_of(target_begin_), hash_of(block_hash_)},
      hdf5.text("text_hash"));
  if (found != content_hash_) {
    fail(ExitCode::kInputData, "{}: content hash {} differs from the {} it states: the file is damaged",
         path_.string(), found, content_hash_);
  }
}

void TokenDataset::read_block(int64_t block, std::string& bytes) const {
  const int64_t first = block * kBlockBytes;
  bytes.resize(static_cast<size_t>(std::min(kBlockBytes, tokens() * token_bytes_ - first)));
  file_->read_at(tokens_offset_bytes_ + first, bytes.data(), static_cast<int64_t>(bytes.size()));
  if (hash64(bytes.data(), static_cast<int64_t>(bytes.size())) != block_hash_[static_cast<size_t>(block)]) {
    fail(ExitCode::kInputData, "{}: block {} of its tokens is damaged (its hash differs)", path_.string(),
         block);
  }
}

void TokenDataset::read_tokens(int64_t begin, int64_t end, int32_t* out) const {
  RIPSTOP_CHECK(begin >= 0 && begin <= end && end <= tokens(), "tokens {} to {} of {}", begin, end, tokens());
  const int64_t per_block = kBlockBytes / token_bytes_;
  std::string bytes;
  for (int64_t at = begin; at < end;) {
    const int64_t block = at / per_block, stop = std::min(end, (block + 1) * per_block);
    read_block(block, bytes);
    for (; at < stop; ++at, ++out) {
      const char* token = bytes.data() + (at - block * per_block) * token_bytes_;
      uint16_t narrow = 0;
      std::memcpy(token_bytes_ == 2 ? static_cast<void*>(&narrow) : static_cast<void*>(out), token,
                  static_cast<size_t>(token_bytes_));
      if (token_bytes_ == 2) *out = narrow;
      if (*out < 0 || *out >= header_.vocabulary_size) {
        fail(ExitCode::kInputData, "{}: token {} at place {}, the vocabulary has {}", path_.string(), *out,
             at, header_.vocabulary_size);
      }
    }
  }
}

void TokenDataset::verify_tokens() const {
  const int64_t per_block = kBlockBytes / token_bytes_;
  std::vector<int32_t> ids(static_cast<size_t>(per_block));
  for (int64_t at = 0; at < tokens(); at += per_block) {
    read_tokens(at, std::min(tokens(), at + per_block), ids.data());
  }
}

std::vector<ExampleText> TokenDataset::text(int64_t first, int64_t count) const {
  if (!header_.with_text) {
    fail(ExitCode::kInputData, "{}: has no text, only tokens; use the validation or test file",
         path_.string());
  }
  std::vector<ExampleText> texts(static_cast<size_t>(count));
  const std::array<std::string ExampleText::*, 3> members = {&ExampleText::id, &ExampleText::document,
                                                             &ExampleText::summary};
  for (size_t field = 0; field < kTextFields.size(); ++field) {
    auto values = hdf5_->strings(std::string("text/") + kTextFields[field], first, count);
    for (size_t i = 0; i < values.size(); ++i) texts[i].*members[field] = std::move(values[i]);
  }
  return texts;
}

}  // namespace ripstop
