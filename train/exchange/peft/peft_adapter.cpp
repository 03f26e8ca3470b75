#include "train/exchange/peft/peft_adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "data/files/directory.h"
#include "data/files/hash.h"
#include "data/process/shell_word.h"
#include "data/text/json_reader.h"
#include "train/checkpoint/find_run.h"
#include "train/config/nearest_name.h"
#include "train/exchange/hugging_face/pretrained_model.h"
#include "train/exchange/hugging_face/stored_elements.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPeftWeights = "adapter_model.safetensors";

[[noreturn]] void refuse_adapter(const fs::path& directory, const std::string& what,
                                 const std::string& hint = {}) {
  throw Error(ExitCode::kInputData, directory.string() + ": " + in_one_line(what), hint);
}

// Both files must be there: a hint says what lies there instead.
void require_files(const fs::path& directory) {
  const auto has = [&](const char* name) {
    std::error_code error;
    return fs::is_regular_file(directory / name, error);
  };
  if (!has(kPeftConfigFile))
    refuse_adapter(directory, fmt::format("has no {}", kPeftConfigFile),
                   has("config.json") ? "it is a whole model: give it as model.pretrained" : "");
  if (has(kPeftWeights)) return;
  if (has("adapter_model.bin"))
    refuse_adapter(
        directory,
        fmt::format("has adapter_model.bin, a pickle that could run any code, and no {}", kPeftWeights),
        "convert it once: load it with peft and save_pretrained");
  refuse_adapter(directory, fmt::format("has no {}", kPeftWeights));
}

// Ranks and sizes that the model cannot have are told before a tensor is missed.
void require_possible(const fs::path& directory, const LoraConfig& lora, const ModelConfig& model) {
  try {
    validate(lora, model);
  } catch (const Error& error) {
    refuse_adapter(directory, fmt::format("is not for this model, or has too high a rank: {}", error.what()),
                   "the numbers are those of its adapter_config.json, not of [lora]");
  }
}

// Moves the tensors of `found` to their places in `adapter`; what stays is unknown.
void assign_tensors(std::map<std::string, StoredTensor>& found, PeftAdapter& adapter) {
  std::vector<std::string> missing;
  for (const AdapterSpec& spec : adapter_specs(adapter.model, adapter.config.lora))
    for (const ParameterSpec* parameter : {&spec.a, &spec.b}) {
      auto node = found.extract(peft_name(parameter->name));
      if (node.empty()) {
        missing.push_back(peft_name(parameter->name));
        continue;
      }
      require_shape(adapter.directory, *parameter, node.mapped(), "with this model and rank it is");
      adapter.tensors.emplace(parameter->name, std::move(node.mapped()));
    }
  if (!missing.empty()) refuse_adapter(adapter.directory, fmt::format("has no {}", some_of(missing)));
  std::vector<std::string> unknown;
  for (const auto& [name, tensor] : found) unknown.push_back(name.substr(0, 100));
  if (!unknown.empty())
    refuse_adapter(adapter.directory,
                   fmt::format("has tensors that its targets do not have: {}", some_of(unknown)));
}

}  // namespace

std::string PeftAdapter::weights_hash() const {
  constexpr int64_t kPiece = int64_t{1} << 20;
  StreamHash hash;
  hash.update(lora_lines(config.lora));
  std::vector<char> bytes(static_cast<size_t>(std::min(kPiece, file.bytes())));
  for (int64_t at = 0; at < file.bytes(); at += kPiece) {
    const int64_t count = std::min(kPiece, file.bytes() - at);
    file.read_at(at, bytes.data(), count);
    hash.update(bytes.data(), count);
  }
  return hash.hex();
}

PeftAdapter open_peft_adapter(const fs::path& directory, const ModelConfig& model) {
  require_files(directory);
  PeftAdapter adapter{.directory = directory,
                      .config = read_peft_config(directory),
                      .model = model,
                      .file = InputFile(directory / kPeftWeights),
                      .tensors = {}};
  require_possible(directory, adapter.config.lora, model);
  std::map<std::string, StoredTensor> found;
  for (StoredTensor& stored : read_safetensors_header(adapter.file)) {
    std::string name = stored.name;
    found.emplace(std::move(name), std::move(stored));
  }
  assign_tensors(found, adapter);
  return adapter;
}

void require_same_lora(const PeftAdapter& adapter, const LoraConfig& lora) {
  LoraConfig same = adapter.config.lora;
  same.dropout = lora.dropout;
  if (same == lora) return;
  throw Error(ExitCode::kUsage,
              fmt::format("lora.adapter {} has {}, [lora] says {}", adapter.directory.string(),
                          lora_lines(same), lora_lines(lora)),
              "write in [lora] what the adapters have");
}

std::optional<PeftAdapter> open_first_adapters(const LoraSection& lora, const ModelConfig& model) {
  if (lora.adapter.empty()) return std::nullopt;
  if (!directory_exists(posix_io(), lora.adapter)) {
    const std::string near = hint_for_absent(lora.adapter, "lora.adapter=");
    throw Error(
        ExitCode::kUsage,
        fmt::format("lora.adapter = \"{}\": {}", lora.adapter,
                    path_exists(posix_io(), lora.adapter) ? "is not a directory" : "no such directory"),
        near.empty() ? fmt::format("give a directory with {} and {}", kPeftConfigFile, kPeftWeights) : near);
  }
  if (is_run(posix_io(), lora.adapter))
    throw Error(ExitCode::kUsage,
                fmt::format("lora.adapter = \"{}\" is a run, and adapters of PEFT are needed", lora.adapter),
                fmt::format("ripstop checkpoint export --format peft {} OUTPUT, and give OUTPUT",
                            shell_word(lora.adapter)));
  PeftAdapter adapter = open_peft_adapter(lora.adapter, model);
  require_same_lora(adapter, lora);
  return adapter;
}

void read_peft(const PeftAdapter& adapter, const UnitLayout& layout, int64_t begin, int64_t end, float* to) {
  zero_padding(layout, begin, end, to, DType::kFloat32);
  const ReadBuffer buffer((end - begin) * static_cast<int64_t>(sizeof(float)));
  for (const Box& box : layout.boxes(begin, end)) {
    if (box.empty()) continue;
    const std::string& name = box.parameter->name;
    read_stored(adapter.file, adapter.tensors.at(name), box,
                has_turned_rows(name) ? adapter.model.head_size() : 0, to + (box.offset - begin), buffer);
  }
}

std::string peft_name(const std::string& name) {
  for (const char* letter : {".lora_A", ".lora_B"})
    if (const size_t at = name.find(letter); at != std::string::npos) {
      std::string matrix = pretrained_name(name.substr(0, at) + ".weight");
      matrix.resize(matrix.size() - std::string_view(".weight").size());
      return fmt::format("base_model.model.{}{}.weight", matrix, letter);
    }
  RIPSTOP_CHECK(false, "{} is no adapter", name);
}

}  // namespace ripstop
