#include "data/corpus/corpus.h"

#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "data/chat/conversation_json.h"
#include "data/corpus/corpus_names.h"
#include "data/files/hash.h"
#include "data/text/json_reader.h"
#include "data/text/line_input.h"
#include "data/text/unpacked_input.h"
#include "data/text/utf8.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

using FileIdentity = std::pair<dev_t, ino_t>;

/// Device and inode of the file or directory at `path`, following links; nullopt if stat() fails.
std::optional<FileIdentity> identity_of(const std::filesystem::path& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return std::nullopt;
  return FileIdentity(status.st_dev, status.st_ino);
}

/// Lists what is below a directory: files to read in `read`, files and folders to pass over in `other`.
class FilesBelow {
 public:
  FilesBelow(std::filesystem::path root, const CorpusSource& source)
      : root_(std::move(root)), source_(source) {
    list(root_);
    // List links last, so that a folder below the root is listed by its own name, not by the name of a link.
    while (!links_.empty()) {
      const std::filesystem::path first = *links_.begin();
      links_.erase(links_.begin());
      if (holds_root(first))
        other.push_back({first, "a link to a folder around this one"});
      else
        list(first);
    }
    // The system lists files in any order. Sort them, so that the data set is the same on every machine.
    std::ranges::sort(read);
    std::ranges::sort(other, {}, &PassedOver::path);
  }

  std::vector<std::filesystem::path> read;
  std::vector<PassedOver> other;

 private:
  /// Lists each directory once, so a loop of links ends.
  void list(const std::filesystem::path& folder) {
    if (const auto identity = identity_of(folder); identity && !listed_.insert(*identity).second) {
      other.push_back({folder, "a link to a folder that is read"});
      return;
    }
    std::error_code error;
    std::filesystem::directory_iterator at(folder, error);
    for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) take(*at);
    if (!error) return;
    if (folder == root_) fail(ExitCode::kInputData, "{}: cannot list: {}", root_.string(), error.message());
    other.push_back({folder, "cannot list: " + error.message()});
  }

  bool holds_root(const std::filesystem::path& folder) const {
    std::error_code error;
    const std::filesystem::path real = std::filesystem::canonical(folder, error);
    const std::filesystem::path root = std::filesystem::canonical(root_, error);
    return std::ranges::mismatch(real, root).in1 == real.end() && real != root;
  }

  void take(const std::filesystem::directory_entry& entry) {
    const std::filesystem::path& path = entry.path();
    std::error_code error;
    if (entry.is_directory(error)) {
      if (!entry.is_symlink(error)) return list(path);
      links_.insert(path);
      return;
    }
    std::string why = why_no_data(path.lexically_relative(root_));
    const bool is_hidden = why == "hidden";
    if (!entry.exists(error))
      why = "a link to nothing";
    else if (!entry.is_regular_file(error))
      why = "not a file";
    if (!is_read_as(source_.kind, path)) {
      if (!is_hidden && path.filename() != source_.splits.filename()) other.push_back({path});
    } else if (why.empty()) {
      read.push_back(path);
    } else {
      other.push_back({path, why});
    }
  }

  std::filesystem::path root_;
  const CorpusSource& source_;
  std::set<FileIdentity> listed_;
  std::set<std::filesystem::path> links_;  // links to directories that are not listed yet
};

[[noreturn]] void refuse_absent(const std::string& path) {
  std::string hint = "--input takes files and directories of this host; nothing is downloaded";
  if (path.empty()) hint = "--input is empty: a variable of the shell may not be set";
  if (path == "-") hint = "prepare reads its input several times: write it to a file, and give that";
  if (path.find_first_of("*?[") != std::string::npos)
    hint = "the shell puts files in place of a pattern only if it has no quotes and a file fits";
  throw Error(ExitCode::kInputData, fmt::format("{}: no such file or directory", path), hint);
}

/// Adds the file `path`, or the files below the directory `path`, to `files`.
void add_files(const std::filesystem::path& path, CorpusSource& source,
               std::vector<std::filesystem::path>& files) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (!std::filesystem::exists(status)) refuse_absent(path.string());
  if (std::filesystem::is_directory(status)) {
    FilesBelow below(path, source);
    std::ranges::move(below.read, std::back_inserter(files));
    std::ranges::move(below.other, std::back_inserter(source.passed_over));
    return;
  }
  // prepare reads its input several times, but a pipe can be read only once.
  if (!std::filesystem::is_regular_file(status)) {
    throw Error(ExitCode::kInputData, fmt::format("{}: not a file", path.string()),
                "prepare reads its input several times: write it to a file first");
  }
  // With --source xsum, pass over other files that a shell pattern matches: the split file, a README.
  const bool is_other = source.kind == SourceKind::kXsum && !is_read_as(source.kind, path);
  if (is_other)
    source.passed_over.push_back({path});
  else
    files.push_back(path);
}

