// --split: the words for the splits of a data set.
#pragma once
#include <string>

#include "train/commands/command_line.h"

namespace ripstop {

/// What --split accepts: train, validation and test, and what other tools call them.
Arguments split_words();
/// The split that one of these words names: "validation" for val and dev.
std::string split_name(const std::string& word);

}  // namespace ripstop
