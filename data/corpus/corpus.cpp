#include "data/corpus/corpus.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "data/corpus/corpus_names.h"
#include "data/files/hash.h"
#include "data/text/line_input.h"
#include "data/text/unpacked_input.h"
#include "data/text/utf8.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

/// Whether `path` is JSON metadata that Hugging Face's save_to_disk writes beside its data files.
bool is_metadata(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  return name == "dataset_info.json" || name == "dataset_dict.json" || name == "state.json";
}

bool has_hidden_name(const std::filesystem::path& path) {
  return std::any_of(path.begin(), path.end(),
                     [](const auto& name) { return name.string().starts_with('.'); });
}

/// Adds the files below `path`, sorted by name, to `files`, or to source.passed_over if the source does not
/// read them.
void add_files_below(const std::filesystem::path& path, CorpusSource& source,
                     std::vector<std::filesystem::path>& files) {
  std::vector<std::filesystem::path> read, other;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path, error)) {
    if (!entry.is_regular_file() || is_metadata(entry.path())) continue;
    if (is_read_as(source.kind, entry.path()))
      read.push_back(entry.path());
    else if (!has_hidden_name(entry.path().lexically_relative(path)) &&
             entry.path().filename() != source.splits.filename())
      other.push_back(entry.path());
  }
  if (error) fail(ExitCode::kInputData, "{}: cannot list: {}", path.string(), error.message());
  // Sort, so that the data set is the same on every machine.
  std::sort(read.begin(), read.end());
  std::sort(other.begin(), other.end());
  files.insert(files.end(), read.begin(), read.end());
  source.passed_over.insert(source.passed_over.end(), other.begin(), other.end());
}

[[noreturn]] void refuse_absent(const std::string& path) {
  std::string hint = "--input takes files and directories of this host; nothing is downloaded";
  if (path.empty()) hint = "--input is empty: a variable of the shell may not be set";
  if (path == "-") hint = "prepare reads its input several times: write it to a file, and give that";
  if (path.find_first_of("*?[") != std::string::npos)
    hint = "the shell puts files in place of a pattern only if it has no quotes and a file fits";
  throw Error(ExitCode::kInputData, fmt::format("{}: no such file or directory", path), hint);
}

/// Adds `path` to `files` if it is a file; the files below it if it is a directory.
void add_files(const std::filesystem::path& path, CorpusSource& source,
               std::vector<std::filesystem::path>& files) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (!std::filesystem::exists(status)) refuse_absent(path.string());
  if (std::filesystem::is_directory(status)) {
    add_files_below(path, source, files);
    return;
  }
  // prepare reads its input up to three times, a pipe only once.
  if (!std::filesystem::is_regular_file(status)) {
    throw Error(ExitCode::kInputData, fmt::format("{}: not a file", path.string()),
                "prepare reads its input several times: write it to a file first");
  }
  // With --source xsum, a shell pattern may match the split file or a README.
  const bool is_other = source.kind == SourceKind::kXsum && !is_read_as(source.kind, path);
  (is_other ? source.passed_over : files).push_back(path);
}

/// Whether the first object of a JSONL file has a "text", but neither a document nor a summary. Skips lines
/// that are not UTF-8. Returns false for a damaged line, which read_lines() refuses.
bool first_line_is_text(const std::filesystem::path& path, const CorpusSource& source) {
  LineInput lines(path);
  for (std::string line; lines.next(line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos || invalid_utf8(line)) continue;
    const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    return object.contains("text") && !object.contains(source.document_field) &&
           !object.contains(source.summary_field);
  }
  return false;
}

/// Spreadsheets and PowerShell write UTF-16.
void refuse_utf16(const std::filesystem::path& path) {
  UnpackedInput input(path);
  const std::string_view begin = input.next_block();
  if (!begin.starts_with("\xff\xfe") && !begin.starts_with("\xfe\xff")) return;
  throw Error(
      ExitCode::kInputData, fmt::format("{}: UTF-16, expected UTF-8", path.string()),
      "convert it, and give the new file: " + conversion_command(path, "iconv -f UTF-16 -t UTF-8", "utf8"));
}

/// Thrown by a sink to end the reading.
struct EnoughSeen {};

