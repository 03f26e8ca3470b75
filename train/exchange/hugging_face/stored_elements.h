// Tensors of safetensors files as parameters of ripstop: checks them, and reads parts of them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/files/file.h"
#include "parallel/unit_layout.h"
#include "train/exchange/hugging_face/safetensors.h"

namespace ripstop {

/// Throws Error(kInputData) "`directory`: ..." unless `stored` has the shape of `parameter` and is F32, F16
/// or BF16. `made_by`: what decides the shape, for the message: "its config.json makes it".
void require_shape(const std::filesystem::path& directory, const ParameterSpec& parameter,
                   const StoredTensor& stored, const std::string& made_by);

/// "a, b, c, d and 12 more", for messages of one line. `names` must not be empty.
std::string some_of(const std::vector<std::string>& names);

/// Memory that reads of one thread use one after the other.
class ReadBuffer {
 public:
  /// For reads of at most `most_bytes` each; larger ones come in pieces of at most 4 MiB.
  explicit ReadBuffer(int64_t most_bytes);
  char* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_;
  std::unique_ptr<char[]> data_;
};

/// Reads `box` of a parameter from its tensor in `file`, of which require_shape holds, to `to`, the place of
/// the box's first element; its rows are box.stride elements apart. Values of 16 bits become float32 exactly.
/// `turned_head_size`: of a parameter whose rows Hugging Face has in another order (pretrained_row); else 0.
/// Not collective; any thread may call, with a buffer of its own. Throws Error(kInputData) with the place if
/// a value is not finite, and Error(kStorage) as InputFile::read_at.
void read_stored(const InputFile& file, const StoredTensor& stored, const Box& box, int64_t turned_head_size,
                 float* to, const ReadBuffer& buffer);

}  // namespace ripstop
