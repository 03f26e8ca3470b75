// The files of a tokenizer: their names, which of them is read, and what travels with a data set.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ripstop {

/// A SentencePiece model.
inline constexpr const char* kSentencePieceFile = "tokenizer.model";
/// A tokenizer of the library `tokenizers`. tokenizer_file_name() says which is read if both files exist.
inline constexpr const char* kTokenizerJsonFile = "tokenizer.json";
/// Facts about tokenizer.json, among them the end token.
inline constexpr const char* kTokenizerConfigFile = "tokenizer_config.json";
inline constexpr const char* kSpecialTokensFile = "special_tokens_map.json";
inline constexpr const char* kChatTemplateFile = "chat_template.jinja";
/// A file of ripstop: TokenizerFiles::choice and questions, and which of the two tokenizer files is read.
inline constexpr const char* kTokenizerChoiceFile = "ripstop_tokenizer.json";

/// Maximum bytes of a .model file or tokenizer.json (LLaMA 3: 9 MB). Each data set and run gets a copy.
inline constexpr int64_t kMostTokenizerBytes = int64_t{64} << 20;
/// Maximum bytes of the other files. tokenizer_config.json of LLaMA 3 has 50 KiB.
inline constexpr int64_t kMostSmallBytes = int64_t{4} << 20;
/// Maximum bytes of the name of a token, chat template or file in a JSON file.
inline constexpr size_t kMostTokenNameBytes = 1000;

/// Text for messages on a directory without a tokenizer.
inline constexpr const char* kNoTokenizer = "no tokenizer.model and no tokenizer.json";

/// The options of `prepare` that belong to a tokenizer; if absent, as its files say.
struct TokenizerChoice {
  std::string eos_token = {};                     ///< name of the end token; "": as the files say
  std::optional<bool> reads_special_tokens = {};  ///< whether names of special tokens in a text are tokens
  std::optional<std::string> chat_template = {};  ///< name of the chat template of all prompts; "": none
  std::string chat_date = {};                     ///< the date in the chat template's text
};

/// The bytes of a tokenizer's files.
struct TokenizerFiles {
  std::filesystem::path path = {};  ///< the tokenizer's file, or the name given with its bytes
  /// Name and bytes of each file that a data set, a run, an import and an export carry. The first is
  /// tokenizer.model or tokenizer.json.
  std::vector<std::pair<std::string, std::string>> carried = {};
  TokenizerChoice choice = {};
  /// The choice for conversations, if a run has data sets with conversations, but its first has none.
  std::optional<TokenizerChoice> questions = {};
  std::string model_config = {};  ///< bytes of config.json beside tokenizer.json; "" if absent

  bool is_json() const { return carried.front().first == kTokenizerJsonFile; }
  /// Bytes of a carried file; nullptr if it is not there.
  const std::string* find(std::string_view name) const;
  /// Stores `choice` and `questions` in the carried kTokenizerChoiceFile.
  void carry_choice();
  /// The name that the carried `file`, tokenizer_config.json or special_tokens_map.json, gives the token
  /// `key`, such as eos_token; "" if none. Throws Error(kInputData) for a damaged file.
  std::string token_name(const char* file, const char* key) const;
};

/// Whether `directory` has either tokenizer file. Throws Error(kStorage) if the system cannot tell.
bool has_tokenizer(const std::filesystem::path& directory);

/// The name of the tokenizer's file in `directory`: the first that exists of what kTokenizerChoiceFile names
/// and tokenizer.json, else tokenizer.model. Throws Error(kInputData) for a damaged kTokenizerChoiceFile.
std::string tokenizer_file_name(const std::filesystem::path& directory);

/// The choice in kTokenizerChoiceFile of `directory`; an empty choice if the file is absent. Throws
/// Error(kInputData) if the file is damaged.
TokenizerChoice read_tokenizer_choice(const std::filesystem::path& directory);
/// Reads TokenizerFiles::questions in the same way; nullopt if there are none.
std::optional<TokenizerChoice> read_question_choice(const std::filesystem::path& directory);

/// Whether a file in TokenizerFiles::carried may have this name.
bool is_tokenizer_file(std::string_view name);

/// A tokenizer whose only file is `bytes`: a tokenizer.json or a SentencePiece model.
TokenizerFiles tokenizer_files_of(std::string bytes, const std::filesystem::path& name);

/// Reads the tokenizer at `path`, a file or a directory that has one, and the files beside it that belong
/// to it. Throws Error(kInputData) without a tokenizer, or if a file is damaged, not plain or too large;
/// Error(kStorage) if a read fails.
TokenizerFiles read_tokenizer_files(const std::filesystem::path& path);

/// Whether `path` looks like a name on Hugging Face's hub, such as meta-llama/Llama-2-7b-hf. Directory names
/// in ripstop's docs and configs, such as models/NAME, do not.
bool looks_like_hub_name(const std::filesystem::path& path);

}  // namespace ripstop
