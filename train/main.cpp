// The program: picks the verb, catches what it throws, ends with the exit code.
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "parallel/launcher.h"
#include "parallel/mpi_world.h"
#include "train/commands/commands.h"
#include "train/config/nearest_name.h"
#include "train/machine/version.h"

namespace ripstop {
namespace {

struct Verb {
  const char* name;
  const char* summary;  // empty: for this project's own use, not listed
  ExitCode (*run)(CLI::App& app, const Arguments& arguments);
};

const Verb kVerbs[] = {
    {"config-table", "", run_config_table},
    {"checkpoint", "lists, shows and verifies checkpoints", run_checkpoint},
    {"doctor", "what was built, what this machine has", run_doctor},
    {"evaluate", "loss, perplexity and ROUGE of a trained model on a split", run_evaluate},
    {"plan", "memory and traffic of a step, before it is started", run_plan},
    {"prepare", "text to tokenizer and HDF5, offline, on a login node", run_prepare},
    {"rouge", "ROUGE-1, ROUGE-2 and ROUGE-L of texts against references", run_rouge},
    {"status", "runs, last step, loss, speed, state; from files alone", run_status},
    {"summarize", "summaries of documents, by a trained model", run_summarize},
    {"train", "one training run, alone or on all ranks of mpirun or srun", run_train},
};

void print_help() {
  fmt::print("ripstop {}: trains LLaMA-2-style transformers on a mesh of ranks\n\n", version());
  fmt::print("usage: ripstop VERB [arguments]\n\n");
  for (const Verb& verb : kVerbs)
    if (*verb.summary != '\0') fmt::print("  {:<12}{}\n", verb.name, verb.summary);
  fmt::print("\n  ripstop VERB --help   shows its options and an example\n");
  fmt::print("  ripstop --version     version and commit\n");
  fmt::print(
      "\nexit codes: 0 done, 64 command line or config, 65 input data, 70 bug, 74 storage,\n"
      "  75 checkpointed and asks to be requeued, 76 communication, 77 numerics, 78 resources or mesh\n");
}

ExitCode unknown_verb(const std::string& name) {
  std::vector<std::string> names;
  for (const Verb& verb : kVerbs) names.emplace_back(verb.name);
  const std::string nearest = nearest_name(name, names);
  throw CommandLineError(
      fmt::format("unknown verb '{}'", name),
      nearest.empty() ? "ripstop --help lists the verbs" : fmt::format("did you mean '{}'?", nearest));
}

ExitCode run_verb(const Verb& verb, const Arguments& arguments) {
  CLI::App app{verb.summary, fmt::format("ripstop {}", verb.name)};
  try {
    return verb.run(app, arguments);
  } catch (const CLI::CallForHelp&) {
    if (launch_rank() == 0) fmt::print("{}", app.help());
    return ExitCode::kOk;
  }
}

ExitCode run(const Arguments& words) {
  if (words.empty()) throw CommandLineError("a verb is required", "ripstop --help lists the verbs");
  const std::string& name = words.front();
  if (name == "--help" || name == "-h" || name == "help") {
    if (launch_rank() == 0) print_help();
    return ExitCode::kOk;
  }
  if (name == "--version") {
    if (launch_rank() == 0) fmt::print("ripstop {} ({})\n", version(), git_commit());
    return ExitCode::kOk;
  }
  for (const Verb& verb : kVerbs)
    if (name == verb.name) return run_verb(verb, Arguments(words.begin() + 1, words.end()));
  return unknown_verb(name);
}

// Ends the process at once: no MPI_Finalize, which would wait for ranks that do not come.
[[noreturn]] void end_failed(const Error& error, bool speaks = true) {
  std::fflush(stdout);
  if (speaks) fmt::print(stderr, "{}\n", fatal_line(error, launch_rank()));
  std::fflush(stderr);
  if (launch_size() > 1)  // the other ranks end at this moment too
    std::this_thread::sleep_for(std::chrono::duration<double>(MpiWorld::kSecondsToEnd));
  _exit(static_cast<int>(error.code()));
}

void check_output_was_written() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw Error(ExitCode::kStorage, "cannot write to standard output", "is the disk full?");
}

}  // namespace
}  // namespace ripstop

int main(int argc, char** argv) {
  using ripstop::Error;
  using ripstop::ExitCode;
  try {
    const ExitCode code = ripstop::run({argv + 1, argv + argc});
    ripstop::check_output_was_written();
    return static_cast<int>(code);
  } catch (const ripstop::CommandLineError& error) {
    ripstop::end_failed(error, ripstop::launch_rank() == 0);
  } catch (const Error& error) {
    ripstop::end_failed(error);
  } catch (const std::bad_alloc&) {
    ripstop::end_failed(Error(ExitCode::kResources, "out of host memory"));
  } catch (const std::system_error& error) {
    ripstop::end_failed(Error(ExitCode::kStorage, error.what()));
  } catch (const std::exception& error) {
    ripstop::end_failed(Error(ExitCode::kBug, error.what(), "please report this"));
  }
}
