#include "train/exchange/hugging_face/stored_elements.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "data/text/json_reader.h"
#include "data/text/utf8.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

static_assert(std::endian::native == std::endian::little, "files of weights are little-endian");

constexpr int64_t kBufferBytes = int64_t{4} << 20;
constexpr size_t kMostNamed = 4;

// float16 has 5 bits of exponent with bias 15, float32 has 8 with bias 127. A float32 with the fields of a
// float16 is too small by the factor 2^(127 - 15), subnormal or not.
float float_of_f16(uint32_t bits) {
  const float magnitude = std::bit_cast<float>((bits & 0x7fffu) << 13) * 0x1p112F;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | (bits & 0x8000u) << 16);
}

// Returns false if an element is infinite or NaN: all its bits in the mask `exponent` are ones.
template <class Bits, class Convert>
bool convert_all(const char* from, int64_t count, uint32_t exponent, float* to, Convert convert) {
  uint32_t not_finite = 0;
  for (int64_t i = 0; i < count; ++i, from += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, from, sizeof(Bits));
    not_finite |= static_cast<uint32_t>((bits & exponent) == exponent);
    to[i] = convert(bits);
  }
  return not_finite == 0;
}

bool convert_elements(const std::string& dtype, const char* from, int64_t count, float* to) {
  if (dtype == "F32")
    return convert_all<uint32_t>(from, count, 0x7f800000u, to,
                                 [](uint32_t bits) { return std::bit_cast<float>(bits); });
  if (dtype == "BF16")
    return convert_all<uint16_t>(from, count, 0x7f80u, to,
                                 [](uint32_t bits) { return std::bit_cast<float>(bits << 16); });
  RIPSTOP_CHECK(dtype == "F16", "{} is none of F32, BF16 and F16", dtype);
  return convert_all<uint16_t>(from, count, 0x7c00u, to, [](uint32_t bits) { return float_of_f16(bits); });
}

struct Rows {
  int64_t first = 0, count = 0;  ///< the rows [first, first + count) of the file's tensor
  int64_t stride = 0;            ///< elements in `to` from the start of a row to the start of the next
  float* to = nullptr;
};

// Reads one stored tensor through `buffer`.
class TensorReader {
 public:
  TensorReader(const StoredPlace& place, int64_t columns, std::span<char> buffer)
      : place_(place),
        columns_(columns),
        element_bytes_(dtype_bytes(place.tensor.dtype)),
        buffer_(buffer),
        buffer_elements_(std::ssize(buffer) / element_bytes_) {}

  void read(const Rows& rows, int64_t column, int64_t columns) {
    if (!place_.tensor.strides.empty()) return read_lines(rows, column, columns);
    // Whole rows have no gaps between them, so one call reads all.
    const int64_t at_once = columns == columns_ ? rows.count : 1;
    for (int64_t row = 0; row < rows.count; row += at_once)
      read_band({rows.first + row, at_once, rows.stride, rows.to + row * rows.stride}, column, columns);
  }

 private:
  // Reads `rows`, which have no gaps between them in the file.
  void read_band(const Rows& rows, int64_t column, int64_t columns) {
    const int64_t first = rows.first * columns_ + column, count = rows.count * columns;
    for (int64_t done = 0; done < count;) {
      const int64_t piece = std::min(count - done, buffer_elements_);
      read_bytes((first + done) * element_bytes_, piece * element_bytes_);
      scatter(rows, columns, done, piece, first);
      done += piece;
    }
  }

  // Reads rows of a tensor with strides, in lines along rows or columns, whichever costs less.
  void read_lines(const Rows& rows, int64_t column, int64_t columns) {
    // A vector has one stride, which serves as of_row and as of_column.
    const int64_t of_row = place_.tensor.strides.front(), of_column = place_.tensor.strides.back();
    const auto place = [&](int64_t row, int64_t i) {
      return (rows.first + row) * of_row + (column + i) * of_column;
    };
    constexpr double kCallBytes = 4096;  // a call costs about as much as reading these bytes
    const auto cost = [&](int64_t lines, int64_t count, int64_t step) {
      return static_cast<double>(lines) *
             (static_cast<double>((count - 1) * step * element_bytes_) + kCallBytes);
    };
    if (cost(columns, rows.count, of_row) < cost(rows.count, columns, of_column))
      for (int64_t i = 0; i < columns; ++i)
        read_line(place(0, i), of_row, rows.count, rows.to + i, rows.stride);
    else
      for (int64_t row = 0; row < rows.count; ++row)
        read_line(place(row, 0), of_column, columns, rows.to + row * rows.stride, 1);
  }

