// Gives bytes of unknown origin to the reader of torch.save's files. The fuzz targets and the test that
// replays their corpus share it.
#pragma once
#include <string>

#include "tests/fuzz/pretrained_inputs.h"
#include "tests/train/exchange/torch_writer.h"
#include "train/exchange/hugging_face/torch_file.h"

namespace ripstop {

/// Every member throws std::logic_error if a promise is broken; any other exception that leaves it is a bug
/// as well.
class TorchInputs {
 public:
  using Outcome = PretrainedInputs::Outcome;

  /// Reads `bytes` as pytorch_model.bin.
  Outcome archive(const std::string& bytes) const {
    write_bytes(file(), bytes);
    return PretrainedInputs::tried([&] {
      const InputFile file(this->file());
      const WeightsHeader header = read_weights_header(file);
      const auto is_inside = [&](int64_t begin, int64_t bytes) {
        return begin >= 0 && bytes >= 0 && begin <= file.bytes() && bytes <= file.bytes() - begin;
      };
      for (const ZipMember& storage : header.storages)
        PretrainedInputs::require(is_inside(storage.begin, storage.bytes), "a storage lies in its file");
      for (const StoredTensor& tensor : header.tensors) {
        PretrainedInputs::require(is_inside(tensor.begin, tensor.bytes), "a tensor lies in its file");
        int64_t elements = 1;
        for (const int64_t size : tensor.shape) elements *= size;
        PretrainedInputs::require(
            !tensor.strides.empty() || tensor.bytes == elements * dtype_bytes(tensor.dtype),
            "a tensor without strides has the bytes of its shape");
        if (elements > 0 && elements < 4096) read(file, tensor);
      }
    });
  }

  /// Reads `bytes` as data.pkl of an archive that is right, with storages of 16 bytes.
  Outcome pickle(const std::string& bytes) const {
    Storages storages;
    for (const char* name : {"0", "1", "2"}) storages[name] = std::string(16, '\1');
    return archive(zip_bytes(torch_members(bytes, storages)));
  }

 private:
  std::filesystem::path file() const { return scratch_ / "pytorch_model.bin"; }

  static void read(const InputFile& file, const StoredTensor& tensor) {
    if (!find_export_dtype(tensor.dtype) || tensor.shape.empty() || tensor.shape.size() > 2) return;
    const UnitSpec unit{.name = "w",
                        .tensors = {{{{.name = "w",
                                       .rows = tensor.shape.size() == 1 ? 1 : tensor.shape[0],
                                       .columns = tensor.shape.back()}}}}};
    const UnitLayout layout(unit, 1, 0, 1);
    std::vector<float> values(static_cast<size_t>(layout.elements()));
    read_stored(layout, 0, layout.elements(), values.data(), 1, [&](const std::string&) {
      return StoredPlace{file, tensor};
    });
  }

  ScratchDirectory scratch_;
};

}  // namespace ripstop
