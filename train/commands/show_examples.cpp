#include "train/commands/show_examples.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <system_error>

#include "data/dataset/dataset_directory.h"
#include "data/dataset/token_dataset.h"
#include "data/text/json_reader.h"
#include "model/core/error.h"
#include "train/config/nearest_name.h"
#include "train/config/run_config.h"
#include "train/report/human_text.h"
#include "train/report/standard_streams.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
using Json = JsonReader::Json;

constexpr const char* kCountedColor = "1;32";
constexpr const char* kCutColor = "1;33";

std::string colored(const char* color, const std::string& text, const Terminal& terminal) {
  return terminal.colors && !text.empty() ? fmt::format("\x1b[{}m{}\x1b[0m", color, text) : text;
}

std::string cut_place(const CutPlace& cut, const Terminal& terminal) {
  const std::string turns = cut.turns > 0 ? counted(cut.turns, "turn") + ", " : "";
  return colored(kCutColor, fmt::format("<{}{} cut>", turns, counted(cut.tokens, "token")), terminal);
}

// "document 431 (205 cut)".
std::string part_text(const char* name, int64_t tokens, int64_t cut) {
  return fmt::format("{} {}{}", name, tokens, cut > 0 ? fmt::format(" ({} cut)", cut) : "");
}

std::vector<int64_t> examples_to_show(const TokenDataset& dataset, const ShowArguments& given) {
  if (given.seed) return draw_examples(dataset.examples(), given.count, *given.seed);
  std::vector<int64_t> first(static_cast<size_t>(std::min(dataset.examples(), given.count)));
  std::iota(first.begin(), first.end(), int64_t{0});
  return first;
}

// A split, and views of the examples to show.
struct ShownSplit {
  TokenDataset dataset;
  Tokenizer tokenizer;
  std::vector<ExampleView> views;

  /// The example's id in its source; "" if the split has no texts.
  std::string id(const ExampleView& view) const {
    return dataset.header().with_text ? dataset.text(view.example, 1).front().id : "";
  }
};

ShownSplit read_split(const fs::path& directory, const ShowArguments& given) {
  ShownSplit shown{.dataset = TokenDataset(dataset_file(directory, given.split + ".h5")),
                   .tokenizer = Tokenizer(directory),
                   .views = {}};
  require_dataset_tokenizer(shown.dataset, shown.tokenizer);
  require_loss_on({&shown.dataset, 1}, given.loss_on);
  if (shown.dataset.examples() > 0)
    shown.views = view_examples(shown.dataset, examples_to_show(shown.dataset, given),
                                {.sequence_length = given.sequence_length, .loss_on = given.loss_on});
  return shown;
}

Json as_json(const ShownSplit& shown, const ExampleView& view) {
  Json json{{"example", view.example},
            {"id", nullptr},
            {"part", view.piece + 1},
            {"parts", view.pieces},
            {"document_tokens", view.document},
            {"separator_tokens", view.separator},
            {"summary_tokens", view.summary},
            {"cut_document_tokens", view.cut_document},
            {"cut_summary_tokens", view.cut_summary},
            {"turns", view.turns},
            {"cut_turns", view.cut_turns()},
            {"targets", view.target_count()},
            {"ids", view.token},
            {"pieces", Json::array()},
            {"counted", std::vector<bool>(view.token.size())}};
  if (shown.dataset.header().with_text) json["id"] = shown.id(view);
  for (const int32_t id : view.token) json["pieces"].push_back(shown.tokenizer.piece(id).name);
  for (const TokenRange& range : view.targets)
    for (int64_t i = range.begin; i < range.end; ++i) json["counted"][static_cast<size_t>(i)] = true;
  return json;
}

void print_shown_json(const ShownSplit& shown, const ShowArguments& given) {
  Json document{{"file", shown.dataset.path().string()},
                {"split", given.split},
                {"split_examples", shown.dataset.examples()},
                {"sequence_length", nullptr},
                {"loss_on", to_string(resolve_loss_on(shown.dataset.header(), given.loss_on))},
                {"examples", Json::array()}};
  if (given.sequence_length > 0) document["sequence_length"] = given.sequence_length;
  for (const ExampleView& view : shown.views) document["examples"].push_back(as_json(shown, view));
  // Prints JSON on one line, because long lists of numbers would fill pages.
  print_out("{}\n", text_of_json(document));
}

