#include "data/corpus/corpus_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <initializer_list>
#include <iterator>
#include <system_error>
#include <utility>

#include "data/process/shell_word.h"
#include "data/text/utf8.h"

namespace ripstop {
namespace {

/// A message names at most this many files.
constexpr size_t kShown = 4;
/// A note on splits names at most this many files of a split.
constexpr size_t kShownOfSplit = 20;

// Where a word must stand in a name to tell the split. Short and ambiguous words count in fewer places.
enum class Place { kAnywhere, kAtAnEnd, kAlone };

// Names that people give to splits; "evaluation" and "eval" are test, as in Hugging Face datasets.
struct SplitWord {
  std::string_view word;
  Split split;
  Place place;
};
constexpr auto kSplitWords = std::to_array<SplitWord>({{"train", Split::kTrain, Place::kAnywhere},
                                                       {"training", Split::kTrain, Place::kAnywhere},
                                                       {"trn", Split::kTrain, Place::kAtAnEnd},
                                                       {"validation", Split::kValidation, Place::kAnywhere},
                                                       {"valid", Split::kValidation, Place::kAtAnEnd},
                                                       {"val", Split::kValidation, Place::kAtAnEnd},
                                                       {"dev", Split::kValidation, Place::kAtAnEnd},
                                                       {"devel", Split::kValidation, Place::kAtAnEnd},
                                                       {"development", Split::kValidation, Place::kAlone},
                                                       {"test", Split::kTest, Place::kAnywhere},
                                                       {"testing", Split::kTest, Place::kAlone},
                                                       {"tst", Split::kTest, Place::kAtAnEnd},
                                                       {"eval", Split::kTest, Place::kAtAnEnd},
                                                       {"evaluation", Split::kTest, Place::kAlone}});

// Names of files about a data set, a model or software, in lower case, without .json, .txt or .text.
constexpr auto kNoData = std::to_array<std::string_view>({"dataset_info",
                                                          "dataset_infos",
                                                          "dataset_dict",
                                                          "state",
                                                          "metadata",
                                                          "croissant",
                                                          "prepare",
                                                          "config",
                                                          "generation_config",
                                                          "adapter_config",
                                                          "preprocessor_config",
                                                          "tokenizer",
                                                          "tokenizer_config",
                                                          "special_tokens_map",
                                                          "added_tokens",
                                                          "vocab",
                                                          "ripstop_prompt",
                                                          "trainer_state",
                                                          "all_results",
                                                          "train_results",
                                                          "eval_results",
                                                          "predict_results",
                                                          "package",
                                                          "package-lock",
                                                          "requirements",
                                                          "license",
                                                          "licence",
                                                          "notice",
                                                          "copying",
                                                          "citation",
                                                          "changelog",
                                                          "authors",
                                                          "contributing",
                                                          "contributors"});

bool ends_with_one_of(const std::string& text, std::initializer_list<std::string_view> ends) {
  return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return text.ends_with(end); });
}

// The words of `name`: runs of letters. An upper-case letter after a lower-case one begins a word.
std::vector<std::string> words_of(const std::string& name) {
  std::vector<std::string> words;
  int before = 0;
  for (const unsigned char c : name) {
    if (std::isalpha(c) != 0) {
      if (std::isalpha(before) == 0 || (std::isupper(c) != 0 && std::islower(before) != 0))
        words.emplace_back();
      words.back() += static_cast<char>(std::tolower(c));
    }
    before = c;
  }
  return words;
}

// The split that a word of `name` means. "set", "data", "split" or "files" may end the word.
std::optional<Split> split_of_words(const std::string& name) {
  std::vector<std::string> words = words_of(name);
  // A part ("-00000-of-00002"), a version ("v2"), a language ("en") or a mark of conversion_command() may
  // follow the split word.
  const auto follows = [](const std::string& w) {
    return w.size() <= 2 || w == "lines" || w == "pairs" || w == "utf";
  };
  while (words.size() > 1 && follows(words.back())) words.pop_back();
  for (size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i];
    for (const std::string_view end : {"set", "data", "split", "files"})
      if (word.ends_with(end)) word.resize(word.size() - end.size());
    const auto found = std::ranges::find(kSplitWords, word, &SplitWord::word);
    if (found == kSplitWords.end()) continue;
    const bool is_at_an_end = i == 0 || i + 1 == words.size();
    if (found->place == Place::kAnywhere || words.size() == 1 ||
        (found->place == Place::kAtAnEnd && is_at_an_end))
      return found->split;
  }
  return std::nullopt;
}

