// XSum's official distribution: one file an article, plain in a directory or in a tar.gz, and a JSON of
// splits.
#include <algorithm>
#include <array>
#include <optional>

#include "data/corpus/corpus.h"
#include "data/files/hash.h"
#include "data/files/whole_file.h"
#include "data/text/json_fields.h"
#include "data/text/line_input.h"
#include "data/text/tar_input.h"
#include "data/text/utf8.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

// Limits against hostile files. XSum itself stays far below them.
constexpr int64_t kMostArticleBytes = int64_t{64} << 20;
constexpr int64_t kMostSplitBytes = int64_t{1} << 30;

/// Lines of the page around the articles. Hugging Face's XSum loader drops the same.
constexpr std::array<std::string_view, 11> kBoilerplate = {
    "Share this with",
    "Email",
    "Facebook",
    "Messenger",
    "Twitter",
    "Pinterest",
    "WhatsApp",
    "Linkedin",
    "LinkedIn",
    "Copy this link",
    "These are external links and will open in a new window"};

/// The split file, plain or gzip, as one text.
std::string read_split_file(const std::filesystem::path& path) {
  LineInput lines(path);
  std::string text;
  for (std::string line; lines.next(line);) {
    text += line + '\n';
    if (std::ssize(text) > kMostSplitBytes)
      fail(ExitCode::kInputData, "{}: over {} MiB", path.string(), kMostSplitBytes >> 20);
  }
  return text;
}

/// Which split an id belongs to: 16 bytes an id.
class SplitTable {
 public:
  explicit SplitTable(const std::filesystem::path& path) {
    const std::string json = read_split_file(path);
    std::string error, unknown;
    const auto add = [&](const std::string& list, const std::string& id) {
      for (int s = 0; s < kSplits; ++s) {
        if (list == to_string(static_cast<Split>(s))) {
          entries_.push_back(
              {hash64(id.data(), static_cast<int64_t>(id.size())), static_cast<Split>(s), false});
          return;
        }
      }
      unknown = list;
    };
    if (!read_json_string_lists(json, add, error)) fail(ExitCode::kInputData, "{}: {}", path.string(), error);
    if (!unknown.empty()) {
      throw Error(ExitCode::kInputData,
                  fmt::format("{}: split '{}', expected train, validation, test", path.string(), unknown),
                  "rename that list in the file; XSum's own has these three");
    }
    if (entries_.empty()) fail(ExitCode::kInputData, "{}: names no ids", path.string());
    // Sorted hashes instead of a map of strings: 227,000 ids take 4 MiB.
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.id < b.id; });
    const auto twice = std::adjacent_find(entries_.begin(), entries_.end(),
                                          [](const Entry& a, const Entry& b) { return a.id == b.id; });
    // Two ids with one hash end here too. That has a chance of 1 in 10^9 for XSum.
    if (twice != entries_.end()) fail(ExitCode::kInputData, "{}: an id is listed twice", path.string());
  }

  /// The split of `id`, remembering that it was there.
  std::optional<Split> find(const std::string& id) {
    const uint64_t hash = hash64(id.data(), static_cast<int64_t>(id.size()));
    const auto at = std::lower_bound(entries_.begin(), entries_.end(), hash,
                                     [](const Entry& e, uint64_t h) { return e.id < h; });
    if (at == entries_.end() || at->id != hash) return std::nullopt;
    at->seen = true;
    return at->split;
  }
  int64_t absent() const {
    return std::count_if(entries_.begin(), entries_.end(), [](const Entry& e) { return !e.seen; });
  }

 private:
  struct Entry {
    uint64_t id;
    Split split;
    bool seen;
  };
  std::vector<Entry> entries_;
};

/// `text` without blank lines and without boilerplate lines.
std::string drop_boilerplate(std::string_view text) {
  std::string kept;
  kept.reserve(text.size());
  while (!text.empty()) {
    const size_t end =
        std::min(text.size(), text.find('\n') == std::string_view::npos ? text.size() : text.find('\n') + 1);
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end);
    const bool blank = line.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
    // A last line without its line end always stays: Hugging Face's loader compares lines with their end.
    const bool whole = line.ends_with('\n');
    const bool boilerplate = whole && std::find(kBoilerplate.begin(), kBoilerplate.end(),
                                                line.substr(0, line.size() - 1)) != kBoilerplate.end();
    if (!blank && !boilerplate) kept += line;
  }
  return kept;
}

/// Parts of `text` between marks "[SN]" or "[XSUM]", whichever it begins with.
std::vector<std::string_view> split_at_marks(std::string_view text) {
  const std::string_view mark = strip(text).starts_with("[XSUM]") ? "[XSUM]" : "[SN]";
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t at = text.find(mark);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + mark.size());
  }
}

/// Fills the texts of an example from an article file.
void parse_article(std::string bytes, CorpusExample& example) {
  example.invalid_utf8 = invalid_utf8(bytes).has_value();
  if (example.invalid_utf8) return;
  normalize_line_ends(bytes);
  const std::string kept = drop_boilerplate(bytes);
  // "", URL, its line, TITLE, its line, FIRST-SENTENCE, the summary, RESTBODY, the document
  const std::vector<std::string_view> parts = split_at_marks(kept);
  if (parts.size() < 9 || strip(parts[5]) != "FIRST-SENTENCE" || strip(parts[7]) != "RESTBODY") {
    throw Error(ExitCode::kInputData, fmt::format("{}: not an article in XSum's form", example.file),
                "expected [SN]URL[SN] .. [SN]TITLE[SN] .. [SN]FIRST-SENTENCE[SN] .. [SN]RESTBODY[SN] ..");
  }
  example.summary = strip(parts[6]);
  example.document = strip(parts[8]);
}

}  // namespace

CorpusCounts read_xsum(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink) {
  std::optional<SplitTable> splits;
  if (!source.splits.empty()) splits.emplace(source.splits);
  CorpusCounts counts;
  const auto give = [&](const std::string& file_name, const std::string& file,
                        const std::function<std::string()>& content) {
    CorpusExample example;
    example.id = file_name.substr(0, file_name.find('.'));
    example.file = file;
    // Look up the split first: `content` costs a read, and an article without a split is not used.
    const std::optional<Split> split = splits ? splits->find(example.id) : Split::kTrain;
    if (!split) {
      ++counts.unlisted;
      return;
    }
    parse_article(content(), example);
    example.split = split_of_document(*split, example.document, source.validation_fraction);
    sink(example);
  };
  const bool bytes = progress_unit(source) == "byte";
  for (const auto& input : source.inputs) {
    const int64_t done_before = progress.done;
    if (input.extension() == ".summary") {
      give(input.filename().string(), input.string(),
           [&] { return read_whole_file(input, kMostArticleBytes, ExitCode::kInputData); });
      std::error_code ignored;
      progress.done += bytes ? static_cast<int64_t>(std::filesystem::file_size(input, ignored)) : 1;
      continue;
    }
    TarInput tar(input);
    while (tar.next()) {
      if (bytes) progress.done = done_before + tar.bytes_read();
      const std::filesystem::path inside = tar.name();
      const std::string file_name = inside.filename().string();
      // "._1234.summary" is what macOS adds to archives.
      if (inside.extension() != ".summary" || file_name.starts_with("._")) continue;
      give(file_name, input.string() + ":" + tar.name(), [&] { return tar.content(); });
    }
    if (!bytes) progress.done = done_before + 1;
  }
  if (splits) counts.absent_ids = splits->absent();
  return counts;
}

}  // namespace ripstop