void print_shown_text(const ShownSplit& shown, const ShowArguments& given) {
  const Terminal terminal = terminal_of(stdout);
  print_out("{}: {} of {}, {}; tokens in the loss stand {}\n", shown.dataset.path().string(),
            std::min(given.count, shown.dataset.examples()), counted(shown.dataset.examples(), "example"),
            given.sequence_length > 0 ? fmt::format("cut to a sequence length of {}", given.sequence_length)
                                      : "nothing is cut",
            terminal.colors ? "in bold green" : "between [[ and ]]");
  for (const ExampleView& view : shown.views)
    print_out("\n{}\n{}\n", example_line(view, shown.id(view)),
              example_text(view, shown.tokenizer, terminal));
}

}  // namespace

std::string visible_tokens(const std::vector<int32_t>& ids, const Tokenizer& tokenizer) {
  std::string result, bytes;  // `bytes`: the text since the last special token
  for (const int32_t id : ids) {
    const TokenPiece piece = tokenizer.piece(id);
    bytes += piece.text;
    if (!piece.is_special) continue;
    result += visible_text(bytes) + visible_text(piece.name);
    bytes.clear();
  }
  return result + visible_text(bytes);
}

std::string example_line(const ExampleView& view, std::string_view id) {
  std::string line = fmt::format("example {}", view.example);
  if (view.pieces > 1) line += fmt::format(", piece {} of {}", view.piece + 1, view.pieces);
  // An id with line ends is put on one line.
  if (!id.empty()) line += "  id " + cut_to_width(id, 0);
  if (view.summary == 0) {
    line += "  " + part_text("tokens:", view.document, view.cut_document);
    if (view.turns > 0) line += part_text(", turns", view.turns, view.cut_turns());
  } else {
    line += fmt::format("  tokens: {}, {}, {}", part_text("document", view.document, view.cut_document),
                        part_text("separator", view.separator, 0),
                        part_text("summary", view.summary, view.cut_summary));
  }
  return line + fmt::format("; {} in the loss", view.target_count());
}

std::string example_text(const ExampleView& view, const Tokenizer& tokenizer, const Terminal& terminal) {
  const auto text = [&](int64_t begin, int64_t end) {
    return visible_tokens({view.token.begin() + begin, view.token.begin() + end}, tokenizer);
  };
  const auto marked = [&](const std::string& counts) {
    if (terminal.colors) return colored(kCountedColor, counts, terminal);
    return "[[" + counts + "]]";
  };
  std::string result;
  int64_t at = 0;
  const auto add = [&](int64_t end) {
    for (const TokenRange& range : view.targets) {
      const int64_t begin = std::clamp(range.begin, at, end), stop = std::clamp(range.end, begin, end);
      if (begin == stop) continue;
      result += text(at, begin) + marked(text(begin, stop));
      at = stop;
    }
    result += text(at, end);
    at = end;
  };
  for (const CutPlace& cut : view.cuts) {
    add(cut.at);
    result += cut_place(cut, terminal);
  }
  add(std::ssize(view.token));
  return result;
}

Arguments split_words() {
  return {"train", "validation", "test", "val", "dev", "eval"};
}

std::string split_name(const std::string& word) {
  return word == "val" || word == "dev" ? "validation" : word == "eval" ? "test" : word;
}

std::string splits_with_examples(const fs::path& directory) {
  std::string names;
  for (const char* split : {"train", "validation", "test"}) {
    const fs::path file = directory / fmt::format("{}.h5", split);
    std::error_code ignored;
    if (fs::exists(file, ignored) && TokenDataset(file).examples() > 0)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", split);
  }
  return names;
}

void check_examples_to_show(const fs::path& directory, const ShowArguments& given) {
  std::error_code ignored;
  std::string expected = hint_for_absent(directory, "", given.split + ".h5");
  if (expected.empty()) expected = "name the directory that was given to ripstop prepare as --output";
  if (!fs::exists(directory, ignored))
    throw Error(ExitCode::kUsage,
                fmt::format("{}: no such directory, expected a data set", directory.string()), expected);
  const TokenDataset dataset(dataset_file(directory, given.split + ".h5"));
  if (dataset.examples() > 0) return;
  const std::string others = splits_with_examples(directory);
  throw Error(ExitCode::kInputData, fmt::format("{}: has no examples to show", dataset.path().string()),
              others.empty() ? "prepare the data set again: none of its splits has examples"
                             : fmt::format("name a split that has some with --split: {}", others));
}

void show_examples(const fs::path& directory, const ShowArguments& given) {
  const ShownSplit shown = read_split(directory, given);
  if (given.json)
    print_shown_json(shown, given);
  else if (!shown.views.empty())
    print_shown_text(shown, given);
}

}  // namespace ripstop
