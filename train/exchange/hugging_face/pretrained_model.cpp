#include "train/exchange/hugging_face/pretrained_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "data/files/directory.h"
#include "data/files/hash.h"
#include "data/files/whole_file.h"
#include "data/process/block_threads.h"
#include "data/text/json_reader.h"
#include "data/text/utf8.h"
#include "model/core/rounding.h"
#include "model/parameter.h"
#include "parallel/agreement.h"
#include "train/checkpoint/find_run.h"
#include "train/exchange/hugging_face/torch_file.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
using Json = JsonReader::Json;

// The files that hold the weights, in the order of transformers' search: one file, or the index of several.
struct WeightsNames {
  const char *file, *index;
};
constexpr WeightsNames kWeights[] = {{"model.safetensors", "model.safetensors.index.json"},
                                     {"pytorch_model.bin", "pytorch_model.bin.index.json"}};
constexpr int64_t kMostIndexBytes = int64_t{32} << 20;
constexpr const char* kMadeBy = "its config.json makes it";

[[noreturn]] void refuse_without_weights(const fs::path& directory) {
  for (const WeightsNames& names : kWeights)
    for (const char* name : {names.file, names.index})
      if (const std::string link = hint_for_link(directory / name); !link.empty())
        refuse_directory(directory, fmt::format("has no {}", name), link);
  const auto [what, way] = find_foreign_weights(directory);
  if (!what.empty())
    refuse_directory(directory,
                     fmt::format("has {}, and no {} or {}", what, kWeights[0].file, kWeights[1].file), way);
  refuse_directory(directory, fmt::format("has neither {} nor {}, and no index of several files",
                                          kWeights[0].file, kWeights[1].file));
}

std::map<std::string, std::string> read_index(const fs::path& path) {
  const JsonReader reader(path.string(), ExitCode::kInputData);
  const Json document = reader.parse(read_plain_file(path, kMostIndexBytes, ExitCode::kInputData));
  std::map<std::string, std::string> file_of;
  const Json& map = reader.member(document, "weight_map");
  if (!map.is_object()) reader.refuse("'weight_map' is no object");
  for (const auto& [name, file] : map.items()) {
    if (!file.is_string()) reader.refuse("'weight_map' has no file name for {}", begin_of(name, 100));
    const std::string text = file.get<std::string>();
    if (text.empty() || text.size() > 255 || text.find('/') != std::string::npos || text[0] == '.' ||
        text != in_one_line(text))
      reader.refuse("'weight_map' names the file '{}'", begin_of(text, 100));
    file_of.emplace(name, text);
  }
  return file_of;
}

// Opens the files `names` into `model` and returns their tensors by Hugging Face's names.
NamedTensors read_headers(const fs::path& directory, const std::set<std::string>& names,
                          PretrainedModel& model) {
  NamedTensors tensors;
  for (const std::string& name : names) {
    const size_t number = model.files.size();
    WeightsHeader header = read_weights_header(model.files.emplace_back(directory / name));
    for (ZipMember& storage : header.storages) {
      storage.file = number;
      model.storages.push_back(std::move(storage));
    }
    for (StoredTensor& stored : header.tensors) {
      stored.file = number;
      if (!tensors.emplace(stored.name, stored).second)
        refuse_directory(directory, fmt::format("{} is in two files", stored.name));
    }
  }
  return tensors;
}

// read_headers() of the files in `index`. Throws unless each tensor of `index` is in its file.
NamedTensors read_indexed(const fs::path& directory, const char* index, PretrainedModel& model) {
  const std::map<std::string, std::string> file_of = read_index(directory / index);
  std::set<std::string> names;
  for (const auto& [name, file] : file_of) names.insert(file);
  NamedTensors tensors = read_headers(directory, names, model);
  for (const auto& [name, file] : file_of) {
    const auto found = tensors.find(name);
    if (found == tensors.end() || model.files[found->second.file].path().filename() != file)
      refuse_directory(directory, fmt::format("{} says that {} is in {}, and it is not", index,
                                              begin_of(name, 100), file));
  }
  return tensors;
}

