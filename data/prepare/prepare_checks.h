#pragma once
#include <string>
#include <vector>

#include "data/corpus/corpus.h"
#include "data/prepare/prepare.h"

namespace ripstop {

/// Throws Error(kUsage) for options that cannot work with any input.
void check_options(const PrepareOptions& options, const std::string& prompt_template);

/// PrepareOptions::choice, adapted to the chat template, if any: reads names of special tokens as tokens, and
/// takes the template's end token as EOS unless the user named one. Throws Error(kInputData) if "auto" finds
/// no known template, or if the tokenizer lacks the end token, and the errors of Tokenizer().
TokenizerChoice tokenizer_choice(const PrepareOptions& options);

/// Throws Error(kInputData) if a tokenizer is trained, but no file of the resolved `source` counts as train.
void check_train_files(const PrepareOptions& options, const CorpusSource& source);

/// Notes on `source`, which must be resolved, for PrepareOptions::note.
std::vector<std::string> notes_on(const CorpusSource& source);

/// Throws Error(kInputData), because no example of the train split can train a tokenizer. `first_fault`: the
/// fault of the split's first example; "" if the split has no example.
[[noreturn]] void refuse_empty_train(const CorpusSource& source, const std::string& first_fault);

/// Throws Error(kInputData), because no split in `report` has an example.
[[noreturn]] void refuse_empty(const PrepareReport& report);

}  // namespace ripstop
