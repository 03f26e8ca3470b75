#include "train/exchange/hugging_face/weights_hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "data/files/hash.h"
#include "data/process/block_threads.h"
#include "parallel/agreement.h"

namespace ripstop {
namespace {

constexpr int64_t kDistance = int64_t{16} << 20;

std::string header_of(const std::string& name, const StoredTensor& stored) {
  return fmt::format("{} {} {};", name, stored.dtype, stored.shape_text());
}

// Bytes of a file that are hashed at once.
struct Block {
  const InputFile* file = nullptr;
  int64_t begin = 0, bytes = 0;
};

std::vector<Block> blocks_of(const PretrainedModel& model) {
  std::vector<Block> blocks;
  for (const auto& [name, tensor] : model.tensors)
    for (int64_t at = 0; at < tensor.stored.bytes; at += kDistance)
      blocks.push_back({&model.files[tensor.file], tensor.stored.begin + at,
                        std::min(kDistance, tensor.stored.bytes - at)});
  return blocks;
}

// Through `piece`, so that memory does not grow with the block.
std::string hash_of(const Block& block, std::string& piece) {
  constexpr int64_t kPiece = int64_t{1} << 20;
  StreamHash hash;
  for (int64_t at = 0; at < block.bytes; at += kPiece) {
    piece.resize(static_cast<size_t>(std::min(kPiece, block.bytes - at)));
    block.file->read_at(block.begin + at, piece.data(), std::ssize(piece));
    hash.update(piece);
  }
  return hash.hex();
}

}  // namespace

std::string samples_hash(const PretrainedModel& model) {
  constexpr int64_t kSampleBytes = 4096;
  StreamHash hash;
  std::string sample;
  for (const auto& [name, tensor] : model.tensors) {
    const StoredTensor& stored = tensor.stored;
    hash.update(header_of(name, stored));
    const int64_t last = std::max<int64_t>(stored.bytes - kSampleBytes, 0);
    sample.resize(static_cast<size_t>(stored.bytes - last));
    // From the begin on, and the very end: rows that somebody added are the last ones.
    for (int64_t at = 0; at < last + kDistance; at += kDistance) {
      model.files[tensor.file].read_at(stored.begin + std::min(at, last), sample.data(), std::ssize(sample));
      hash.update(sample);
    }
  }
  return hash.hex();
}

std::string contents_hash(const PretrainedModel& model, Communicator& world,
                          FunctionRef<void(int64_t percent)> watch) {
  const std::vector<Block> blocks = blocks_of(model);
  // One interval a rank, so that each reads forward.
  const int64_t count = std::ssize(blocks), begin = count * world.rank() / world.size(),
                own = count * (world.rank() + 1) / world.size() - begin;
  std::string digests;
  do_and_agree(world, [&] {
    std::vector<std::string> of_block(static_cast<size_t>(own)),
        pieces(static_cast<size_t>(std::min(kBlockThreads, own)));
    share_blocks(
        own, kBlockThreads,
        [&](int64_t thread, int64_t number) {
          of_block[static_cast<size_t>(number)] =
              hash_of(blocks[static_cast<size_t>(begin + number)], pieces[static_cast<size_t>(thread)]);
        },
        [&](int64_t done) { watch(100 * done / own); });
    for (const std::string& digest : of_block) digests += digest;
  });
  StreamHash hash;
  for (const auto& [name, tensor] : model.tensors) hash.update(header_of(name, tensor.stored));
  for (const std::string& of_rank : world.all_gather_text(digests)) hash.update(of_rank);
  return hash.hex();
}

}  // namespace ripstop
