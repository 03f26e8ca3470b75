// Files of torch.save with a state dict, such as pytorch_model.bin: where the bytes of each tensor lie.
// Source: PyTorch, torch/serialization.py and caffe2/serialize/inline_container.h.
//
//   NAME/data.pkl     the pickle of the state dict (state_dict.h)
//   NAME/data/17      the storage "17": elements, little-endian
//   NAME/byteorder    "little"; older files do not have it
#pragma once
#include <vector>

#include "train/exchange/hugging_face/safetensors.h"
#include "train/exchange/hugging_face/zip_directory.h"

namespace ripstop {

/// The places of tensors and storages in a weights file.
struct WeightsHeader {
  std::vector<StoredTensor> tensors;
  std::vector<ZipMember> storages;  ///< storages that the tensors use; empty for safetensors
};

/// The tensors of `file`: if its name ends with .bin, the state dict of torch.save, else safetensors. Reads
/// only headers and pickle. Throws what read_safetensors_header, read_zip_directory, check_member and
/// read_state_dict throw, and Error(kInputData), with file and fault, if the file is from PyTorch before 1.6,
/// TorchScript or big-endian, has members in two folders, or lacks the pickle or a storage, or if one of them
/// has a wrong size.
WeightsHeader read_weights_header(const InputFile& file);

}  // namespace ripstop
