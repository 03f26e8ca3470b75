#include "train/exchange/hugging_face/torch_file.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "data/text/json_reader.h"
#include "data/text/utf8.h"
#include "train/exchange/hugging_face/state_dict.h"

namespace ripstop {
namespace {

class TorchReader : public JsonReader {
 public:
  explicit TorchReader(const InputFile& file)
      : JsonReader(file.path().string(), ExitCode::kInputData), file_(file) {}

  WeightsHeader header() {
    require_archive();
    const std::vector<ZipMember> members = read_zip_directory(file_);
    const std::string top = members.empty() ? "" : members[0].name.substr(0, members[0].name.find('/') + 1);
    for (const ZipMember& member : members) {
      if (!member.name.starts_with(top)) refuse("has {} beside {}", member.name, top);
      members_.emplace(member.name.substr(top.size()), &member);
    }
    if (members_.contains("constants.pkl"))
      refuse_with("torch.save(torch.jit.load(FILE).state_dict(), NEW) makes one of it",
                  "is a TorchScript, a program, not a state dict");
    if (members_.contains("byteorder") && text_of("byteorder") != "little") refuse("is not little-endian");
    if (!members_.contains("data.pkl")) refuse("has no data.pkl: torch.save did not write it");
    const std::string pickle = text_of("data.pkl");
    WeightsHeader header;
    std::set<std::string> used;
    for (const PickledTensor& tensor : read_state_dict(pickle, file_.path().string())) {
      const ZipMember& storage = storage_of(tensor);
      if (used.insert(tensor.storage).second) header.storages.push_back(storage);
      header.tensors.push_back(place(tensor, storage));
    }
    return header;
  }

 private:
  void require_archive() const {
    const std::string begin = file_.text_at(0, std::min<int64_t>(file_.bytes(), 8));
    refuse_other_files(file_, begin);
    if (begin.starts_with("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46") || begin.starts_with("PYTORCH1"))
      refuse_with(
          "torch.save(torch.load(FILE, weights_only=True), NEW), with a PyTorch of today, writes it anew",
          "is in the form of PyTorch before 1.6, which is not read");
  }

  std::string text_of(const std::string& name) const {
    const ZipMember& member = *members_.at(name);
    if (member.bytes > kMostPickleBytes)
      refuse("its {} has {} bytes, too many to be read", name, member.bytes);
    check_member(file_, member);
    return file_.text_at(member.begin, member.bytes);
  }

  const ZipMember& storage_of(const PickledTensor& tensor) const {
    const auto found = members_.find("data/" + tensor.storage);
    if (found == members_.end())
      refuse("{} is in the storage '{}', which is missing", tensor.name, begin_of(tensor.storage, 100));
    const int64_t bytes = tensor.storage_elements * dtype_bytes(tensor.dtype);
    if (found->second->bytes != bytes)
      refuse("{} has {} bytes, its {} elements of {} need {}", found->second->name, found->second->bytes,
             tensor.storage_elements, tensor.dtype, bytes);
    return *found->second;
  }

  static StoredTensor place(const PickledTensor& tensor, const ZipMember& storage) {
    const int64_t element = dtype_bytes(tensor.dtype);
    StoredTensor stored{
        .name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .begin = storage.begin};
    int64_t elements = 1, span = 1;
    for (const int64_t size : tensor.shape) elements *= size;
    if (elements == 0) return stored;
    bool is_row_major = true;
    int64_t step = 1;
    for (size_t dim = tensor.shape.size(); dim-- > 0; step *= tensor.shape[dim]) {
      is_row_major &= tensor.shape[dim] == 1 || tensor.strides[dim] == step;
      span += (tensor.shape[dim] - 1) * tensor.strides[dim];
    }
    stored.begin += tensor.offset * element;
    stored.bytes = span * element;
    if (is_row_major) return stored;
    stored.strides = tensor.strides;
    for (size_t dim = 0; dim < tensor.shape.size(); ++dim)
      if (tensor.shape[dim] == 1) stored.strides[dim] = 0;  // no step is taken: any stride may stand there
    return stored;
  }

  const InputFile& file_;
  std::map<std::string, const ZipMember*> members_;  // by name, without the top folder
};

}  // namespace

WeightsHeader read_weights_header(const InputFile& file) {
  if (file.path().extension() == ".bin") return TorchReader(file).header();
  return {read_safetensors_header(file), {}};
}

}  // namespace ripstop