// Whether `name`, in lower case, begins with `prefix`, as in "testset" and "devsmall". False if two or more
// letters follow and the first of them is a vowel, l or v: "value" and "testimony" are other words.
bool begins_with(const std::string& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  const std::string rest = name.substr(prefix.size());
  const auto end = std::ranges::find_if(rest, [](unsigned char c) { return std::isalpha(c) == 0; });
  return end - rest.begin() < 2 || std::string_view("aeioulv").find(rest[0]) == std::string_view::npos;
}

}  // namespace

SourceKind kind_of_name(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  if (ends_with_one_of(name, {".tar", ".tar.gz", ".tgz", ".summary"})) return SourceKind::kXsum;
  if (ends_with_one_of(name, {".jsonl", ".jsonl.gz", ".json", ".json.gz"})) return SourceKind::kJsonl;
  if (ends_with_one_of(name, {".txt", ".txt.gz", ".text"})) return SourceKind::kText;
  return SourceKind::kAuto;
}

bool is_read_as(SourceKind kind, const std::filesystem::path& path) {
  const SourceKind named = kind_of_name(path);
  if (kind == SourceKind::kAuto) return named != SourceKind::kAuto;
  // A JSONL file may hold running text or conversations.
  return named == kind ||
         (named == SourceKind::kJsonl && (kind == SourceKind::kText || kind == SourceKind::kMessages));
}

std::string_view name_ends(SourceKind kind) {
  if (kind == SourceKind::kXsum) return ".summary, .tar, .tar.gz, .tgz";
  if (kind == SourceKind::kJsonl || kind == SourceKind::kMessages) return ".jsonl, .json, also with .gz";
  if (kind == SourceKind::kText) return ".txt, .jsonl, .json (also with .gz), .text";
  return ".jsonl, .json, .txt (also with .gz), .text, .summary, .tar, .tar.gz, .tgz";
}

ForeignFormat foreign_format(const std::filesystem::path& path) {
  const std::string name = lower_case(path.filename().string());
  const auto export_by = [&](const std::string& load) {
    return fmt::format("export it with Hugging Face datasets: {}.to_json('train.jsonl')", load);
  };
  const auto load_files = [&](const char* kind, const char* more) {
    return export_by(
        fmt::format("load_dataset('{}', data_files='{}'{})['train']", kind, path.string(), more));
  };
  if (name.ends_with(".parquet")) return {"a Parquet file", load_files("parquet", "")};
  if (name.ends_with(".arrow"))
    return {"an Arrow file", export_by("Dataset.from_file('" + path.string() + "')")};
  if (ends_with_one_of(name, {".csv", ".csv.gz"})) return {"a CSV file", load_files("csv", ""), true};
  if (ends_with_one_of(name, {".tsv", ".tsv.gz"}))
    return {"a table of tabs", load_files("csv", ", sep='\\t'"), true};
  if (ends_with_one_of(name, {".zst", ".xz", ".bz2", ".lz4", ".zip", ".7z"}))
    return {"compressed, but not by gzip", "unpack it; plain files and gzip are read"};
  for (const auto& [of_document, of_summary] : {std::pair{".source", ".target"}, {".src", ".tgt"}})
    if (ends_with_one_of(name, {of_document, of_summary})) {
      const auto end = [&](const char* extension) {
        return std::filesystem::path(path).replace_extension(extension);
      };
      const std::string to = conversion_command(end(".jsonl"), "", "pairs");
      return {"a text a line, as fairseq has it",
              fmt::format("paste {} {} | jq -Rc 'split(\"\\t\") | {{document: .[0], summary: .[1]}}' {}",
                          shell_word(end(of_document).string()), shell_word(end(of_summary).string()),
                          to.substr(to.rfind("> "))),
              true};
    }
  return {};
}

