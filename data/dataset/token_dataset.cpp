#include "data/dataset/token_dataset.h"

#include <algorithm>
#include <cstring>

#include "data/files/hash.h"
#include "data/files/whole_file.h"
#include "data/text/json_reader.h"
#include "model/core/error.h"

namespace ripstop {

std::string_view to_string(ExampleKind kind) {
  return kind == ExampleKind::kSummary ? "summary" : "text";
}

std::string content_hash(const TokenDatasetHeader& header, const std::array<std::string, 4>& parts,
                         const std::string& text_hash) {
  StreamHash hash;
  hash.update(fmt::format("ripstop tokens {}\n{}\n{}\n{}\n{} {} {:d}\n", kTokenDatasetVersion,
                          to_string(header.kind), header.vocabulary_size, header.tokenizer_sha256,
                          header.begin_tokens, header.end_token, header.reads_special_tokens));
  // Hash the lengths, too: a text may contain a line end.
  for (const std::string& text :
       {header.prompt_template, header.separator, header.chat_template, header.chat_date})
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
  // No error: a file that was copied beside another prepare.json has no entry there.
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
  read_index(hdf5);
  check_index();
  check_content_hash(hdf5);
  // Only text() needs libhdf5 from now on.
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
  if (kind != "summary" && kind != "text") fail(ExitCode::kInputData, "{}: unknown kind '{}'", where, kind);
  header_.kind = kind == "summary" ? ExampleKind::kSummary : ExampleKind::kText;
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
  // The attributes with the sizes, which h5dump shows, must agree with the arrays.
  if (example_offset_.back() != tokens.count || hdf5.integer("tokens") != tokens.count) {
    fail(ExitCode::kInputData, "{}: the index says {} tokens, /tokens has {}", where, example_offset_.back(),
         tokens.count);
  }
  if (hdf5.integer("token_block_bytes") != kTokenBlockBytes ||
      static_cast<int64_t>(block_hash_.size()) !=
          (tokens.bytes() + kTokenBlockBytes - 1) / kTokenBlockBytes) {
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

/// Whether separator_begin is valid: at most target_begin in a pair, the example's end in running text.
bool TokenDataset::is_in_order(int64_t example) const {
  if (header_.kind == ExampleKind::kSummary) return separator_begin(example) <= target_begin(example);
  return separator_begin(example) == example_end(example);
}

/// Throws Error(kInputData) if the index is damaged: all later code trusts its offsets.
void TokenDataset::check_index() const {
  if (example_offset_.front() != 0) {
    fail(ExitCode::kInputData, "{}: the first example begins at token {}", path_.string(),
         example_offset_.front());
  }
  for (int64_t i = 0; i < examples(); ++i) {
    const int64_t begin = example_begin(i), end = example_end(i);
    // Compare before subtracting: differences of hostile offsets may overflow.
    if (end <= begin || begin < 0 || end - begin < 2 || end > tokens()) {
      fail(ExitCode::kInputData, "{}: example {} spans tokens {} to {}", path_.string(), i, begin, end);
    }
    // Without BOS, the separator may begin at the first token, because that token may hold the document, too.
    if (separator_begin(i) < begin + std::min(header_.begin_tokens, end - begin) ||
        separator_begin(i) > end || target_begin(i) <= begin || target_begin(i) >= end || !is_in_order(i)) {
      fail(ExitCode::kInputData,
           "{}: example {} at tokens {} to {} has its separator at {} and its target at {}", path_.string(),
           i, begin, end, separator_begin(i), target_begin(i));
    }
  }
}

void TokenDataset::check_content_hash(const Hdf5File& hdf5) const {
  // The content hash covers the tokens through their blocks' hashes, which read_block() compares.
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
      const char* token = bytes.data() + (at - block * per_block) * token_bytes_;
      uint16_t narrow = 0;
      std::memcpy(token_bytes_ == 2 ? static_cast<void*>(&narrow) : static_cast<void*>(out), token,
                  static_cast<size_t>(token_bytes_));
      if (token_bytes_ == 2) *out = narrow;
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
  const std::array<std::string ExampleText::*, 3> members = {&ExampleText::id, &ExampleText::document,
                                                             &ExampleText::summary};
  for (size_t field = 0; field < kTextFields.size(); ++field) {
    auto values = hdf5_->strings(std::string("text/") + kTextFields[field], first, count);
    for (size_t i = 0; i < values.size(); ++i) texts[i].*members[field] = std::move(values[i]);
  }
  return texts;
}

}  // namespace ripstop
