#include "train/exchange/write/export_layout.h"

#include <fmt/format.h>

#include <utility>

#include "data/text/json_reader.h"
#include "model/core/rounding.h"
#include "train/exchange/hugging_face/stored_elements.h"

namespace ripstop {
namespace {

using Json = JsonReader::Json;

// Puts the header's size (8 bytes, little-endian) first, and pads the header so that tensors begin aligned.
std::string with_prefix(std::string header) {
  constexpr int64_t kAlignment = 8;
  header.resize(static_cast<size_t>(round_up(std::ssize(header), kAlignment)), ' ');
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header;
}

}  // namespace

int64_t ExportedTensor::stored_row(int64_t row) const {
  return turned_head_size == 0 ? row : pretrained_row(row, turned_head_size);
}

ExportLayout::ExportLayout(const ModelConfig& config, ExportDType dtype, int64_t most_file_bytes)
    : ExportLayout(parameter_table(config), "model", config.head_size(), dtype, most_file_bytes) {}

ExportLayout::ExportLayout(const ModelConfig& config, const LoraConfig& lora, ExportDType dtype)
    : ExportLayout(adapter_table(config, lora), "adapter_model", config.head_size(), dtype, INT64_MAX) {}

ExportLayout::ExportLayout(std::vector<UnitSpec> units, const std::string& stem, int64_t head_size,
                           ExportDType dtype, int64_t most_file_bytes)
    : dtype_(dtype), units_(std::move(units)), files_(1) {
  for (const UnitSpec& unit : units_)
    for (const ParameterSpec& parameter : unit.parameters()) place(parameter, head_size, most_file_bytes);
  write_headers(stem);
}

// Appends a tensor to the last file, or to a new one. ExportedTensor::begin counts from the file's first
// tensor until write_headers() adds the header's size.
void ExportLayout::place(const ParameterSpec& parameter, int64_t head_size, int64_t most_file_bytes) {
  ExportedTensor tensor;
  tensor.name = pretrained_name(parameter.name);
  tensor.bytes = parameter.count() * element_bytes(dtype_);
  tensor.columns = parameter.columns;
  tensor.shape = {parameter.count()};
  if (!parameter.vector) tensor.shape = {parameter.rows, parameter.columns};
  tensor.turned_head_size = has_turned_rows(parameter.name) ? head_size : 0;
  if (files_.back().bytes > 0 && tensor.bytes > most_file_bytes - files_.back().bytes) files_.emplace_back();
  tensor.file = files_.size() - 1;
  tensor.begin = files_.back().bytes;
  files_.back().bytes += tensor.bytes;
  order_.push_back(parameter.name);
  tensors_.emplace(parameter.name, std::move(tensor));
}

void ExportLayout::write_headers(const std::string& stem) {
  std::vector<Json> headers(files_.size(), Json{{"__metadata__", {{"format", "pt"}}}});
  for (const std::string& name : order_) {
    const ExportedTensor& tensor = tensors_.at(name);
    headers[tensor.file][tensor.name] = {{"dtype", safetensors_dtype(dtype_)},
                                         {"shape", tensor.shape},
                                         {"data_offsets", {tensor.begin, tensor.begin + tensor.bytes}}};
  }
  for (size_t i = 0; i < files_.size(); ++i) {
    files_[i].name = files_.size() == 1
                         ? stem + ".safetensors"
                         : fmt::format("{}-{:05}-of-{:05}.safetensors", stem, i + 1, files_.size());
    files_[i].header = with_prefix(headers[i].dump());
    files_[i].bytes += std::ssize(files_[i].header);
  }
  for (auto& [name, tensor] : tensors_) tensor.begin += std::ssize(files_[tensor.file].header);
}

int64_t ExportLayout::bytes() const {
  int64_t sum = 0;
  for (const ExportedFile& file : files_) sum += file.bytes;
  return sum;
}

std::string ExportLayout::index_json() const {
  if (files_.size() == 1) return {};
  int64_t bytes = 0;
  Json map = Json::object();
  for (const std::string& name : order_) {
    const ExportedTensor& tensor = tensors_.at(name);
    bytes += tensor.bytes;
    map[tensor.name] = files_[tensor.file].name;
  }
  const Json metadata = {{"total_parameters", bytes / element_bytes(dtype_)}, {"total_size", bytes}};
  return text_of_json({{"metadata", metadata}, {"weight_map", map}}, 2) + "\n";
}

}  // namespace ripstop
