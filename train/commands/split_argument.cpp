#include "train/commands/split_argument.h"

namespace ripstop {

Arguments split_words() {
  return {"train", "validation", "test", "val", "dev"};
}

std::string split_name(const std::string& word) {
  return word == "val" || word == "dev" ? "validation" : word;
}

}  // namespace ripstop
