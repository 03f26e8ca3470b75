// The verbs of ripstop. To add one: write its file here (rouge.cpp is a short example), list the file in
// train/CMakeLists.txt, declare its function below, and name the function in the list of main.cpp. An action
// throws Error if it fails. It prints results on rank 0 only; with --json, one JSON document, nothing else.
#pragma once

namespace ripstop {

class CommandLine;

void add_check(CommandLine& line);
void add_checkpoint(CommandLine& line);
void add_config_table(CommandLine& line);
void add_doctor(CommandLine& line);
void add_evaluate(CommandLine& line);
void add_plan(CommandLine& line);
void add_prepare(CommandLine& line);
void add_report(CommandLine& line);
void add_rouge(CommandLine& line);
void add_status(CommandLine& line);
void add_summarize(CommandLine& line);
void add_train(CommandLine& line);

}  // namespace ripstop