/// Refuses UTF-16 and JSONL files whose first line is bad. Otherwise prepare would notice a bad file only
/// after hours of work on the files before it.
void check_first_lines(const CorpusSource& source) {
  // On a network file system, even the first blocks of more files take too long.
  constexpr size_t kMostFiles = 1000;
  CorpusSource one = source;
  for (size_t i = 0; i < std::min(source.inputs.size(), kMostFiles); ++i) {
    refuse_utf16(source.inputs[i]);
    if (kind_of_name(source.inputs[i]) != SourceKind::kJsonl) continue;
    one.inputs = {source.inputs[i]};
    CorpusProgress ignored;
    try {
      read_lines(one, ignored, [](CorpusExample&) { throw EnoughSeen{}; });
    } catch (const EnoughSeen&) {
    }
  }
}

[[noreturn]] void refuse_format(const std::filesystem::path& path) {
  const ForeignFormat format = foreign_format(path);
  throw Error(ExitCode::kUsage,
              fmt::format("{}: {}; prepare reads JSON lines, plain text and XSum's articles", path.string(),
                          format.what),
              format.convert);
}

void check_options_of_kind(const CorpusSource& source) {
  if (source.kind != SourceKind::kXsum && !source.splits.empty()) {
    throw Error(ExitCode::kUsage,
                fmt::format("--splits is for XSum's articles, the source is {}", to_string(source.kind)),
                "the names of the files decide: validation*, val* and dev*, test*, and train for any other");
  }
  std::error_code ignored;
  if (!source.splits.empty() && !std::filesystem::exists(source.splits, ignored)) {
    throw Error(
        ExitCode::kInputData, fmt::format("{}: no such file", source.splits.string()),
        "--splits takes XSum-TRAINING-DEV-TEST-SPLIT-90-5-5.json of XSum; without it every article is train");
  }
  if (source.kind != SourceKind::kSynthetic && source.examples > 0) {
    throw Error(ExitCode::kUsage,
                fmt::format("--examples is for --source synthetic, the source is {}", to_string(source.kind)),
                "give the files that are to be used, or --source synthetic without --input");
  }
}

/// The kind that all `files` have in common. Throws Error(kUsage) if their kinds differ or cannot be told.
SourceKind common_kind(const std::vector<std::filesystem::path>& files, const CorpusSource& source) {
  SourceKind common = SourceKind::kAuto;
  for (const auto& file : files) {
    SourceKind kind = kind_of_name(file);
    // The name of a JSONL file does not tell whether it has pairs or running text.
    if (kind == SourceKind::kJsonl && first_line_is_text(file, source)) kind = SourceKind::kText;
    if (kind == SourceKind::kAuto) {
      throw Error(ExitCode::kUsage, fmt::format("{}: cannot tell what this is by its name", file.string()),
                  "say it with --source xsum | jsonl | text");
    }
    if (common != SourceKind::kAuto && kind != common) {
      throw Error(ExitCode::kUsage,
                  fmt::format("{} is {}, {} is {}: cannot tell what all of them are", files.front().string(),
                              to_string(common), file.string(), to_string(kind)),
                  "say it with --source xsum | jsonl | text, or prepare them one after another");
    }
    common = kind;
  }
  return common;
}

/// Throws if a file is given twice: all of its examples would be duplicates.
void refuse_twice(const std::vector<std::filesystem::path>& files) {
  std::set<std::pair<dev_t, ino_t>> seen;
  for (const auto& file : files) {
    struct stat status {};
    if (stat(file.c_str(), &status) != 0 || seen.emplace(status.st_dev, status.st_ino).second) continue;
    throw Error(ExitCode::kUsage, fmt::format("{}: given twice", file.string()),
                "name each file once, and none that lies in a directory that is named, too");
  }
}

/// Throws Error(kUsage): the source reads none of the inputs.
[[noreturn]] void refuse_nothing(const CorpusSource& source) {
  for (const auto& file : source.passed_over)
    if (!foreign_format(file).what.empty()) refuse_format(file);
  const std::string input = source.inputs.front().string();
  if (source.kind == SourceKind::kXsum) {
    throw Error(ExitCode::kUsage, input + ": no .summary file or .tar.gz",
                "give XSum's archive or the directory of its articles, or leave --source out");
  }
  throw Error(
      ExitCode::kUsage,
      fmt::format("{}: nothing in there can be read{}", input,
                  source.passed_over.empty() ? "" : ": it has " + describe_passed_over(source.passed_over)),
      fmt::format("files are found by their names: {}", name_ends(source.kind)));
}

/// Returns the files to read and sets source.passed_over. Throws Error(kUsage) if there are none, or if a
/// file has a foreign format.
std::vector<std::filesystem::path> find_files(CorpusSource& source) {
  source.passed_over.clear();
  std::vector<std::filesystem::path> files;
  for (const auto& input : source.inputs) add_files(input, source, files);
  if (files.empty()) refuse_nothing(source);
  for (const auto& file : files) {
    const ForeignFormat format = foreign_format(file);
    if (!format.what.empty() && !(format.is_text && source.kind == SourceKind::kText)) refuse_format(file);
  }
  return files;
}