/// The kind of a JSONL file, by its first object: kJsonl if it has a document or a summary, kMessages if it
/// has a conversation, kText if it has a "text", else kJsonl. Skips blank lines and invalid UTF-8. Returns
/// kJsonl for a damaged line, which read_lines() refuses.
SourceKind kind_of_first_line(const std::filesystem::path& path, const CorpusSource& source) {
  LineInput lines(path);
  for (std::string line; lines.next(line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos || invalid_utf8(line)) continue;
    const auto object = nlohmann::json::parse(with_nulls_for_nan(line), nullptr, /*allow_exceptions=*/false);
    if (object.contains(source.document_field) || object.contains(source.summary_field)) break;
    if (has_conversation(object)) return SourceKind::kMessages;
    return object.contains("text") ? SourceKind::kText : SourceKind::kJsonl;
  }
  return SourceKind::kJsonl;
}

/// Refuses UTF-16 with a byte order mark, as spreadsheets and PowerShell write it.
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

/// Refuses UTF-16 files, and JSONL files whose first line is bad. Otherwise prepare would notice a bad file
/// only after hours of work on the files before it.
void check_first_lines(const CorpusSource& source) {
  // On a network file system, opening more files would take too long.
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
    throw Error(
        ExitCode::kUsage,
        fmt::format("--splits is for XSum's articles, the source is {}", to_string(source.kind)),
        "the names of files and folders decide: val, valid or dev, test or eval, and train for any other");
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

/// The kind that all `files` have in common. Refuses files of different or unknown kinds.
SourceKind common_kind(const std::vector<std::filesystem::path>& files, const CorpusSource& source) {
  SourceKind common = SourceKind::kAuto;
  for (const auto& file : files) {
    SourceKind kind = kind_of_name(file);
    if (kind == SourceKind::kJsonl) kind = kind_of_first_line(file, source);
    if (kind == SourceKind::kAuto) {
      throw Error(ExitCode::kUsage, fmt::format("{}: cannot tell what this is by its name", file.string()),
                  "say it with --source xsum | jsonl | text | messages");
    }
    if (common != SourceKind::kAuto && kind != common) {
      throw Error(ExitCode::kUsage,
                  fmt::format("{} is {}, {} is {}: cannot tell what all of them are", files.front().string(),
                              to_string(common), file.string(), to_string(kind)),
                  "say it with --source xsum | jsonl | text | messages, or prepare them one after another");
    }
    common = kind;
  }
  return common;
}

/// Keeps one name of each file in source.inputs, preferably not a link, because a second name would only give
/// duplicate examples. Throws Error(kUsage) instead of dropping a name that the user gave.
void drop_second_names(CorpusSource& source) {
  std::set<FileIdentity> seen;
  std::vector<std::filesystem::path>& files = source.inputs;
  for (const bool links : {false, true}) {
    std::erase_if(files, [&](const auto& file) {
      std::error_code ignored;
      const auto identity = identity_of(file);
      if (std::filesystem::is_symlink(file, ignored) != links || !identity || seen.insert(*identity).second)
        return false;
      if (std::ranges::find(source.given, file) != source.given.end())
        throw Error(ExitCode::kUsage, fmt::format("{}: given twice", file.string()),
                    "name each file once, and none that lies in a directory that is named, too");
      source.passed_over.push_back({file, "another name of a file that is read"});
      return true;
    });
  }
}

/// Throws Error(kUsage), because the source reads none of the inputs.
[[noreturn]] void refuse_nothing(const CorpusSource& source) {
  for (const PassedOver& file : source.passed_over)
    if (!foreign_format(file.path).what.empty()) refuse_format(file.path);
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

/// Returns the files to read and sets source.passed_over. Throws Error(kUsage) if there is no file or a
/// foreign format, Error(kInputData) for a path that cannot be read.
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

/// Size and modification time of a file. If a later stamp differs, the file has changed.
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
  source.given = std::exchange(source.inputs, std::move(files));
  check_options_of_kind(source);
  // Skip XSum: stat() of hundreds of thousands of articles takes minutes on a network file system, and
  // prepare drops the second copy of an article as a duplicate.
  if (source.kind != SourceKind::kXsum) {
    drop_second_names(source);
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
  // Watch for changes only in few files: stat() of 200,000, twice, takes minutes on a network file system.
  const bool watch = progress_unit(source) == "byte";
  std::vector<FileStamp> before;
  progress = {};
  for (const auto& input : source.inputs) {
    if (watch) before.push_back(stamp(input));
    progress.total += watch ? before.back().bytes : 1;
  }
  CorpusCounts counts;
  if (source.kind == SourceKind::kXsum)
    counts = read_xsum(source, progress, sink);
  else
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

}  // namespace ripstop
