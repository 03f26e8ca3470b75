#include "data/corpus/corpus_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <system_error>

#include "data/process/shell_word.h"

namespace ripstop {
namespace {

/// A message names at most this many files.
constexpr size_t kShown = 4;

bool ends_with_one_of(const std::string& text, std::initializer_list<std::string_view> ends) {
  return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return text.ends_with(end); });
}

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
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
  // A JSONL file may hold running text.
  return named == kind || (kind == SourceKind::kText && named == SourceKind::kJsonl);
}

std::string_view name_ends(SourceKind kind) {
  if (kind == SourceKind::kXsum) return ".summary, .tar, .tar.gz, .tgz";
  if (kind == SourceKind::kJsonl) return ".jsonl, .json, also with .gz";
  if (kind == SourceKind::kText) return ".txt, .jsonl, .json (also with .gz), .text";
  return ".jsonl, .json, .txt (also with .gz), .text, .summary, .tar, .tar.gz, .tgz";
}

bool is_compressed(const std::filesystem::path& path) {
  return path.extension() == ".gz" || path.extension() == ".tgz";
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
  return {};
}

Split split_of_file(const std::filesystem::path& path) {
  const std::string name = lower_case(path.filename().string());
  if (name.starts_with("val") || name.starts_with("dev")) return Split::kValidation;
  if (name.starts_with("test")) return Split::kTest;
  return Split::kTrain;
}

std::string describe_splits(const std::vector<std::filesystem::path>& files) {
  std::string text;
  for (size_t i = 0; i < std::min(files.size(), kShown); ++i) {
    text += fmt::format("{}{} {}as {}", i > 0 ? ", " : "", files[i].filename().string(),
                        i == 0 ? "counts " : "", to_string(split_of_file(files[i])));
  }
  if (files.size() > kShown) text += fmt::format(", and {} more files", files.size() - kShown);
  return text;
}

std::string describe_passed_over(const std::vector<std::filesystem::path>& files) {
  std::string text;
  for (size_t i = 0; i < std::min(files.size(), kShown); ++i) {
    const std::string what = foreign_format(files[i]).what;
    text += (i > 0 ? ", " : "") + files[i].filename().string();
    if (!what.empty()) text += " (" + what + ")";
  }
  if (files.size() > kShown) text += fmt::format(" and {} more", files.size() - kShown);
  return text;
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