std::optional<Split> named_split(const std::filesystem::path& path,
                                 const std::vector<std::filesystem::path>& inputs) {
  const std::string lower = lower_case(path.filename().string());
  const std::filesystem::path plain = path.extension() == ".gz" ? path.stem() : path.filename();
  if (const std::optional<Split> split = split_of_words(plain.stem().string())) return split;
  if (begins_with(lower, "val") || begins_with(lower, "dev")) return Split::kValidation;
  if (begins_with(lower, "test")) return Split::kTest;
  const auto is_input = [&](const std::filesystem::path& at) {
    return std::ranges::any_of(inputs, [&](const auto& input) { return input == at || input == at / ""; });
  };
  const bool only_own = is_input(path) || inputs.empty();
  for (std::filesystem::path folder = path.parent_path(); folder.has_filename();
       folder = folder.parent_path()) {
    const bool is_last = only_own || is_input(folder);
    if (is_last && inputs.size() == 1) break;  // the only input holds all splits
    const std::string name = fmt::format("{}", fmt::join(words_of(folder.filename().string()), ""));
    if (const std::optional<Split> split = split_of_words(name)) return split;
    if (is_last) break;
  }
  return std::nullopt;
}

Split split_of_file(const std::filesystem::path& path, const std::vector<std::filesystem::path>& inputs) {
  return named_split(path, inputs).value_or(Split::kTrain);
}

std::string describe_splits(const CorpusSource& source) {
  const std::vector<std::filesystem::path>& files = source.inputs;
  std::string text;
  for (size_t i = 0; i < std::min(files.size(), kShown); ++i) {
    text += fmt::format("{}{} {}as {}", i > 0 ? ", " : "", files[i].filename().string(),
                        i == 0 ? "counts " : "", to_string(split_of_file(files[i], source.given)));
  }
  if (files.size() > kShown) text += fmt::format(", and {} more files", files.size() - kShown);
  return text;
}

std::vector<std::string> notes_on_splits(const CorpusSource& source) {
  std::array<std::vector<std::string>, kSplits + 1> files;  // by split; last: no split is told
  for (const auto& file : source.inputs) {
    const std::optional<Split> split = named_split(file, source.given);
    files.at(split ? static_cast<size_t>(*split) : kSplits).push_back(file.string());
  }
  std::vector<std::string> notes;
  for (int split = 0; split <= kSplits; ++split) {
    const std::vector<std::string>& names = files.at(static_cast<size_t>(split));
    if (names.empty()) continue;
    notes.push_back(fmt::format(
        "{}: {}{}", to_string(split < kSplits ? static_cast<Split>(split) : Split::kTrain),
        some_of(names, kShownOfSplit),
        split < kSplits ? "" : ", as no word of the name says train, validation, dev, test or eval"));
  }
  return notes;
}

std::string why_no_data(const std::filesystem::path& path) {
  for (auto part = path.begin(); part != path.end(); ++part) {
    const std::string name = part->string();
    if (name.starts_with('.') || (name.starts_with("__") && std::next(part) != path.end())) return "hidden";
  }
  const std::string name = lower_case(path.filename().string());
  if (!ends_with_one_of(name, {".json", ".txt", ".text"})) return "";
  const std::string stem = name.substr(0, name.rfind('.'));
  const bool is_known = std::ranges::find(kNoData, stem) != kNoData.end();
  return is_known || stem.starts_with("readme") || stem.ends_with(".index") ? "no data" : "";
}

std::string describe_passed_over(const std::vector<PassedOver>& files) {
  std::vector<std::string> texts;
  for (const PassedOver& file : files) {
    const std::string what = file.why.empty() ? foreign_format(file.path).what : file.why;
    texts.push_back(file.path.filename().string() + (what.empty() ? "" : " (" + what + ")"));
  }
  return some_of(texts, kShown);
}

std::filesystem::path renamed_to_train(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const auto is_letter = [](unsigned char c) { return std::isalpha(c) != 0; };
  const auto rest = std::find_if_not(name.begin(), name.end(), is_letter);
  return path.parent_path() / ("train" + std::string(rest, name.end()));
}

std::string conversion_command(const std::filesystem::path& path, std::string_view filter,
                               std::string_view mark, std::string_view extension) {
  const bool packed = path.extension() == ".gz";
  const std::filesystem::path plain = packed ? path.parent_path() / path.stem() : path;
  const std::string end = extension.empty() ? plain.extension().string() : std::string(extension);
  std::filesystem::path output = plain;
  output.replace_extension(fmt::format(".{}{}", mark, end));
  std::error_code error;
  for (int number = 2; std::filesystem::exists(std::filesystem::symlink_status(output, error)); ++number) {
    output = plain;
    output.replace_extension(fmt::format(".{}.{}{}", mark, number, end));
  }
  const std::string from = shell_word(path.string()), to = shell_word(output.string());
  return packed ? fmt::format("zcat {} | {} > {}", from, filter, to)
                : fmt::format("{} {} > {}", filter, from, to);
}

}  // namespace ripstop