NamedTensors read_first_weights(const fs::path& directory, PretrainedModel& model) {
  for (const WeightsNames& names : kWeights) {
    if (is_file(directory / names.file)) return read_headers(directory, {names.file}, model);
    if (is_file(directory / names.index)) return read_indexed(directory, names.index, model);
  }
  refuse_without_weights(directory);
}

// Files may have a tied table as the embedding, as the head, or as both. Leaves the table in `found` as the
// embedding, and puts a second copy into model.tied_copy.
void take_tied_copy(const fs::path& directory, NamedTensors& found, PretrainedModel& model) {
  const std::string table = pretrained_name("tok_embeddings.weight");
  auto head = found.extract(pretrained_name("output.weight"));
  if (head.empty()) return;
  if (found.contains(table)) {
    const ParameterSpec spec{
        .name = table, .rows = model.config.vocab_size, .columns = model.config.hidden_size};
    require_shape(directory, spec, head.mapped(), kMadeBy);
    model.tied_copy = std::move(head.mapped());
  } else {
    head.key() = table;
    found.insert(std::move(head));
  }
}

StoredPlace place_of(const PretrainedModel& model, const StoredTensor& tensor) {
  return {model.files[tensor.file], tensor};
}

// Throws if the elements `got` of a tied table differ from its second copy `copy`.
void check_copy(const PretrainedModel& model, const StoredTensor& copy, const UnitLayout& layout,
                int64_t begin, int64_t end, const float* got) {
  for (const Box& box : layout.boxes(begin, end)) {
    if (box.empty() || box.parameter->name != "tok_embeddings.weight") continue;
    std::vector<float> other(static_cast<size_t>(end - begin));
    read_stored(layout, begin, end, other.data(), model.config.head_size(),
                [&](const std::string&) { return place_of(model, copy); });
    for (int64_t row = 0; row < box.rows; ++row) {
      const int64_t at = box.offset - begin + row * box.stride;
      if (!std::equal(got + at, got + at + box.columns, other.data() + at))
        throw Error(ExitCode::kInputData,
                    fmt::format("{}: row {} of {} differs from the embedding, and config.json ties the two",
                                model.files[copy.file].path().string(), box.row + row, copy.name),
                    "set tie_word_embeddings to false in its config.json if the head has weights of its own");
    }
  }
}

constexpr int64_t kHashedBlock = int64_t{16} << 20;

std::string header_of(const std::string& name, const StoredTensor& stored) {
  // Tensors with strides are hashed as they lie in the file, so their hash needs the strides, too.
  return fmt::format("{} {} {}{};", name, stored.dtype, stored.shape_text(), fmt::join(stored.strides, ","));
}

// Whether the tensor `name` is a bias of zeros, which changes nothing.
bool is_zero_bias(const PretrainedModel& model, const std::string& name, const StoredTensor& tensor) {
  constexpr int64_t kMostBytes = int64_t{1} << 20;
  if (!name.ends_with(".bias") || tensor.bytes > kMostBytes) return false;
  const std::string bytes = model.files[tensor.file].text_at(tensor.begin, tensor.bytes);
  return bytes.find_first_not_of('\0') == std::string::npos;
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
  NamedTensors found = read_first_weights(directory, model);
  model.wrappers = take_off_wrappers(found, /*adapters=*/false);
  // A forged config may state more layers than fit into memory.
  if (model.config.num_hidden_layers > std::ssize(found))
    refuse_directory(directory, fmt::format("has {} tensors, too few for the {} layers of its config.json",
                                            found.size(), model.config.num_hidden_layers));
  if (model.config.tie_word_embeddings) take_tied_copy(directory, found, model);
  model.tensors = take_parameters(directory, parameter_table(model.config), kMadeBy, found);
  std::erase_if(found, [&](const auto& entry) {
    // Tables of angles and masks, which older versions of transformers stored.
    const bool is_table = std::ranges::any_of(
        std::initializer_list<std::string_view>{".inv_freq", ".cos_cached", ".sin_cached", ".position_ids",
                                                ".causal_mask", ".masked_bias", ".self_attn.bias"},
        [&](std::string_view end) { return entry.first.ends_with(end); });
    const bool is_ignored = is_table || is_zero_bias(model, entry.first, entry.second);
    if (is_ignored) model.ignored.push_back(in_one_line(begin_of(entry.first, 100)));
    return is_ignored;
  });
  require_no_others(directory, found, "such a model does not have");
  return model;
}

