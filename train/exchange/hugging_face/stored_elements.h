// Reads tensors of weights files as ripstop's parameters: names, order of rows, checks.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data/files/file.h"
#include "data/files/hash.h"
#include "model/core/function_ref.h"
#include "parallel/unit_layout.h"
#include "train/exchange/hugging_face/safetensors.h"

namespace ripstop {

/// Hugging Face's name of ripstop's parameter `name`, or PEFT's name if it is an adapter's:
/// "layers.3.attention.wq.weight" gives "model.layers.3.self_attn.q_proj.weight",
/// "layers.3.attention.wq.lora_A.weight" gives
/// "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight".
std::string pretrained_name(const std::string& name);

/// Whether Hugging Face has the rows in another order (pretrained_row): for wq, wk, their biases and
/// lora_B, and the norms of query and key heads.
bool has_turned_rows(const std::string& name);

/// The row of Hugging Face's tensor that holds row `row` of ripstop's wq or wk. ripstop and LLaMA turn the
/// elements 2 i and 2 i + 1 of a head by one angle, Hugging Face turns i and i + head_size / 2 together.
/// Source: transformers, models/llama/convert_llama_weights_to_hf.py, permute().
int64_t pretrained_row(int64_t row, int64_t head_size);

/// Throws Error(kInputData) "`directory`: `what`", in one line.
[[noreturn]] void refuse_directory(const std::filesystem::path& directory, const std::string& what,
                                   const std::string& hint = {});

/// Throws Error(kInputData) "`directory`: ..." unless `stored` has the shape of `parameter` and is F32, F16
/// or BF16. `made_by`: what decides the shape, for the message: "its config.json makes it".
void require_shape(const std::filesystem::path& directory, const ParameterSpec& parameter,
                   const StoredTensor& stored, const std::string& made_by);

/// Tensors by Hugging Face's or by ripstop's names.
using NamedTensors = std::map<std::string, StoredTensor>;

/// Moves the tensors of all parameters in `table` from `found`, which has Hugging Face's names, to the
/// result, which has ripstop's names. Rows keep Hugging Face's order. Throws what require_shape throws, and
/// Error(kInputData) if a tensor is missing.
NamedTensors take_parameters(const std::filesystem::path& directory, const std::vector<UnitSpec>& table,
                             const std::string& made_by, NamedTensors& found);

/// Takes the prefixes of wrappers off the names in `found`, if all names have them: "module."
/// (DistributedDataParallel), "_orig_mod." (torch.compile), and "base_model.model." (PEFT), but not from
/// `adapters`, whose own names begin with it. Returns the whole prefix, "" if nothing was taken off.
std::string take_off_wrappers(NamedTensors& found, bool adapters);

/// A note that take_off_wrappers took `wrappers` off the names of a file in `directory`; none for "".
std::vector<std::string> wrappers_notes(const std::filesystem::path& directory, const std::string& wrappers);

/// Throws Error(kInputData) "`directory`: has tensors that `others`: ..." unless `unknown` is empty.
void require_no_others(const std::filesystem::path& directory, const NamedTensors& unknown,
                       const std::string& others);

/// Adds the bytes [begin, begin + bytes) of `file` to `hash`, through a buffer of one piece
/// (StoredTensor::kPieceBytes). Returns the XXH3-64 of each piece. Throws what InputFile::read_at throws.
std::vector<uint64_t> hash_bytes(const InputFile& file, int64_t begin, int64_t bytes, StreamHash& hash);

/// A tensor and its file, both borrowed.
struct StoredPlace {
  const InputFile& file;
  const StoredTensor& tensor;
};

/// Overwrites `to` with the elements [begin, end) of the flat buffer of `layout`; padding becomes zero.
/// find(parameter) returns a tensor that has passed require_shape. Rows in another order (has_turned_rows)
/// are put in ripstop's order, in heads of `head_size` rows. Reads only these elements, gaps between them,
/// and of hashed tensors whole pieces, in buffers of 5 MiB. Any thread may call. Throws Error(kInputData),
/// with the place, if a value is not finite or a hash differs, and what InputFile::read_at throws.
void read_stored(const UnitLayout& layout, int64_t begin, int64_t end, float* to, int64_t head_size,
                 FunctionRef<StoredPlace(const std::string& parameter)> find);

}  // namespace ripstop
