// XSum as distributed: a file for each article, in a directory or a tar.gz, and a JSON file of splits.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus/corpus.h"
#include "data/files/hash.h"
#include "data/files/whole_file.h"
#include "data/text/json_reader.h"
#include "data/text/line_input.h"
#include "data/text/tar_input.h"
#include "data/text/utf8.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

// Limits against hostile files, far above the sizes in XSum.
constexpr int64_t kMostArticleBytes = int64_t{64} << 20;
constexpr int64_t kMostSplitBytes = int64_t{1} << 30;

/// Lines of the web page around an article, which Hugging Face's XSum loader drops, too.
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

/// The split of each article id. An entry takes 16 bytes.
class SplitTable {
 public:
  explicit SplitTable(const std::filesystem::path& path) {
    const JsonReader reader(path.string(), ExitCode::kInputData);
    const JsonReader::Json json = reader.parse(read_split_file(path));
    for (const auto& [list, ids] : json.items()) {
      int split = 0;
      while (split < kSplits && list != to_string(static_cast<Split>(split))) ++split;
      if (split == kSplits)
        reader.refuse_with("rename that list in the file; XSum's own has these three",
                           "split '{}', expected train, validation, test", list);
      if (!ids.is_array() ||
          !std::all_of(ids.begin(), ids.end(), [](const auto& id) { return id.is_string(); }))
        reader.refuse("expected an object of arrays of strings");
      for (const auto& id : ids)
        entries_.push_back({hash64(id.get_ref<const std::string&>()), static_cast<Split>(split)});
    }
    if (entries_.empty()) reader.refuse("names no ids");
    std::ranges::sort(entries_, {}, &Entry::id_hash);
    // Two different ids with one hash are refused, too: for XSum the probability is 1 in 10^9.
    if (std::ranges::adjacent_find(entries_, {}, &Entry::id_hash) != entries_.end())
      reader.refuse("an id is listed twice");
  }

  /// Returns the split of `id` and marks `id` as seen; nullopt if the split file does not list `id`.
  std::optional<Split> find(const std::string& id) {
    const uint64_t hash = hash64(id);
    const auto at = std::ranges::lower_bound(entries_, hash, {}, &Entry::id_hash);
    if (at == entries_.end() || at->id_hash != hash) return std::nullopt;
    at->seen = true;
    return at->split;
  }
  /// Number of listed ids for which find() was not called.
  int64_t absent() const { return std::ranges::count(entries_, false, &Entry::seen); }

 private:
  struct Entry {
    uint64_t id_hash;
    Split split;
    bool seen = false;
  };
  std::vector<Entry> entries_;
};

std::string drop_boilerplate(std::string_view text) {
  std::string kept;
  kept.reserve(text.size());
  while (!text.empty()) {
    const std::string_view line = text.substr(0, std::min(text.size(), text.find('\n')) + 1);
    text.remove_prefix(line.size());
    const bool blank = line.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
    // Hugging Face's loader compares lines with line ends, so it keeps a last line without a line end.
    const bool whole = line.ends_with('\n');
    const bool boilerplate = whole && std::find(kBoilerplate.begin(), kBoilerplate.end(),
                                                line.substr(0, line.size() - 1)) != kBoilerplate.end();
    if (!blank && !boilerplate) kept += line;
  }
  return kept;
}

/// Splits at the marks, which are either all "[SN]" or all "[XSUM]".
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

void parse_article(std::string_view bytes, CorpusExample& example) {
  example.invalid_utf8 = invalid_utf8(bytes).has_value();
  if (example.invalid_utf8) return;
  const std::string kept = drop_boilerplate(replace_all(bytes, "\r\n", "\n"));
  // Parts: "", "URL", the URL, "TITLE", the title, "FIRST-SENTENCE", the summary, "RESTBODY", the document.
  const std::vector<std::string_view> parts = split_at_marks(kept);
  if (parts.size() < 9 || strip(parts[5]) != "FIRST-SENTENCE" || strip(parts[7]) != "RESTBODY") {
    throw Error(ExitCode::kInputData, fmt::format("{}: not an article in XSum's form", example.file),
                "expected [SN]URL[SN] .. [SN]TITLE[SN] .. [SN]FIRST-SENTENCE[SN] .. [SN]RESTBODY[SN] ..");
  }
  example.summary = strip(parts[6]);
  example.document = strip(parts[8]);
}

/// Takes an article: its file name, its path for error messages, and a function that returns its content.
using TakeArticle = std::function<void(const std::string& file_name, const std::string& file,
                                       const std::function<std::string()>&)>;

/// The links of an archive: path of the link, path of its target.
using Links = std::map<std::string, std::string>;

/// The path of the file to which `path` leads over at most 40 links, as many as the system follows.
std::string end_of_links(const Links& links, std::string path) {
  auto at = links.find(path);
  for (int steps = 0; at != links.end() && steps < 40; ++steps) at = links.find(path = at->second);
  return path;
}

/// Whether `path` in an archive is an article's: .summary and not hidden, as macOS's "._1234.summary" is.
bool is_article(const std::filesystem::path& path) {
  const auto is_hidden = [](const auto& part) { return part.string().size() > 2 && part.string()[0] == '.'; };
  return path.extension() == ".summary" && std::ranges::none_of(path, is_hidden);
}

/// Calls `take` for the articles that are links. Reads the archive again for them, because a link may come
/// before its file. Returns the number of those that lead to no file.
int64_t read_linked(const std::filesystem::path& input, const Links& links, const TakeArticle& take) {
  std::map<std::string, std::vector<std::string>> names;  // names of the links to a file, by its path
  for (const auto& [name, to] : links)
    if (is_article(name)) names[end_of_links(links, to)].push_back(name);
  if (names.empty()) return 0;
  TarInput tar(input);
  while (tar.next()) {
    const auto found = names.find(std::filesystem::path(tar.name()).lexically_normal());
    if (!tar.link().empty() || found == names.end()) continue;
    const std::string content = tar.content();
    for (const std::string& name : found->second)
      take(std::filesystem::path(name).filename(), input.string() + ":" + name, [&] { return content; });
    names.erase(found);
  }
  int64_t lost = 0;
  for (const auto& [file, links_to_it] : names) lost += std::ssize(links_to_it);
  return lost;
}

}  // namespace

CorpusCounts read_xsum(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink) {
  std::optional<SplitTable> splits;
  if (!source.splits.empty()) splits.emplace(source.splits);
  CorpusCounts counts;
  const TakeArticle give = [&](const std::string& file_name, const std::string& file,
                               const std::function<std::string()>& content) {
    CorpusExample example;
    example.id = file_name.substr(0, file_name.find('.'));
    example.file = file;
    // Look up the split first: the content of an article without a split need not be read.
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
      const auto size = bytes ? std::filesystem::file_size(input, ignored) : 1;
      progress.done += ignored ? 0 : static_cast<int64_t>(size);
      continue;
    }
    TarInput tar(input);
    Links links;
    while (tar.next()) {
      if (bytes) progress.done = done_before + tar.bytes_read();
      const std::filesystem::path inside = tar.name();
      if (!tar.link().empty()) links.emplace(inside.lexically_normal().string(), tar.link());
      if (!is_article(inside) || !tar.link().empty()) continue;
      give(inside.filename(), input.string() + ":" + tar.name(), [&] { return tar.content(); });
    }
    counts.lost_links += read_linked(input, links, give);
    if (!bytes) progress.done = done_before + 1;
  }
  if (splits) counts.absent_ids = splits->absent();
  return counts;
}

}  // namespace ripstop
