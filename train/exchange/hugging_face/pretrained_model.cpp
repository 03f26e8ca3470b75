#include "train/exchange/hugging_face/pretrained_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <system_error>
#include <utility>

#include "data/files/whole_file.h"
#include "data/text/json_reader.h"
#include "model/parameter.h"
#include "train/exchange/hugging_face/pretrained_config.h"
#include "train/exchange/hugging_face/stored_elements.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
using Json = JsonReader::Json;

constexpr const char* kOneFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr int64_t kMostIndexBytes = int64_t{32} << 20;

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

[[noreturn]] void refuse(const fs::path& directory, const std::string& what, const std::string& hint = {}) {
  throw Error(ExitCode::kInputData, directory.string() + ": " + in_one_line(what), hint);
}

[[noreturn]] void refuse_without_weights(const fs::path& directory) {
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth"})
    if (is_file(directory / name))
      refuse(directory, fmt::format("has {}, a pickle that could run any code, and no {}", name, kOneFile),
             "convert it once: python -c \"from transformers import AutoModelForCausalLM as M; "
             "M.from_pretrained('DIR').save_pretrained('OUT')\"");
  refuse(directory, fmt::format("has neither {} nor {}", kOneFile, kIndex));
}

// The files of an index, and for each tensor its file.
struct Index {
  std::vector<std::string> files;
  std::map<std::string, std::string> file_of;
};

Index read_index(const fs::path& path) {
  const JsonReader reader(path.string(), ExitCode::kInputData);
  const Json document = reader.parse(read_whole_file(path, kMostIndexBytes, ExitCode::kInputData));
  Index index;
  std::set<std::string> files;
  const Json& map = reader.member(document, "weight_map");
  if (!map.is_object()) reader.refuse("'weight_map' is no object");
  for (const auto& [name, file] : map.items()) {
    if (!file.is_string()) reader.refuse("'weight_map' has no file name for {}", name.substr(0, 100));
    const std::string text = file.get<std::string>();
    // A name from outside must not lead out of the directory.
    if (text.empty() || text.size() > 255 || text.find('/') != std::string::npos || text[0] == '.' ||
        text != in_one_line(text))
      reader.refuse("'weight_map' names the file '{}'", text.substr(0, 100));
    index.file_of.emplace(name, text);
    files.insert(text);
  }
  index.files.assign(files.begin(), files.end());
  return index;
}

// All tensors of all files, by Hugging Face's name.
std::map<std::string, PretrainedTensor> read_headers(const fs::path& directory,
                                                     const std::vector<std::string>& names,
                                                     std::vector<InputFile>& files) {
  std::map<std::string, PretrainedTensor> tensors;
  for (const std::string& name : names) {
    files.emplace_back(directory / name);
    for (StoredTensor& stored : read_safetensors_header(files.back())) {
      const std::string tensor = stored.name;
      if (!tensors.emplace(tensor, PretrainedTensor{files.size() - 1, std::move(stored)}).second)
        refuse(directory, fmt::format("{} is in two files", tensor));
    }
  }
  return tensors;
}

void check_index(const fs::path& directory, const Index& index, const std::vector<InputFile>& files,
                 const std::map<std::string, PretrainedTensor>& tensors) {
  for (const auto& [name, file] : index.file_of) {
    const auto found = tensors.find(name);
    if (found == tensors.end() || files[found->second.file].path().filename() != file)
      refuse(directory,
             fmt::format("{} says that {} is in {}, and it is not", kIndex, name.substr(0, 100), file));
  }
}

bool is_needless(const std::string& name) {
  return name.ends_with(".rotary_emb.inv_freq");
}

// Names that Hugging Face gives to a parameter. A tied table may be stored as either of its two uses.
std::vector<std::string> names_of(const ParameterSpec& parameter, const ModelConfig& config) {
  std::vector<std::string> names = {pretrained_name(parameter.name)};
  if (config.tie_word_embeddings && parameter.name == "tok_embeddings.weight")
    names.push_back(pretrained_name("output.weight"));
  return names;
}

