#include "data/dataset/dataset_directory.h"

#include <optional>
#include <utility>

#include "data/chat/conversation_json.h"
#include "data/dataset/prompt_template.h"
#include "data/process/shell_word.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

constexpr size_t kShownDigits = 12;  // digits of a SHA-256 in a message

}  // namespace

std::filesystem::path dataset_file(const std::filesystem::path& directory, const std::string& file_name) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored)) {
    const std::filesystem::path absolute = std::filesystem::absolute(directory, ignored);
    const bool exists = std::filesystem::exists(directory, ignored);
    const std::filesystem::path folder = absolute.parent_path();
    throw Error(
        ExitCode::kInputData,
        fmt::format("{}: {}, looked for {}", directory.string(),
                    exists ? "a file, expected a data set's directory" : "there is no such directory",
                    absolute.lexically_normal().string()),
        exists && std::filesystem::exists(folder / file_name, ignored)
            ? fmt::format("did you mean {}?", shell_word(folder.string()))
            : fmt::format(
                  "ripstop prepare --{} {} makes one; a relative path counts from the current directory",
                  exists ? "output DIR --input" : "output", shell_word(directory.string())));
  }
  const std::filesystem::path file = directory / file_name;
  if (!std::filesystem::exists(file, ignored)) {
    throw Error(ExitCode::kInputData,
                fmt::format("{}: there is no {} in this directory, so it is no data set of ripstop prepare",
                            directory.string(), file_name),
                "name the directory that was given to ripstop prepare as --output");
  }
  return file;
}

std::filesystem::path dataset_tokenizer(const std::filesystem::path& directory) {
  return dataset_file(directory, tokenizer_file_name(directory));
}

void require_dataset_tokenizer(const TokenDataset& dataset, const Tokenizer& tokenizer) {
  const TokenDatasetHeader& header = dataset.header();
  if (header.tokenizer_sha256 != tokenizer.sha256()) {
    throw Error(ExitCode::kInputData,
                fmt::format("{} was made with another tokenizer (SHA-256 {}..) than {} ({}..)",
                            dataset.path().string(), header.tokenizer_sha256.substr(0, kShownDigits),
                            tokenizer.name(), tokenizer.sha256().substr(0, kShownDigits)),
                fmt::format("put the file back that ripstop prepare wrote beside it, or prepare the data set "
                            "again with --tokenizer {}",
                            shell_word(tokenizer.name())));
  }
  const auto as_text = [](int64_t begin, int64_t end, bool reads_special, const std::string& chat,
                          const std::string& date) {
    return fmt::format("{} tokens at the begin, token {} at the end, special tokens in a text {}{}", begin,
                       end, reads_special ? "read" : "as text",
                       chat.empty() ? "" : fmt::format(", the chat template {} of {}", chat, date));
  };
  const TokenizerChoice& choice = tokenizer.files().choice;
  const std::string stated = as_text(header.begin_tokens, header.end_token, header.reads_special_tokens,
                                     header.chat_template, header.chat_date);
  const std::string own =
      as_text(std::ssize(tokenizer.begin()), tokenizer.eos(), tokenizer.reads_special_tokens(),
              choice.chat_template.value_or(""), choice.chat_date);
  if (stated != own)
    throw Error(ExitCode::kInputData,
                fmt::format("{} has examples with {}; {} says {}", dataset.path().string(), stated,
                            tokenizer.name(), own),
                fmt::format("put the {} back that ripstop prepare wrote beside it", kTokenizerChoiceFile));
  // If another program wrote the file, its vocabulary may differ: the model would not fit the tokenizer.
  if (header.vocabulary_size != tokenizer.vocabulary_size()) {
    throw Error(ExitCode::kInputData,
                fmt::format("{} states a vocabulary of {}, {} has {} pieces", dataset.path().string(),
                            header.vocabulary_size, tokenizer.name(), tokenizer.vocabulary_size()),
                "prepare the data set again: ripstop prepare writes both alike");
  }
}

void require_same_tokens(const TokenDataset& first, const TokenDataset& other) {
  const auto as_text = [](const TokenDatasetHeader& header) {
    return fmt::format("the tokenizer {}.. of {} tokens, {} tokens at the begin",
                       header.tokenizer_sha256.substr(0, kShownDigits), header.vocabulary_size,
                       header.begin_tokens);
  };
  const std::string of_first = as_text(first.header()), of_other = as_text(other.header());
  if (of_first != of_other)
    throw Error(
        ExitCode::kInputData,
        fmt::format("{} has {}; {} has {}", other.path().string(), of_other, first.path().string(), of_first),
        "the data sets of a run need one tokenizer: prepare them again with the same --tokenizer, and with "
        "or without --read-special-tokens");
}

namespace {

/// Sets `summary` of a conversation to its last answer that counts, and `document` to the turns before it.
void divide_messages(const JsonReader& reader, ExampleText& text) {
  Conversation turns = conversation_of_text(reader, text.messages);
  end_with_answer(turns);
  if (turns.empty()) reader.refuse("the messages of '{}' have no answer", text.id);
  text.summary = std::move(turns.back().content);
  turns.pop_back();
  for (const Message& turn : turns) text.document += (text.document.empty() ? "" : "\n\n") + turn.content;
}

}  // namespace

std::vector<ExampleText> checked_text(const TokenDataset& dataset, const Tokenizer& tokenizer, int64_t first,
                                      int64_t count) {
  std::vector<ExampleText> texts = dataset.text(first, count);
  if (dataset.header().kind == ExampleKind::kConversation) {
    const JsonReader reader(dataset.path().string(), ExitCode::kInputData);
    for (ExampleText& text : texts) divide_messages(reader, text);
    return texts;
  }
  const TokenDatasetHeader& header = dataset.header();
  std::optional<PromptTemplate> chat;
  if (!header.chat_template.empty()) chat.emplace(tokenizer, header.prompt_template);
  // Compare ids: decoded targets may differ from the summary, because a tokenizer may normalize.
  const auto targets_of = [&](const ExampleText& text) {
    if (chat) {
      const TokenExample pair = chat->encode_pair(text.document, text.summary);
      return std::vector<int32_t>(pair.tokens.begin() + pair.spans.back().target_begin, pair.tokens.end());
    }
    std::vector<int32_t> targets = tokenizer.encode_continuation(text.summary);
    targets.push_back(tokenizer.eos());
    return targets;
  };
  std::vector<int32_t> targets;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t example = first + i, begin = dataset.target_begin(example);
    targets.resize(static_cast<size_t>(dataset.example_end(example) - begin));
    dataset.read_tokens(begin, dataset.example_end(example), targets.data());
    if (targets != targets_of(texts[static_cast<size_t>(i)])) {
      throw Error(ExitCode::kInputData,
                  fmt::format("{}: the summary of example {} ('{}') is not the text of its targets",
                              dataset.path().string(), example, texts[static_cast<size_t>(i)].id),
                  "the file was changed after ripstop prepare wrote it: prepare the data set again");
    }
  }
  return texts;
}

}  // namespace ripstop
