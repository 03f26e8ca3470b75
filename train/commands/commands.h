// The verbs of ripstop, one file each. To add one: its file here and in train/CMakeLists.txt, its declaration
// below, its line in the table of main.cpp.
//
// A verb binds options to local variables, calls parse(), does its work and returns the exit code:
//
//   ExitCode run_status(CLI::App& app, const Arguments& arguments) {
//     std::vector<std::string> directories;
//     app.add_option("DIR", directories, "run directories")->required();
//     set_example(app, "ripstop status runs/*");
//     parse(app, arguments);
//     ...
//   }
//
// What fails is thrown as Error; main prints its FATAL line and exits with its code. A verb writes results
// for people to stdout, from rank 0 only, and with --json one JSON document and nothing else.
#pragma once
#include "train/commands/command_line.h"

namespace ripstop {

ExitCode run_config_table(CLI::App& app, const Arguments& arguments);
ExitCode run_checkpoint(CLI::App& app, const Arguments& arguments);
ExitCode run_doctor(CLI::App& app, const Arguments& arguments);
ExitCode run_evaluate(CLI::App& app, const Arguments& arguments);
ExitCode run_plan(CLI::App& app, const Arguments& arguments);
ExitCode run_prepare(CLI::App& app, const Arguments& arguments);
ExitCode run_rouge(CLI::App& app, const Arguments& arguments);
ExitCode run_status(CLI::App& app, const Arguments& arguments);
ExitCode run_summarize(CLI::App& app, const Arguments& arguments);
ExitCode run_train(CLI::App& app, const Arguments& arguments);

}  // namespace ripstop