  // Reads `count` elements from index `first` on, `step` apart in the file and `to_step` apart in `to`.
  void read_line(int64_t first, int64_t step, int64_t count, float* to, int64_t to_step) {
    const int64_t most = step == 0 ? count : (buffer_elements_ - 1) / step + 1;
    for (int64_t done = 0; done < count;) {
      const int64_t piece = std::min(count - done, most);
      read_bytes((first + done * step) * element_bytes_, ((piece - 1) * step + 1) * element_bytes_);
      for (int64_t i = 0; i < piece; ++i)
        if (!convert_elements(place_.tensor.dtype, buffer_.data() + i * step * element_bytes_, 1,
                              to + (done + i) * to_step))
          refuse_not_finite(
              fmt::format("{} elements after its first in the file", first + (done + i) * step));
      done += piece;
    }
  }

  [[noreturn]] void refuse_not_finite(const std::string& where) const {
    throw Error(ExitCode::kInputData,
                fmt::format("{}: {} has a value that is not finite, {}", place_.file.path().string(),
                            place_.tensor.name, where),
                "training cannot begin from it: take the weights from their source again");
  }

  // Reads bytes of the tensor into the buffer. If the tensor was hashed, reads whole pieces and compares
  // their hashes, because the file may have changed since.
  void read_bytes(int64_t begin, int64_t bytes) {
    constexpr int64_t kPiece = StoredTensor::kPieceBytes;
    const StoredTensor& tensor = place_.tensor;
    if (tensor.piece_hashes.empty()) return place_.file.read_at(tensor.begin + begin, buffer_.data(), bytes);
    for (int64_t done = 0; done < bytes;) {
      const int64_t number = (begin + done) / kPiece, inside = (begin + done) % kPiece;
      load_piece(number, std::min(kPiece, tensor.bytes - number * kPiece));
      const int64_t part = std::min(bytes - done, std::ssize(piece_) - inside);
      std::memcpy(buffer_.data() + done, piece_.data() + inside, static_cast<size_t>(part));
      done += part;
    }
  }

  void load_piece(int64_t number, int64_t bytes) {
    if (std::exchange(loaded_, number) == number) return;
    const StoredTensor& tensor = place_.tensor;
    piece_.resize(static_cast<size_t>(bytes));
    place_.file.read_at(tensor.begin + number * StoredTensor::kPieceBytes, piece_.data(), bytes);
    if (hash64(piece_) != tensor.piece_hashes[static_cast<size_t>(number)])
      throw Error(ExitCode::kInputData,
                  fmt::format("{}: {} has changed since it was hashed, at the start of this command",
                              place_.file.path().string(), tensor.name),
                  "another program writes the file, or its disk fails: take the weights from their source");
  }

  // Converts elements [done, done + count) of the band, which are in the buffer, into their rows.
  void scatter(const Rows& rows, int64_t columns, int64_t done, int64_t count, int64_t first) {
    for (int64_t i = 0; i < count;) {
      const int64_t row = (done + i) / columns, column = (done + i) % columns;
      const int64_t run = std::min(count - i, columns - column);
      const char* from = buffer_.data() + i * element_bytes_;
      if (!convert_elements(place_.tensor.dtype, from, run, rows.to + row * rows.stride + column))
        refuse_not_finite(
            fmt::format("among its elements {} to {}", first + done + i, first + done + i + run - 1));
      i += run;
    }
  }

  StoredPlace place_;
  int64_t columns_, element_bytes_;
  std::span<char> buffer_;
  int64_t buffer_elements_;
  std::string piece_;  // piece number `loaded_` of the tensor
  int64_t loaded_ = -1;
};

// Reads a box of a parameter with has_turned_rows(). In each head, Hugging Face's tensor has ripstop's even
// rows first and then the odd rows, so each half is read as consecutive rows.
void read_turned(TensorReader& reader, const Box& box, int64_t head_size, float* to) {
  const int64_t end = box.row + box.rows;
  for (int64_t head = box.row / head_size * head_size; head < end; head += head_size)
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t begin = std::max(box.row, head), stop = std::min(end, head + head_size);
      const int64_t first = begin + (begin + half) % 2;  // first row of this half; heads begin at even rows
      if (first >= stop) continue;
      reader.read({.first = pretrained_row(first, head_size),
                   .count = (stop - first + 1) / 2,
                   .stride = 2 * box.stride,
                   .to = to + (first - box.row) * box.stride},
                  box.column, box.columns);
    }
}

