#include "data/corpus.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "data/compressed_input.h"
#include "data/hash.h"
#include "data/json_fields.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

bool ends_with_one_of(const std::string& text, std::initializer_list<std::string_view> ends) {
  return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return text.ends_with(end); });
}

// Names decide, not contents: a directory may hold files of other programs.
bool is_tar(const std::string& name) {
  return ends_with_one_of(name, {".tar", ".tar.gz", ".tgz"});
}
bool is_jsonl(const std::string& name) {
  return ends_with_one_of(name, {".jsonl", ".jsonl.gz", ".json", ".json.gz"});
}
bool is_plain(const std::string& name) {
  return ends_with_one_of(name, {".txt", ".txt.gz", ".text"});
}
bool is_summary(const std::string& name) {
  return name.ends_with(".summary");
}

/// The kind that a file's name stands for; kAuto if it stands for none.
SourceKind kind_of_name(const std::string& name) {
  if (is_tar(name) || is_summary(name)) return SourceKind::kXsum;
  if (is_jsonl(name)) return SourceKind::kJsonl;
  if (is_plain(name)) return SourceKind::kText;
  return SourceKind::kAuto;
}

/// Files below `path` that a source can read, sorted; or `path` itself if it is a file.
std::vector<std::filesystem::path> files_below(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status))
    fail(ExitCode::kInputData, "{}: no such file or directory", path.string());
  if (!std::filesystem::is_directory(status)) {
    // A pipe can be read only once; prepare reads its input up to three times.
    if (!std::filesystem::is_regular_file(status))
      fail(ExitCode::kInputData, "{}: not a file", path.string());
    return {path};
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && kind_of_name(name) != SourceKind::kAuto) files.push_back(entry.path());
  }
  if (error) fail(ExitCode::kInputData, "{}: cannot list: {}", path.string(), error.message());
  // A directory lists its files in any order. Sorted, the data set is the same on every machine.
  std::sort(files.begin(), files.end());
  return files;
}

/// Whether the first object of a JSONL file is running text: a "text" and no document.
bool first_line_is_text(const std::filesystem::path& path, const std::string& document_field) {
  LineInput lines(path);
  std::string line, error;
  std::map<std::string, JsonField> fields;
  while (lines.next(line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    // Ignore the result: the reader fails on a damaged line later, and tells its place.
    read_json_fields(line, {document_field, "text"}, fields, error);
    return fields.count(document_field) == 0 && fields.count("text") != 0;
  }
  return false;
}

/// Tells whether a file's content changed, without reading it.
struct FileStamp {
  int64_t bytes = 0, seconds = 0, nanoseconds = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

/// Size and time of the last change. Throws if the file has gone.
FileStamp stamp(const std::filesystem::path& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) fail(ExitCode::kInputData, "{}: went away", path.string());
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
    if (!source.inputs.empty()) fail(ExitCode::kUsage, "--source synthetic reads no --input");
    if (source.examples < 1) fail(ExitCode::kUsage, "--source synthetic needs --examples N");
    return source;
  }
  if (source.inputs.empty()) {
    throw Error(ExitCode::kUsage, "no input", "give --input PATH..., or --source synthetic --examples N");
  }
  std::vector<std::filesystem::path> files;
  for (const auto& input : source.inputs) {
    for (auto& file : files_below(input)) files.push_back(std::move(file));
  }
  if (files.empty()) {
    throw Error(ExitCode::kUsage,
                fmt::format("{}: nothing in there can be read", source.inputs.front().string()),
                "looked for .summary, .tar.gz, .jsonl, .jsonl.gz, .txt");
  }
  if (source.kind == SourceKind::kAuto) {
    for (const auto& file : files) {
      SourceKind kind = kind_of_name(file.filename().string());
      // Both kinds of JSONL have the same name: only the fields tell pairs from running text.
      if (kind == SourceKind::kJsonl && first_line_is_text(file, source.document_field))
        kind = SourceKind::kText;
      if (kind == SourceKind::kAuto || (source.kind != SourceKind::kAuto && kind != source.kind)) {
        throw Error(ExitCode::kUsage, fmt::format("{}: cannot tell what this is", file.string()),
                    "say it with --source xsum | jsonl | text");
      }
      source.kind = kind;
    }
  } else if (source.kind == SourceKind::kXsum) {
    // A split file or a README beside the articles is no article.
    std::erase_if(
        files, [](const auto& file) { return kind_of_name(file.filename().string()) != SourceKind::kXsum; });
    if (files.empty())
      fail(ExitCode::kUsage, "{}: no .summary file or .tar.gz", source.inputs.front().string());
  }
  source.inputs = std::move(files);
  for (size_t i = 0; i < source.inputs.size(); ++i) {
    std::error_code ignored;
    // Each file is compared with all before it: too slow for the hundreds of thousands of XSum's articles.
    // prepare drops those that come twice, because it drops equal examples.
    const bool twice = source.kind != SourceKind::kXsum && i > 0 &&
                       std::any_of(source.inputs.begin(), source.inputs.begin() + static_cast<ptrdiff_t>(i),
                                   [&](const auto& other) {
                                     return std::filesystem::equivalent(other, source.inputs[i], ignored);
                                   });
    if (twice) fail(ExitCode::kUsage, "{}: given twice", source.inputs[i].string());
  }
  return source;
}

CorpusCounts read_corpus(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink) {
  RIPSTOP_CHECK(source.kind != SourceKind::kAuto, "the source is not resolved");
  if (source.kind == SourceKind::kSynthetic) {
    read_synthetic(source, progress, sink);
    return {};
  }
  // Do not watch hundreds of thousands of .summary files: a stat of each, twice, takes minutes on a network
  // file system.
  const bool watch = source.inputs.size() <= 10'000;
  std::vector<FileStamp> before;
  progress = {};
  for (const auto& input : source.inputs) {
    if (watch) before.push_back(stamp(input));
    progress.total += watch ? before.back().bytes : 1;
  }
  CorpusCounts counts;
  if (source.kind == SourceKind::kXsum) counts = read_xsum(source, progress, sink);
  if (source.kind == SourceKind::kJsonl) read_jsonl(source, progress, sink);
  if (source.kind == SourceKind::kText) read_text(source, progress, sink);
  // prepare reads the input up to three times, and all passes must see the same examples.
  for (size_t i = 0; i < before.size(); ++i) {
    if (!(stamp(source.inputs[i]) == before[i])) {
      throw Error(ExitCode::kInputData,
                  fmt::format("{}: changed while it was read", source.inputs[i].string()),
                  "run again once nothing writes to it");
    }
  }
  return counts;
}

Split split_of_file(const std::filesystem::path& path) {
  std::string name = path.filename().string();
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (name.starts_with("val") || name.starts_with("dev")) return Split::kValidation;
  if (name.starts_with("test")) return Split::kTest;
  return Split::kTrain;
}

Split split_of_document(Split split, std::string_view document, double validation_fraction) {
  if (split != Split::kTrain || validation_fraction <= 0) return split;
  // The text decides, not a random number: a document that comes twice, or in another order, stays in its
  // split. The upper 53 bits give a number in [0, 1), since a double holds no more.
  const uint64_t hash = hash64(document.data(), static_cast<int64_t>(document.size()));
  return static_cast<double>(hash >> 11) * 0x1p-53 < validation_fraction ? Split::kValidation : Split::kTrain;
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
