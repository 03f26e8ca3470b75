#include "train/exchange/hugging_face/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <tuple>
#include <utility>

#include "data/text/json_reader.h"
#include "model/device/dtype.h"

namespace ripstop {
namespace {

using Json = JsonReader::Json;

constexpr int64_t kPrefixBytes = 8;
constexpr int64_t kMostHeaderBytes = int64_t{32} << 20;

int64_t header_bytes(const InputFile& file, const JsonReader& reader) {
  if (file.bytes() < kPrefixBytes)
    reader.refuse("has {} bytes: a safetensors file begins with 8 that say how large its header is",
                  file.bytes());
  std::array<char, kPrefixBytes> prefix{};
  file.read_at(0, prefix.data(), kPrefixBytes);
  refuse_other_files(file, std::string_view(prefix.data(), prefix.size()));
  if (std::string_view(prefix.data(), 4) == "PK\x03\x04")
    reader.refuse_with("give it the name of one: pytorch_model.bin, adapter_model.bin",
                       "is a ZIP archive, as PyTorch writes, not safetensors");
  // Needs a little-endian machine, as stored_elements.cpp asserts.
  const auto bytes = std::bit_cast<uint64_t>(prefix);
  if (bytes > kMostHeaderBytes)
    reader.refuse("says that its header has {} bytes, at most {} are read: it is damaged, or not safetensors",
                  bytes, kMostHeaderBytes);
  if (static_cast<int64_t>(bytes) > file.bytes() - kPrefixBytes)
    reader.refuse("is cut short: it has {} bytes, its header alone {}", file.bytes(), bytes);
  return static_cast<int64_t>(bytes);
}

// Checks an entry of the header. data_offsets count from byte `data_begin` of the file.
StoredTensor tensor_of(const JsonReader& reader, const std::string& name, const Json& entry,
                       int64_t data_begin) {
  if (name.empty() || name.size() > kMostNameBytes)
    reader.refuse("has a tensor whose name has {} bytes", name.size());
  StoredTensor tensor;
  tensor.name = name;
  tensor.dtype = reader.text(entry, "dtype", 16);
  const int64_t element = dtype_bytes(tensor.dtype);
  if (element == 0) reader.refuse("{} has the unknown dtype '{}'", name, tensor.dtype);
  int64_t elements = 1;
  for (const Json& size : reader.list(entry, "shape", 0, kMostDims)) {
    const int64_t room = elements > 0 ? kMostElements / elements : kMostElements;
    if (!size.is_number_unsigned() || size.get<uint64_t>() > static_cast<uint64_t>(room))
      reader.refuse("{} has an impossible shape", name);
    tensor.shape.push_back(size.get<int64_t>());
    elements *= tensor.shape.back();
  }
  const Json& offsets = reader.list(entry, "data_offsets", 2, 2);
  for (const Json& offset : offsets)
    if (!offset.is_number_unsigned() || offset.get<uint64_t>() > static_cast<uint64_t>(kMostElements) * 8)
      reader.refuse("{} has impossible offsets", name);
  const int64_t begin = offsets[0].get<int64_t>(), end = offsets[1].get<int64_t>();
  tensor.begin = data_begin + begin;
  tensor.bytes = elements * element;
  if (end - begin != tensor.bytes)
    reader.refuse("{} of {} {} must have {} bytes, its offsets give it {}", name, tensor.dtype,
                  tensor.shape_text(), tensor.bytes, end - begin);
  return tensor;
}

// Throws if tensors overlap, or if bytes belong to no tensor, because nothing would check such bytes.
void check_places(const JsonReader& reader, const std::vector<StoredTensor>& tensors, int64_t data_begin,
                  int64_t file_bytes) {
  int64_t end = data_begin;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.begin < end) reader.refuse("{} shares bytes with another tensor", tensor.name);
    if (tensor.begin > end)
      reader.refuse("has {} bytes before {} that belong to no tensor", tensor.begin - end, tensor.name);
    end += tensor.bytes;
    if (end > file_bytes)
      reader.refuse("is cut short: it has {} bytes, {} ends at byte {}", file_bytes, tensor.name, end);
  }
  if (end < file_bytes) reader.refuse("has {} bytes after its last tensor", file_bytes - end);
}