void read_pretrained(const PretrainedModel& model, const UnitLayout& layout, int64_t begin, int64_t end,
                     float* to) {
  read_stored(layout, begin, end, to, model.config.head_size(),
              [&](const std::string& name) { return place_of(model, model.tensors.at(name)); });
  if (model.tied_copy) check_copy(model, *model.tied_copy, layout, begin, end, to);
}

void check_storages(const PretrainedModel& model, Communicator& world) {
  const int64_t ranks = world.size(), count = std::ssize(model.storages);
  do_and_agree(world, [&] {
    share_blocks(
        divide_up(count - world.rank(), ranks), kBlockThreads,
        [&](int64_t, int64_t number) {
          const ZipMember& storage = model.storages[static_cast<size_t>(world.rank() + number * ranks)];
          check_member(model.files[storage.file], storage);
        },
        [](int64_t) {});
  });
}

std::string samples_hash(const PretrainedModel& model) {
  constexpr int64_t kSampleBytes = 4096;
  StreamHash hash;
  std::string sample;
  for (const auto& [name, tensor] : model.tensors) {
    hash.update(header_of(name, tensor));
    const int64_t last = std::max<int64_t>(tensor.bytes - kSampleBytes, 0);
    sample.resize(static_cast<size_t>(tensor.bytes - last));
    // The end of the tensor is a sample, too, because somebody may have added rows.
    for (int64_t at = 0; at < last + kHashedBlock; at += kHashedBlock) {
      model.files[tensor.file].read_at(tensor.begin + std::min(at, last), sample.data(), std::ssize(sample));
      hash.update(sample);
    }
  }
  return hash.hex();
}

std::string contents_hash(const PretrainedModel& model, Communicator& world,
                          FunctionRef<void(int64_t percent)> watch) {
  // For each block: its tensor, and its first byte in the tensor.
  std::vector<std::pair<const StoredTensor*, int64_t>> blocks;
  for (const auto& [name, tensor] : model.tensors)
    for (int64_t at = 0; at < tensor.bytes; at += kHashedBlock) blocks.emplace_back(&tensor, at);
  const int64_t count = std::ssize(blocks), begin = count * world.rank() / world.size(),
                own = count * (world.rank() + 1) / world.size() - begin;
  std::string digests, piece_hashes;
  do_and_agree(world, [&] {
    std::vector<std::string> of_block(static_cast<size_t>(own)), pieces_of_block = of_block;
    share_blocks(
        own, kBlockThreads,
        [&](int64_t, int64_t number) {
          const auto& [tensor, at] = blocks[static_cast<size_t>(begin + number)];
          StreamHash hash;
          const std::vector<uint64_t> pieces = hash_bytes(model.files[tensor->file], tensor->begin + at,
                                                          std::min(kHashedBlock, tensor->bytes - at), hash);
          pieces_of_block[static_cast<size_t>(number)].assign(reinterpret_cast<const char*>(pieces.data()),
                                                              pieces.size() * sizeof(uint64_t));
          of_block[static_cast<size_t>(number)] = hash.hex();
        },
        [&](int64_t done) { watch(100 * done / own); });
    for (const std::string& digest : of_block) digests += digest;
    for (const std::string& pieces : pieces_of_block) piece_hashes += pieces;
  });
  StreamHash hash;
  for (const auto& [name, tensor] : model.tensors) hash.update(header_of(name, tensor));
  for (const std::string& of_rank : world.all_gather_text(digests)) hash.update(of_rank);
  std::string all;
  for (const std::string& of_rank : world.all_gather_text(piece_hashes)) all += of_rank;
  const char* from = all.data();
  for (const auto& [name, tensor] : model.tensors) {
    tensor.piece_hashes.resize(static_cast<size_t>(divide_up(tensor.bytes, StoredTensor::kPieceBytes)));
    const size_t bytes = tensor.piece_hashes.size() * sizeof(uint64_t);
    std::memcpy(tensor.piece_hashes.data(), from, bytes);
    from += bytes;
  }
  return hash.hex();
}

}  // namespace ripstop
