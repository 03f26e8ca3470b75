// Checks of prepare's options and input, and its errors for input without a usable example.
#pragma once
#include <string>
#include <vector>

#include "data/corpus/corpus.h"
#include "data/prepare/prepare.h"

namespace ripstop {

/// Throws Error(kUsage) for options that cannot work with any input.
void check_options(const PrepareOptions& options, const std::string& prompt_template);

/// Throws Error(kInputData) if a tokenizer must be trained and, by their names, none of the files of the
/// resolved `source` is for train.
void check_train_files(const PrepareOptions& options, const CorpusSource& source);

/// Notes about the resolved `source`, for PrepareOptions::note.
std::vector<std::string> notes_on(const CorpusSource& source);

/// Throws Error(kInputData): the train split has no usable example to train a tokenizer on. `first_fault`
/// describes the fault of its first example; "" if it has no example at all.
[[noreturn]] void refuse_empty_train(const CorpusSource& source, const std::string& first_fault);

/// Throws Error(kInputData): no split of `report` has an example.
[[noreturn]] void refuse_empty(const PrepareReport& report);

}  // namespace ripstop
