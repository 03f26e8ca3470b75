// The common part of benchmarks of training on ranks: their arguments, the model of a preset, and main().
#pragma once
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "model/config.h"
#include "model/core/error.h"
#include "parallel/mpi_world.h"
#include "train/config/run_config.h"

namespace ripstop {

/// Parses the arguments. Prints the help, or what is wrong, and ends the process if there is no more to do.
inline void parse_or_exit(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kUsage));
  }
}

/// Sets the model to that of a preset, with untied embeddings and room for the sequences of the data.
/// Throws Error(kUsage) if there is no such preset.
inline void set_model_of_preset(RunConfig& config, const std::string& name) {
  const ModelPreset* preset = find_model_preset(name);
  if (preset == nullptr) throw Error(ExitCode::kUsage, fmt::format("no preset '{}'", name));
  ModelConfig& model = config.model;
  model = preset->config;
  model.tie_word_embeddings = false;
  if (model.vocab_size == 0) model.vocab_size = 512;
  model.max_position_embeddings = std::max(model.max_position_embeddings, config.data.sequence_length);
}

/// main() of a benchmark that the launcher starts on every rank: `bench(world, parse(argc, argv))`.
template <class Parse, class Bench>
int main_of_ranks(int argc, char** argv, Parse parse, Bench bench) {
  try {
    const auto options = parse(argc, argv);
    MpiWorld world;
    return static_cast<int>(world.run([&] { return bench(world, options); }));
  } catch (const Error& error) {
    fmt::print(stderr, "FATAL {} {}\n", error.what(), error.hint());
    _exit(static_cast<int>(error.code()));
  }
}

}  // namespace ripstop