// Moves the tensors of `found` to their places in `model`; what stays is unknown.
void assign(const fs::path& directory, std::map<std::string, PretrainedTensor>& found,
            PretrainedModel& model) {
  // The table of a forged config would fill the memory.
  if (model.config.num_hidden_layers > std::ssize(found))
    refuse(directory, fmt::format("has {} tensors, too few for the {} layers of its config.json",
                                  found.size(), model.config.num_hidden_layers));
  std::vector<std::string> missing;
  for (const UnitSpec& unit : parameter_table(model.config))
    for (const PhysicalTensor& tensor : unit.tensors)
      for (const ParameterSpec& parameter : tensor.parts) {
        const std::vector<std::string> names = names_of(parameter, model.config);
        for (const std::string& name : names) {
          auto node = found.extract(name);
          if (node.empty()) continue;
          require_shape(directory, parameter, node.mapped().stored, "its config.json makes it");
          if (!model.tensors.contains(parameter.name))
            model.tensors.emplace(parameter.name, std::move(node.mapped()));
          else
            model.tied_copies.push_back(std::move(node.mapped()));
        }
        if (!model.tensors.contains(parameter.name)) missing.push_back(names.front());
      }
  if (!missing.empty()) refuse(directory, fmt::format("has no {}", some_of(missing)));
}

}  // namespace

int64_t PretrainedModel::bytes() const {
  int64_t sum = 0;
  for (const InputFile& file : files) sum += file.bytes();
  return sum;
}

bool is_pretrained_model(const fs::path& directory) {
  return is_file(directory / "config.json") && !is_file(directory / "manifest.json");
}

PretrainedModel open_pretrained_model(const fs::path& directory) {
  PretrainedModel model;
  model.config = read_pretrained_config(directory);
  std::map<std::string, PretrainedTensor> found;
  if (is_file(directory / kOneFile)) {  // as Hugging Face, which takes this one if both are there
    found = read_headers(directory, {kOneFile}, model.files);
  } else if (is_file(directory / kIndex)) {
    const Index index = read_index(directory / kIndex);
    found = read_headers(directory, index.files, model.files);
    check_index(directory, index, model.files, found);
  } else {
    refuse_without_weights(directory);
  }
  assign(directory, found, model);
  std::vector<std::string> unknown;
  for (const auto& [name, tensor] : found)
    (is_needless(name) ? model.ignored : unknown).push_back(name.substr(0, 100));
  if (!unknown.empty())
    refuse(directory, fmt::format("has tensors that a LLaMA model does not have: {}", some_of(unknown)));
  return model;
}

std::string pretrained_name(const std::string& name) {
  constexpr std::array<std::pair<const char*, const char*>, 12> kNames = {
      {{"tok_embeddings.weight", "model.embed_tokens.weight"},
       {"norm.weight", "model.norm.weight"},
       {"output.weight", "lm_head.weight"},
       {"attention_norm.weight", "input_layernorm.weight"},
       {"ffn_norm.weight", "post_attention_layernorm.weight"},
       {"attention.wq.weight", "self_attn.q_proj.weight"},
       {"attention.wk.weight", "self_attn.k_proj.weight"},
       {"attention.wv.weight", "self_attn.v_proj.weight"},
       {"attention.wo.weight", "self_attn.o_proj.weight"},
       {"feed_forward.w1.weight", "mlp.gate_proj.weight"},
       {"feed_forward.w3.weight", "mlp.up_proj.weight"},
       {"feed_forward.w2.weight", "mlp.down_proj.weight"}}};
  // "layers.3." stays in front, behind "model.".
  size_t begin = 0;
  if (name.starts_with("layers.")) begin = name.find('.', 7) + 1;
  for (const auto& [ours, theirs] : kNames)
    if (name.compare(begin, std::string::npos, ours) == 0)
      return (begin > 0 ? "model." + name.substr(0, begin) : std::string()) + theirs;
  RIPSTOP_CHECK(false, "{} has no name in Hugging Face's models", name);
}

bool has_turned_rows(const std::string& name) {
  for (const char* letter : {"q", "k"})
    for (const char* of : {"weight", "lora_B.weight"})
      if (name.ends_with(fmt::format(".attention.w{}.{}", letter, of))) return true;
  return false;
}

int64_t pretrained_row(int64_t row, int64_t head_size) {
  const int64_t head = row / head_size, element = row % head_size;
  return head * head_size + element % 2 * (head_size / 2) + element / 2;
}

}  // namespace ripstop
