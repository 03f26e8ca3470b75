// Writes files of torch.save, member by member and opcode by opcode. Tests can damage each part.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/files/hash.h"
#include "tests/train/exchange/pretrained_directory.h"
#include "train/exchange/hugging_face/state_dict.h"

namespace ripstop {

/// The lowest `bytes` bytes of `value`, little-endian.
inline std::string number_bytes(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

struct MemberToWrite {
  std::string name, bytes;
  uint16_t flags = 0, method = 0;
  std::optional<uint32_t> crc = {};  ///< instead of the right one
  std::optional<size_t> begin = {};  ///< place in the directory, instead of the right one
};

/// A ZIP archive. `zip64`: with all sizes and places in zip64 fields.
inline std::string zip_bytes(const std::vector<MemberToWrite>& members, bool zip64 = false) {
  std::string data, directory;
  for (const MemberToWrite& member : members) {
    const uint64_t begin = member.begin.value_or(data.size()), size = member.bytes.size();
    const auto small = [&](uint64_t value) { return number_bytes(zip64 ? 0xffffffff : value, 4); };
    const std::string facts = number_bytes(20, 2) + number_bytes(member.flags, 2) +
                              number_bytes(member.method, 2) + number_bytes(0, 4) +
                              number_bytes(member.crc.value_or(crc32(member.bytes)), 4) + small(size) +
                              small(size) + number_bytes(member.name.size(), 2);
    const std::string extra = zip64 ? "\1" + number_bytes(24 << 8, 3) + number_bytes(size, 8) +
                                          number_bytes(size, 8) + number_bytes(begin, 8)
                                    : "";
    data += "PK\3\4" + facts + number_bytes(5, 2) + member.name + "extra" + member.bytes + "a descriptor";
    directory += "PK\1\2" + number_bytes(20, 2) + facts + number_bytes(extra.size(), 2) +
                 std::string(10, '\0') + small(begin) + member.name + extra;
  }
  const uint64_t begin = data.size(), size = directory.size(), count = members.size();
  std::string bytes = data + directory;
  if (zip64)
    bytes += "PK\6\6" + number_bytes(44, 8) + std::string(12, '\0') + number_bytes(count, 8) +
             number_bytes(count, 8) + number_bytes(size, 8) + number_bytes(begin, 8) + "PK\6\7" +
             number_bytes(0, 4) + number_bytes(begin + size, 8) + number_bytes(1, 4);
  return bytes + "PK\5\6" + number_bytes(0, 4) + number_bytes(count, 2) + number_bytes(count, 2) +
         number_bytes(zip64 ? 0xffffffff : size, 4) + number_bytes(zip64 ? 0xffffffff : begin, 4) +
         number_bytes(0, 2);
}

// Opcodes of a pickle.
inline std::string text_op(const std::string& text) {
  return "X" + number_bytes(text.size(), 4) + text;
}
inline std::string integer_op(int64_t number) {
  return number == static_cast<int32_t>(number) ? "J" + number_bytes(static_cast<uint64_t>(number), 4)
                                                : "\x8a\x08" + number_bytes(static_cast<uint64_t>(number), 8);
}
inline std::string tuple_op(const std::vector<int64_t>& numbers) {
  std::string text = "(";
  for (const int64_t number : numbers) text += integer_op(number);
  return text + "t";
}

inline std::string tensor_op(const PickledTensor& tensor) {
  static const std::map<std::string, std::string> kTypes = {{"F32", "Float"},     {"F16", "Half"},
                                                            {"BF16", "BFloat16"}, {"F64", "Double"},
                                                            {"I64", "Long"},      {"I8", "Char"}};
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + text_op("storage") + "ctorch\n" + kTypes.at(tensor.dtype) +
         "Storage\n" + text_op(tensor.storage) + text_op("cpu") + integer_op(tensor.storage_elements) + "tQ" +
         integer_op(tensor.offset) + tuple_op(tensor.shape) + tuple_op(tensor.strides) +
         "\x89"
         "ccollections\nOrderedDict\n)RtR";
}

inline std::string state_dict_op(const std::vector<PickledTensor>& tensors) {
  std::string text = "}(";
  for (const PickledTensor& tensor : tensors) text += text_op(tensor.name) + tensor_op(tensor);
  return text + "u";
}

/// data.pkl of a state dict, or of other `opcodes`.
inline std::string pickle_bytes(const std::string& opcodes) {
  return "\x80\x02" + opcodes + ".";
}

using Storages = std::map<std::string, std::string>;

inline std::vector<MemberToWrite> torch_members(const std::string& pickle, const Storages& storages) {
  std::vector<MemberToWrite> members = {{"model/data.pkl", pickle}, {"model/byteorder", "little"}};
  for (const auto& [name, bytes] : storages) members.push_back({"model/data/" + name, bytes});
  members.push_back({"model/version", "3\n"});
  return members;
}

/// The tensors, row-major in storages of their own, or if `turned` matrices in column-major order.
inline std::string torch_bytes(const std::vector<TensorToWrite>& tensors, bool turned = false) {
  std::vector<PickledTensor> pickled;
  Storages storages;
  for (const TensorToWrite& tensor : tensors) {
    const std::string key = std::to_string(pickled.size());
    std::string bytes = tensor.values;
    bytes.resize(static_cast<size_t>(tensor.bytes()));
    int64_t elements = 1;
    for (const int64_t size : tensor.shape) elements *= size;
    std::vector<int64_t> strides(tensor.shape.size(), 1);
    if (strides.size() == 2) strides[0] = tensor.shape[1];
    if (turned && strides.size() == 2) {
      const size_t element = bytes.size() / static_cast<size_t>(elements);
      const auto rows = static_cast<size_t>(tensor.shape[0]), columns = static_cast<size_t>(tensor.shape[1]);
      const std::string before = bytes;
      for (size_t row = 0; row < rows; ++row)
        for (size_t column = 0; column < columns; ++column)
          bytes.replace((column * rows + row) * element, element, before, (row * columns + column) * element,
                        element);
      strides = {1, tensor.shape[0]};
    }
    storages[key] = bytes;
    pickled.push_back({.name = tensor.name,
                       .dtype = tensor.dtype,
                       .storage = key,
                       .storage_elements = elements,
                       .shape = tensor.shape,
                       .strides = strides});
  }
  return zip_bytes(torch_members(pickle_bytes(state_dict_op(pickled)), storages));
}

}  // namespace ripstop
