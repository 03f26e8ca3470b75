// Functions that the readers' sources name and that no fuzz target reaches: with their own sources, half of
// ripstop would be part of a fuzz target.
#include <cstdlib>

#include "data/process/block_threads.h"
#include "parallel/agreement.h"
#include "train/checkpoint/find_run.h"
#include "train/config/nearest_name.h"
#include "train/exchange/hugging_face/generation_file.h"

namespace ripstop {

void Communicator::await(const char*, FunctionRef<bool()>) {
  std::abort();
}

void do_and_agree(Communicator&, FunctionRef<void()>) {
  std::abort();
}

void share_blocks(int64_t, int64_t, FunctionRef<void(int64_t, int64_t)>, FunctionRef<void(int64_t)>) {
  std::abort();
}

JsonReader::Json eos_token_id_json(const SpecialIds&) {
  std::abort();
}

bool is_run(Io&, const std::filesystem::path&) {
  return false;
}

std::string hint_for_absent(const std::filesystem::path&, std::string_view, std::string_view) {
  return "";
}

// Empty, as the fuzz targets write no files of other programs.
ForeignWeights find_foreign_weights(const std::filesystem::path&) {
  return {};
}

}  // namespace ripstop