/// If a later stamp of a file differs, the file has changed.
struct FileStamp {
  int64_t bytes = 0, seconds = 0, nanoseconds = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

FileStamp stamp(const std::filesystem::path& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0)
    fail(ExitCode::kInputData, "{}: went away while it was read", path.string());
  return {status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

}  // namespace

std::string_view to_string(Split split) {
  constexpr std::array<std::string_view, kSplits> kNames = {"train", "validation", "test"};
  return kNames[static_cast<size_t>(split)];
}

std::string_view to_string(SourceKind kind) {
  constexpr std::array<std::string_view, 5> kNames = {"auto", "xsum", "jsonl", "text", "synthetic"};
  return kNames[static_cast<size_t>(kind)];
}

CorpusSource resolve_source(CorpusSource source) {
  if (source.kind == SourceKind::kAuto && source.inputs.empty() && source.examples > 0)
    source.kind = SourceKind::kSynthetic;
  if (source.kind == SourceKind::kSynthetic) {
    if (!source.inputs.empty()) {
      throw Error(ExitCode::kUsage,
                  fmt::format("--source synthetic reads no --input, got {}", source.inputs.front().string()),
                  "leave out one of the two");
    }
    if (source.examples < 1) {
      throw Error(ExitCode::kUsage,
                  fmt::format("--source synthetic needs --examples N of 1 or more, got {}", source.examples),
                  "give --examples 20000, say");
    }
    check_options_of_kind(source);
    return source;
  }
  if (source.inputs.empty()) {
    throw Error(ExitCode::kUsage, "no input", "give --input PATH..., or --source synthetic --examples N");
  }
  std::vector<std::filesystem::path> files = find_files(source);
  if (source.kind == SourceKind::kAuto) source.kind = common_kind(files, source);
  source.inputs = std::move(files);
  check_options_of_kind(source);
  // XSum has hundreds of thousands of articles: a stat of each takes minutes on a network file system. If an
  // article is given twice, prepare drops the second as a duplicate.
  if (source.kind != SourceKind::kXsum) {
    refuse_twice(source.inputs);
    check_first_lines(source);
  }
  return source;
}

std::string_view progress_unit(const CorpusSource& source) {
  if (source.kind == SourceKind::kSynthetic) return "example";
  return source.inputs.size() <= 10'000 ? "byte" : "file";
}

CorpusCounts read_corpus(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink) {
  RIPSTOP_CHECK(source.kind != SourceKind::kAuto, "the source is not resolved");
  if (source.kind == SourceKind::kSynthetic) {
    read_synthetic(source, progress, sink);
    return {};
  }
  // Two stats of each of hundreds of thousands of .summary files take minutes on a network file system.
  const bool watch = progress_unit(source) == "byte";
  std::vector<FileStamp> before;
  progress = {};
  for (const auto& input : source.inputs) {
    if (watch) before.push_back(stamp(input));
    progress.total += watch ? before.back().bytes : 1;
  }
  CorpusCounts counts;
  if (source.kind == SourceKind::kXsum) counts = read_xsum(source, progress, sink);
  if (source.kind == SourceKind::kJsonl || source.kind == SourceKind::kText)
    read_lines(source, progress, sink);
  // prepare must see the same examples each time it reads the input.
  for (size_t i = 0; i < before.size(); ++i) {
    if (!(stamp(source.inputs[i]) == before[i])) {
      throw Error(ExitCode::kInputData,
                  fmt::format("{}: changed while it was read", source.inputs[i].string()),
                  "run again once nothing writes to it");
    }
  }
  return counts;
}

Split split_of_document(Split split, std::string_view document, double validation_fraction) {
  if (split != Split::kTrain || validation_fraction <= 0) return split;
  // The upper 53 bits, as many as a double holds, become a number in [0, 1).
  return static_cast<double>(hash64(document) >> 11) * 0x1p-53 < validation_fraction ? Split::kValidation
                                                                                     : Split::kTrain;
}

void normalize_line_ends(std::string& text) {
  size_t to = 0;
  for (size_t from = 0; from < text.size(); ++from) {
    if (text[from] == '\r' && from + 1 < text.size() && text[from + 1] == '\n') continue;
    text[to++] = text[from];
  }
  text.resize(to);
}

}  // namespace ripstop
