// Checks of the options and the input of prepare(), and errors for input without a usable example.
#pragma once
#include <string>
#include <vector>

#include "data/corpus/corpus.h"
#include "data/prepare/prepare.h"

namespace ripstop {

/// Throws Error(kUsage) for options that cannot work with any input.
void check_options(const PrepareOptions& options, const std::string& prompt_template);

/// Throws Error(kInputData) if a tokenizer must be trained, but no file of the resolved `source` is for train
/// by its name.
void check_train_files(const PrepareOptions& options, const CorpusSource& source);

/// Notes about the resolved `source` that prepare() passes to PrepareOptions::note.
std::vector<std::string> notes_on(const CorpusSource& source);

/// Throws Error(kInputData) because the train split has no usable example to train a tokenizer on.
/// `first_fault` describes the fault of the first example of the split; it is "" if the split has no example
/// at all.
[[noreturn]] void refuse_empty_train(const CorpusSource& source, const std::string& first_fault);

/// Throws Error(kInputData) because no split in `report` has an example.
[[noreturn]] void refuse_empty(const PrepareReport& report);

}  // namespace ripstop