// The text that makes `longer` when inserted into `shorter`: "_orig_mod."; "" unless it is made of whole
// words, each followed by a point.
std::string inserted(const std::string& shorter, const std::string& longer) {
  if (longer.size() <= shorter.size()) return "";
  const size_t more = longer.size() - shorter.size();
  size_t at = shorter.size();
  while (at > 0 && shorter[at - 1] == longer[at - 1 + more]) --at;
  if (shorter.compare(0, at, longer, 0, at) != 0) return "";
  const auto is_words = [&] { return longer[at + more - 1] == '.' && (at == 0 || longer[at - 1] == '.'); };
  while (!is_words() && at < shorter.size() && longer[at] == longer[at + more]) ++at;
  return is_words() ? longer.substr(at, more) : "";
}

[[noreturn]] void refuse_missing(const std::filesystem::path& directory,
                                 const std::vector<std::string>& missing, const NamedTensors& found) {
  std::string what = fmt::format("has no {}", some_of(missing, kMostNamed));
  if (!found.empty()) what += "; it has ";
  for (const auto& [other, tensor] : found) {
    const std::string more = inserted(missing.front(), other), less = inserted(other, missing.front());
    if ((more + less).empty()) continue;
    const std::string hint = fmt::format(
        "its names {} '{}': save the model itself, not a wrapper or a part, or rename the tensors",
        more.empty() ? "lack" : "have one word more,", more + less);
    refuse_directory(directory, what + other, hint);
  }
  refuse_directory(directory, what + (found.empty() ? "" : found.begin()->first));
}

}  // namespace

std::string pretrained_name(const std::string& name) {
  for (const char* letter : {".lora_A", ".lora_B"})
    if (const size_t at = name.find(letter); at != std::string::npos) {
      std::string matrix = pretrained_name(name.substr(0, at) + ".weight");
      matrix.resize(matrix.size() - std::string_view(".weight").size());
      return fmt::format("base_model.model.{}{}.weight", matrix, letter);
    }
  constexpr std::array<std::pair<const char*, const char*>, 18> kNames = {
      {{"tok_embeddings.weight", "model.embed_tokens.weight"},
       {"norm.weight", "model.norm.weight"},
       {"output.weight", "lm_head.weight"},
       {"attention_norm.weight", "input_layernorm.weight"},
       {"ffn_norm.weight", "post_attention_layernorm.weight"},
       {"attention.wq.weight", "self_attn.q_proj.weight"},
       {"attention.wk.weight", "self_attn.k_proj.weight"},
       {"attention.wv.weight", "self_attn.v_proj.weight"},
       {"attention.wo.weight", "self_attn.o_proj.weight"},
       {"attention.wq.bias", "self_attn.q_proj.bias"},
       {"attention.wk.bias", "self_attn.k_proj.bias"},
       {"attention.wv.bias", "self_attn.v_proj.bias"},
       {"attention.wo.bias", "self_attn.o_proj.bias"},
       {"attention.q_norm.weight", "self_attn.q_norm.weight"},
       {"attention.k_norm.weight", "self_attn.k_norm.weight"},
       {"feed_forward.w1.weight", "mlp.gate_proj.weight"},
       {"feed_forward.w3.weight", "mlp.up_proj.weight"},
       {"feed_forward.w2.weight", "mlp.down_proj.weight"}}};
  // "layers.3." becomes "model.layers.3.".
  size_t begin = 0;
  if (name.starts_with("layers.")) begin = name.find('.', 7) + 1;
  for (const auto& [ours, theirs] : kNames)
    if (name.compare(begin, std::string::npos, ours) == 0)
      return (begin > 0 ? "model." + name.substr(0, begin) : std::string()) + theirs;
  RIPSTOP_CHECK(false, "{} has no name in Hugging Face's models", name);
}

bool has_turned_rows(const std::string& name) {
  const char* const ends[] = {"wq.weight", "wk.weight", "wq.lora_B.weight", "wk.lora_B.weight",
                              "wq.bias",   "wk.bias",   "q_norm.weight",    "k_norm.weight"};
  return std::ranges::any_of(
      ends, [&](const char* end) { return name.ends_with(std::string(".attention.") + end); });
}

int64_t pretrained_row(int64_t row, int64_t head_size) {
  const int64_t head = row / head_size, element = row % head_size;
  return head * head_size + element % 2 * (head_size / 2) + element / 2;
}

void refuse_directory(const std::filesystem::path& directory, const std::string& what,
                      const std::string& hint) {
  throw Error(ExitCode::kInputData, directory.string() + ": " + in_one_line(what), hint);
}

