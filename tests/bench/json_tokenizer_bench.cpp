// Encodes the texts of a file with a tokenizer.json, on one thread.
//   build/cpu-release/tests/bench/json_tokenizer_bench TOKENIZER.json TEXTS.jsonl [ids]
// Prints the rate in three turns, or with `ids` what each text becomes, one line of JSON a text.
// Every line of TEXTS.jsonl is a text as a JSON string. tests/data/tokenizer/json_tokenizer_check.py compares
// both with Python's `tokenizers`.
#include <fmt/core.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/files/whole_file.h"
#include "data/tokenizer/json_tokenizer.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

using Special = JsonTokenizer::Special;

/// {"ids": special tokens are read as tokens, "plain": as text, "decoded": of ids, "skipped": without special
/// tokens, "ends": of the tokens in ids}, or {"error": the refusal}.
void print_ids(const JsonTokenizer& tokenizer, const std::string& text) {
  nlohmann::ordered_json line;
  try {
    for (const Special special : {Special::kTokens, Special::kText}) {
      std::vector<int32_t> ids;
      std::vector<int64_t> ends;
      for (const SpannedToken& token : tokenizer.encode(text, special)) {
        ids.push_back(token.id);
        ends.push_back(token.end_byte);
      }
      line[special == Special::kTokens ? "ids" : "plain"] = ids;
      if (special == Special::kText) continue;
      line["ends"] = ends;
      line["decoded"] = tokenizer.decode(ids, false);
      line["skipped"] = tokenizer.decode(ids, true);
    }
  } catch (const Error& error) {
    line = {{"error", error.what()}};
  }
  fmt::print("{}\n", line.dump());
}

double seconds_of(const JsonTokenizer& tokenizer, const std::vector<std::string>& texts) {
  const auto begin = std::chrono::steady_clock::now();
  for (const std::string& text : texts) tokenizer.encode(text, Special::kText);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int run(const char* json, const char* file, bool ids) {
  const auto begin = std::chrono::steady_clock::now();
  const JsonTokenizer tokenizer(read_whole_file(json, int64_t{64} << 20, ExitCode::kInputData), json);
  const double load = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::vector<std::string> texts;
  double bytes = 0;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line); bytes += static_cast<double>(texts.back().size()))
    texts.push_back(nlohmann::json::parse(line).get<std::string>());
  for (const std::string& text : texts)
    if (ids) print_ids(tokenizer, text);
  for (int turn = 0; !ids && turn < 3; ++turn)
    fmt::print("{{\"megabytes_a_second\": {:.2f}, \"load_seconds\": {:.2f}}}\n",
               bytes / seconds_of(tokenizer, texts) / 1e6, load);
  return 0;
}

}  // namespace
}  // namespace ripstop

int main(int count, char** arguments) {
  if (count < 3) {
    fmt::print(stderr, "usage: json_tokenizer_bench TOKENIZER.json TEXTS.jsonl [ids]\n");
    return 64;
  }
  try {
    return ripstop::run(arguments[1], arguments[2], count > 3);
  } catch (const ripstop::Error& error) {
    fmt::print("{}\n", nlohmann::json{{"error", error.what()}}.dump());
    return static_cast<int>(error.code());
  }
}