// For each ExportDType, in order: the name in config.json and --dtype, and the name in safetensors files.
constexpr std::pair<std::string_view, std::string_view> kSpellings[] = {
    {"float32", "F32"}, {"bfloat16", "BF16"}, {"float16", "F16"}};

// Returns the first finite number that round() made infinite; nullopt if there is none. `infinity`: the bits
// of positive infinity in the rounded type.
template <class Round>
std::optional<float> round_all(const float* from, int64_t count, uint16_t* to, uint16_t infinity,
                               Round round) {
  uint32_t infinite = 0;
  for (int64_t i = 0; i < count; ++i) {
    to[i] = round(from[i]);
    infinite |= static_cast<uint32_t>((to[i] & 0x7fff) == infinity);
  }
  if (infinite == 0) return std::nullopt;
  for (int64_t i = 0; i < count; ++i)
    if ((to[i] & 0x7fff) == infinity && std::isfinite(from[i])) return from[i];
  return std::nullopt;
}

}  // namespace

void refuse_other_files(const InputFile& file, std::string_view begin) {
  const auto refuse = [&](const char* what, const char* hint) {
    throw Error(ExitCode::kInputData, fmt::format("{}: {}", file.path().string(), what), hint);
  };
  if (begin.starts_with("version "))
    refuse("is a pointer of Git LFS, not the weights", "git lfs pull, in the directory of the model");
  if (begin.starts_with("<!DOC") || begin.starts_with("<html"))
    refuse("is a web page, not the weights", "download the file itself");
}

std::string StoredTensor::shape_text() const {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

int64_t dtype_bytes(std::string_view dtype) {
  constexpr std::pair<int64_t, std::string_view> kDTypes[] = {
      {8, "F64"}, {8, "I64"},  {8, "U64"},     {8, "C64"},    {4, "F32"}, {4, "I32"},
      {4, "U32"}, {2, "F16"},  {2, "BF16"},    {2, "I16"},    {2, "U16"}, {1, "I8"},
      {1, "U8"},  {1, "BOOL"}, {1, "F8_E4M3"}, {1, "F8_E5M2"}};
  const auto* const found = std::ranges::find(kDTypes, dtype, [](const auto& row) { return row.second; });
  return found == std::end(kDTypes) ? 0 : found->first;
}

std::vector<StoredTensor> read_safetensors_header(const InputFile& file) {
  const JsonReader reader(file.path().string(), ExitCode::kInputData);
  const std::string header = file.text_at(kPrefixBytes, header_bytes(file, reader));
  const Json document = reader.parse(header);
  const int64_t data_begin = kPrefixBytes + std::ssize(header);
  std::vector<StoredTensor> tensors;
  for (const auto& [name, entry] : document.items())
    if (name != "__metadata__") tensors.push_back(tensor_of(reader, name, entry, data_begin));
  // A tensor without elements begins where the next tensor begins, and is sorted before it.
  std::ranges::sort(tensors, {}, [](const StoredTensor& t) { return std::tuple(t.begin, t.bytes); });
  check_places(reader, tensors, data_begin, file.bytes());
  return tensors;
}

std::string_view to_string(ExportDType dtype) {
  return kSpellings[static_cast<size_t>(dtype)].first;
}

std::string_view safetensors_dtype(ExportDType dtype) {
  return kSpellings[static_cast<size_t>(dtype)].second;
}

std::optional<ExportDType> find_export_dtype(std::string_view name) {
  for (size_t i = 0; i < std::size(kSpellings); ++i)
    if (name == kSpellings[i].first || name == kSpellings[i].second) return static_cast<ExportDType>(i);
  return std::nullopt;
}

int64_t element_bytes(ExportDType dtype) {
  return dtype_bytes(safetensors_dtype(dtype));
}

std::optional<float> convert(const float* from, int64_t count, ExportDType dtype, void* to) {
  switch (dtype) {
    case ExportDType::kFloat32:
      std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
      return std::nullopt;
    case ExportDType::kBFloat16:
      return round_all(from, count, static_cast<uint16_t*>(to), 0x7f80,
                       [](float value) { return BFloat16(value).bits; });
    case ExportDType::kFloat16:
      return round_all(from, count, static_cast<uint16_t*>(to), 0x7c00, to_float16);
  }
  return std::nullopt;
}

}  // namespace ripstop