void require_shape(const std::filesystem::path& directory, const ParameterSpec& parameter,
                   const StoredTensor& stored, const std::string& made_by) {
  const std::vector<int64_t> shape = parameter.vector
                                         ? std::vector<int64_t>{parameter.count()}
                                         : std::vector<int64_t>{parameter.rows, parameter.columns};
  if (stored.shape != shape)
    refuse_directory(directory, fmt::format("{} is {}, {} [{}]", stored.name, stored.shape_text(), made_by,
                                            fmt::join(shape, ", ")));
  if (stored.dtype != "F32" && stored.dtype != "F16" && stored.dtype != "BF16")
    refuse_directory(
        directory, fmt::format("{} has the dtype {}; F32, F16 and BF16 are read", stored.name, stored.dtype),
        stored.dtype == "F64" ? "save it once more after model.float()" : "");
}

NamedTensors take_parameters(const std::filesystem::path& directory, const std::vector<UnitSpec>& table,
                             const std::string& made_by, NamedTensors& found) {
  NamedTensors taken;
  std::vector<std::string> missing;
  for (const UnitSpec& unit : table)
    for (const ParameterSpec& parameter : unit.parameters()) {
      auto node = found.extract(pretrained_name(parameter.name));
      if (node.empty()) {
        missing.push_back(pretrained_name(parameter.name));
        continue;
      }
      require_shape(directory, parameter, node.mapped(), made_by);
      taken.emplace(parameter.name, std::move(node.mapped()));
    }
  if (!missing.empty()) refuse_missing(directory, missing, found);
  return taken;
}

std::string take_off_wrappers(NamedTensors& found, bool adapters) {
  std::string taken;
  if (found.empty()) return taken;
  const auto all_have = [&](std::string_view word) {
    return std::ranges::all_of(found, [&](const auto& entry) { return entry.first.starts_with(word); });
  };
  constexpr std::array<std::string_view, 3> kWords = {"module.", "_orig_mod.", "base_model.model."};
  const auto words = std::span(kWords).first(adapters ? 2 : 3);
  for (auto word = std::ranges::find_if(words, all_have); word != words.end();
       word = std::ranges::find_if(words, all_have)) {
    taken += *word;
    NamedTensors shorter;
    while (!found.empty()) {
      auto node = found.extract(found.begin());
      node.key().erase(0, word->size());
      shorter.insert(std::move(node));
    }
    found = std::move(shorter);
  }
  return taken;
}

std::vector<std::string> wrappers_notes(const std::filesystem::path& directory, const std::string& wrappers) {
  if (wrappers.empty()) return {};
  return {fmt::format("{}: all names of tensors begin with '{}', which is left out", directory.string(),
                      wrappers)};
}

void require_no_others(const std::filesystem::path& directory, const NamedTensors& unknown,
                       const std::string& others) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : unknown) names.push_back(begin_of(name, 100));
  if (!names.empty())
    refuse_directory(directory, fmt::format("has tensors that {}: {}", others, some_of(names, kMostNamed)));
}

std::vector<uint64_t> hash_bytes(const InputFile& file, int64_t begin, int64_t bytes, StreamHash& hash) {
  constexpr int64_t kPiece = StoredTensor::kPieceBytes;
  std::vector<uint64_t> piece_hashes;
  std::string piece;
  for (int64_t at = 0; at < bytes; at += kPiece) {
    piece.resize(static_cast<size_t>(std::min(kPiece, bytes - at)));
    file.read_at(begin + at, piece.data(), std::ssize(piece));
    hash.update(piece);
    piece_hashes.push_back(hash64(piece));
  }
  return piece_hashes;
}

void read_stored(const UnitLayout& layout, int64_t begin, int64_t end, float* to, int64_t head_size,
                 FunctionRef<StoredPlace(const std::string& parameter)> find) {
  zero_padding(layout, begin, end, to, DType::kFloat32);
  const auto bytes = static_cast<size_t>(std::min<int64_t>(4 * (end - begin), kBufferBytes));
  // Uninitialized: reads fill every byte that is used.
  const auto memory = std::make_unique_for_overwrite<char[]>(bytes);
  for (const Box& box : layout.boxes(begin, end)) {
    if (box.empty()) continue;
    TensorReader reader(find(box.parameter->name), box.parameter->columns, {memory.get(), bytes});
    float* const at = to + (box.offset - begin);
    if (has_turned_rows(box.parameter->name))
      read_turned(reader, box, head_size, at);
    else
      reader.read({box.row, box.rows, box.stride, at}, box.column, box.columns);
  }
}

}  // namespace ripstop
