// Tensors of safetensors files as parameters of ripstop: their names and rows, checks, and reads of parts.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/files/file.h"
#include "data/files/hash.h"
#include "model/core/function_ref.h"
#include "parallel/unit_layout.h"
#include "train/exchange/hugging_face/safetensors.h"

namespace ripstop {

/// Hugging Face's name of ripstop's parameter `name`: "model.layers.3.self_attn.q_proj.weight" of
/// "layers.3.attention.wq.weight".
std::string pretrained_name(const std::string& name);

/// Whether the rows of ripstop's parameter `name` have another order there (pretrained_row): wq and wk, and b
/// of their adapters, whose rows are theirs.
bool has_turned_rows(const std::string& name);

/// The row of Hugging Face's tensor that holds row `row` of ripstop's wq or wk. ripstop turns neighbours by
/// one angle, as LLaMA does: elements 2 i and 2 i + 1 of a head. Hugging Face turns i and i + head_size / 2.
/// Source: transformers, models/llama/convert_llama_weights_to_hf.py, permute().
int64_t pretrained_row(int64_t row, int64_t head_size);

/// Whether `path` is a file that can be seen.
bool is_file(const std::filesystem::path& path);

/// Throws Error(kInputData) "`directory`: `what`", in one line.
[[noreturn]] void refuse_directory(const std::filesystem::path& directory, const std::string& what,
                                   const std::string& hint = {});

/// Throws Error(kInputData) "`directory`: ..." unless `stored` has the shape of `parameter` and is F32, F16
/// or BF16. `made_by`: what decides the shape, for the message: "its config.json makes it".
void require_shape(const std::filesystem::path& directory, const ParameterSpec& parameter,
                   const StoredTensor& stored, const std::string& made_by);

/// "a, b, c, d and 12 more", for messages of one line. `names` must not be empty.
std::string some_of(const std::vector<std::string>& names);

/// Adds `bytes` bytes of `file` from `begin` on to `hash`, through 1 MiB of memory. Throws as
/// InputFile::read_at.
void hash_bytes(const InputFile& file, int64_t begin, int64_t bytes, StreamHash& hash);

/// A tensor and the file that holds it. Both are borrowed.
struct StoredPlace {
  const InputFile& file;
  const StoredTensor& tensor;
};

/// Overwrites `to` with the elements [begin, end) of the flat buffer of `layout`; padding becomes zero.
/// Values of 16 bits become float32 exactly. `find` gives the tensor of a parameter, of which require_shape
/// holds. Rows that Hugging Face has in another order (has_turned_rows) are those of heads of `head_size`
/// rows. Reads what these elements need and no more, through a buffer of at most 4 MiB. Not collective; any
/// thread may call. Throws Error(kInputData) with the place if a value is not finite, and Error(kStorage) as
/// InputFile::read_at.
void read_stored(const UnitLayout& layout, int64_t begin, int64_t end, float* to, int64_t head_size,
                 FunctionRef<StoredPlace(const std::string& parameter)> find);

}  // namespace ripstop
