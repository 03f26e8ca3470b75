// Compares the rate of `ripstop prepare`, from end to end, with SentencePiece's own rate.
//   build/cpu-release/tests/bench/prepare_bench PAIRS.jsonl TOKENIZER.model [THREADS]
// Measures in turns: (1) the tokenizer on all documents and summaries, in memory, on one thread; (2) the same
// on THREADS threads; (3) prepare() from the file to a committed data set. The last column is the rate of (3)
// divided by THREADS times the rate of (1).
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "data/prepare/prepare.h"
#include "data/tokenizer/tokenizer.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

CorpusSource jsonl(const std::filesystem::path& path) {
  CorpusSource source;
  source.kind = SourceKind::kJsonl;
  source.inputs = {path};
  return resolve_source(source);
}

/// The seconds in which `threads` threads encode all of `texts`, each an equal share.
double encode_alone(const Tokenizer& tokenizer, const std::vector<std::string>& texts, size_t threads) {
  const Clock::time_point begin = Clock::now();
  std::vector<std::thread> workers;
  for (size_t part = 0; part < threads; ++part) {
    workers.emplace_back([&, part] {
      for (size_t i = part; i < texts.size(); i += threads) tokenizer.encode(texts[i]);
    });
  }
  for (std::thread& worker : workers) worker.join();
  return seconds_since(begin);
}

int run(const std::filesystem::path& pairs, const std::filesystem::path& model, size_t threads) {
  std::vector<std::string> texts;
  CorpusProgress position;
  read_corpus(jsonl(pairs), position, [&](CorpusExample& example) {
    texts.push_back(std::move(example.document));
    texts.push_back(std::move(example.summary));
  });
  const Tokenizer tokenizer(model);
  const auto examples = static_cast<double>(texts.size()) / 2;
  fmt::print("{} pairs; pairs a second\n{:>14}{:>14}{:>14}{:>10}\n", texts.size() / 2, "1 thread",
             fmt::format("{} threads", threads), "prepare", "share");
  for (int turn = 0; turn < 3; ++turn) {
    const double one = encode_alone(tokenizer, texts, 1), many = encode_alone(tokenizer, texts, threads);
    PrepareOptions options;
    options.source = jsonl(pairs);
    options.output = std::filesystem::temp_directory_path() / fmt::format("prepare_bench.{}", getpid());
    options.tokenizer = model;
    options.threads = static_cast<int64_t>(threads);
    const Clock::time_point begin = Clock::now();
    prepare(options);
    const double whole = seconds_since(begin);
    std::filesystem::remove_all(options.output);
    fmt::print("{:>14.0f}{:>14.0f}{:>14.0f}{:>10.2f}\n", examples / one, examples / many, examples / whole,
               one / static_cast<double>(threads) / whole);
  }
  return 0;
}

}  // namespace
}  // namespace ripstop

int main(int count, char** arguments) {
  if (count < 3) {
    fmt::print(stderr, "usage: prepare_bench PAIRS.jsonl TOKENIZER.model [THREADS]\n");
    return 64;
  }
  try {
    return ripstop::run(arguments[1], arguments[2], count > 3 ? std::strtoul(arguments[3], nullptr, 10) : 2);
  } catch (const ripstop::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.code());
  }
}
