// Checks of prepare around its work, and messages about input without a usable example.
#pragma once
#include <string>
#include <vector>

#include "data/corpus/corpus.h"
#include "data/prepare/prepare.h"

namespace ripstop {

/// Refuses what is known without looking at the input. Throws Error(kUsage).
void check_options(const PrepareOptions& options, const std::string& prompt_template);

/// Throws Error(kInputData) if a tokenizer is to be learnt and the names of the files of the resolved
/// `source` say that none of them is for train.
void check_train_files(const PrepareOptions& options, const CorpusSource& source);

/// Notes for people about the resolved `source` before the work begins.
std::vector<std::string> notes_on(const CorpusSource& source);

/// Throws Error(kInputData): train has nothing to learn a tokenizer from. `first_fault` is that of the first
/// example of train; empty if train has none.
[[noreturn]] void refuse_empty_train(const CorpusSource& source, const std::string& first_fault);

/// Throws Error(kInputData): no split of `report` has an example. An empty data set would fail much later, in
/// training, with a message that misses the cause.
[[noreturn]] void refuse_empty(const PrepareReport& report);

}  // namespace ripstop
