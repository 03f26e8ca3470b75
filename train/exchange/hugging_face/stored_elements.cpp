#include "train/exchange/hugging_face/stored_elements.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "data/text/json_reader.h"
#include "model/core/error.h"
#include "train/exchange/hugging_face/pretrained_model.h"

namespace ripstop {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr int64_t kBufferBytes = int64_t{4} << 20;

// Values whose exponent is all ones are infinite or no numbers.
constexpr uint32_t kExponentF32 = 0x7f800000u, kExponentBF16 = 0x7f80u, kExponentF16 = 0x7c00u;

template <class Bits>
Bits bits_at(const char* from, int64_t index) {
  Bits bits;
  std::memcpy(&bits, from + index * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
  return bits;
}

// float16 has 5 bits of exponent, biased by 15, and float32 8, biased by 127. As a float32 with the same
// fields the value is too small by 2^(127 - 15), also if it is subnormal.
float float_of_f16(uint32_t bits) {
  const float magnitude = std::bit_cast<float>((bits & 0x7fffu) << 13) * 0x1p112F;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | (bits & 0x8000u) << 16);
}

// Converts `count` elements of `from`. Returns false if one of them is not finite.
bool convert_elements(const std::string& dtype, const char* from, int64_t count, float* to) {
  uint32_t not_finite = 0;
  if (dtype == "F32") {
    for (int64_t i = 0; i < count; ++i) {
      const auto bits = bits_at<uint32_t>(from, i);
      not_finite |= static_cast<uint32_t>((bits & kExponentF32) == kExponentF32);
      to[i] = std::bit_cast<float>(bits);
    }
  } else if (dtype == "BF16") {
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t bits = bits_at<uint16_t>(from, i);
      not_finite |= static_cast<uint32_t>((bits & kExponentBF16) == kExponentBF16);
      to[i] = std::bit_cast<float>(bits << 16);
    }
  } else {
    RIPSTOP_CHECK(dtype == "F16", "{} is none of F32, BF16 and F16", dtype);
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t bits = bits_at<uint16_t>(from, i);
      not_finite |= static_cast<uint32_t>((bits & kExponentF16) == kExponentF16);
      to[i] = float_of_f16(bits);
    }
  }
  return not_finite == 0;
}

// Rows of a tensor that lie one after the other in its file, and where they go.
struct Rows {
  int64_t first = 0, count = 0;  ///< rows of the file's tensor
  int64_t stride = 0;            ///< elements from one row to the next in `to`
  float* to = nullptr;
};

// Reads parts of one stored tensor.
class TensorReader {
 public:
  TensorReader(const InputFile& file, const StoredTensor& stored, int64_t columns, const ReadBuffer& buffer)
      : file_(file),
        stored_(stored),
        columns_(columns),
        element_bytes_(dtype_bytes(stored_.dtype)),
        buffer_(buffer) {}

  /// Reads the columns [column, column + columns) of `rows`.
  void read(const Rows& rows, int64_t column, int64_t columns) {
    // Whole rows have no gaps between them: one call reads as many as the buffer holds.
    const int64_t at_once =
        columns == columns_ ? std::max<int64_t>(buffer_.bytes() / (columns * element_bytes_), 1) : 1;
    for (int64_t row = 0; row < rows.count; row += at_once) {
      const int64_t band = std::min(at_once, rows.count - row);
      read_band({rows.first + row, band, rows.stride, rows.to + row * rows.stride}, column, columns);
    }
  }

 private:
  void read_band(const Rows& rows, int64_t column, int64_t columns) {
    const int64_t first = rows.first * columns_ + column, count = rows.count * columns;
    // A row may be longer than the buffer.
    for (int64_t done = 0; done < count;) {
      const int64_t piece = std::min(count - done, buffer_.bytes() / element_bytes_);
      file_.read_at(stored_.begin + (first + done) * element_bytes_, buffer_.data(), piece * element_bytes_);
      scatter(rows, columns, done, piece, first);
      done += piece;
    }
  }

  // Elements [done, done + count) of the band, which are in the buffer, go to their rows.
  void scatter(const Rows& rows, int64_t columns, int64_t done, int64_t count, int64_t first) {
    for (int64_t i = 0; i < count;) {
      const int64_t row = (done + i) / columns, column = (done + i) % columns;
      const int64_t run = std::min(count - i, columns - column);
      const char* from = buffer_.data() + i * element_bytes_;
      if (!convert_elements(stored_.dtype, from, run, rows.to + row * rows.stride + column))
        throw Error(
            ExitCode::kInputData,
            fmt::format("{}: {} has a value that is not finite, among its elements {} to {}",
                        file_.path().string(), stored_.name, first + done + i, first + done + i + run - 1),
            "training cannot begin from it: take the weights from their source again");
      i += run;
    }
  }

  const InputFile& file_;
  const StoredTensor& stored_;
  int64_t columns_;
  int64_t element_bytes_;
  const ReadBuffer& buffer_;
};

// Reads a box of wq or wk, or of b of their adapters. In each head, Hugging Face has the even rows of
// ripstop's tensor first and then the odd ones (pretrained_row), so each half is rows that lie one after the
// other.
void read_turned(TensorReader& reader, const Box& box, int64_t head_size, float* to) {
  const int64_t end = box.row + box.rows;
  for (int64_t head = box.row / head_size * head_size; head < end; head += head_size)
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t begin = std::max(box.row, head), stop = std::min(end, head + head_size);
      const int64_t first = begin + (begin + half) % 2;  // heads begin at even rows
      if (first >= stop) continue;
      reader.read({.first = pretrained_row(first, head_size),
                   .count = (stop - first + 1) / 2,
                   .stride = 2 * box.stride,
                   .to = to + (first - box.row) * box.stride},
                  box.column, box.columns);
    }
}

}  // namespace

void require_shape(const std::filesystem::path& directory, const ParameterSpec& parameter,
                   const StoredTensor& stored, const std::string& made_by) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ExitCode::kInputData, directory.string() + ": " + in_one_line(what));
  };
  const std::vector<int64_t> shape = parameter.vector
                                         ? std::vector<int64_t>{parameter.columns}
                                         : std::vector<int64_t>{parameter.rows, parameter.columns};
  if (stored.shape != shape)
    refuse(
        fmt::format("{} is {}, {} [{}]", stored.name, stored.shape_text(), made_by, fmt::join(shape, ", ")));
  if (stored.dtype != "F32" && stored.dtype != "F16" && stored.dtype != "BF16")
    refuse(fmt::format("{} has the dtype {}; F32, F16 and BF16 are read", stored.name, stored.dtype));
}

std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kMostNamed = 4;
  const size_t shown = std::min(names.size(), kMostNamed);
  std::string text = fmt::format("{}", fmt::join(names.data(), names.data() + shown, ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

ReadBuffer::ReadBuffer(int64_t most_bytes)
    : bytes_(std::min(most_bytes, kBufferBytes)),
      // Not zeroed: every byte is read before it is used.
      data_(std::make_unique_for_overwrite<char[]>(static_cast<size_t>(bytes_))) {}

void read_stored(const InputFile& file, const StoredTensor& stored, const Box& box, int64_t turned_head_size,
                 float* to, const ReadBuffer& buffer) {
  TensorReader reader(file, stored, box.parameter->columns, buffer);
  if (turned_head_size > 0) return read_turned(reader, box, turned_head_size, to);
  reader.read({.first = box.row, .count = box.rows, .stride = box.stride, .to = to}, box.column, box.columns);
}

}  // namespace ripstop
