// HDF5 files as containers of named 1-D arrays at known byte offsets, of strings and of attributes.
//
// libhdf5 makes all of a file except the content of the arrays. The caller uses pwrite and pread for them, so
// it can hash and sync them, and their write errors cannot leave libhdf5 in a bad state. Only the main thread
// calls libhdf5, whose parallel builds are not thread-safe.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "model/core/error.h"
#include "model/core/words.h"

namespace ripstop {

/// Element types, little-endian on disk. kBFloat16: sign in bit 15, 8 bits of exponent with bias 127, 7 bits
/// of mantissa, as H5T_FLOAT_BFLOAT16LE of HDF5 2.0.
enum class Hdf5Type { kUint8, kUint16, kInt32, kInt64, kUint64, kBFloat16, kFloat32, kFloat64 };
template <>
inline constexpr std::array<std::string_view, 8> kWords<Hdf5Type> = {
    "uint8", "uint16", "int32", "int64", "uint64", "bfloat16", "float32", "float64"};

constexpr int64_t size_bytes(Hdf5Type type) {
  return std::array{1, 2, 4, 8, 8, 2, 4, 8}.at(static_cast<size_t>(type));
}

/// `count` elements of `type`, contiguous from byte `offset_bytes` of the file on.
struct Hdf5Array {
  std::string name;  ///< path inside the file: "layers.3/first_moment"
  Hdf5Type type = Hdf5Type::kFloat32;
  int64_t count = 0;
  int64_t offset_bytes = 0;

  int64_t bytes() const { return count * size_bytes(type); }
};

using Hdf5Value = std::variant<int64_t, std::string>;
using Hdf5Attributes = std::vector<std::pair<std::string, Hdf5Value>>;

/// Creates a file, which must not exist yet. Equal calls give equal bytes around the arrays. Arrays of 4 KiB
/// or more begin at a multiple of 4 KiB. Syncs nothing. Main thread only. Throws Error(kStorage). Without
/// close(), the destructor abandons the file, and the caller must remove it.
class Hdf5Writer {
 public:
  explicit Hdf5Writer(const std::filesystem::path& path);
  ~Hdf5Writer();
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  /// Adds `array` and the groups in its name. Use the returned offset after close(). The array's bytes
  /// are undefined until the caller writes them.
  Hdf5Array add_array(Hdf5Array array);
  /// Adds `count` UTF-8 strings of any length, without NUL bytes. Calls next() once for each; the text must
  /// stay valid until the next call. Memory does not grow with `count`.
  void add_strings(const std::string& name, int64_t count, const std::function<std::string_view()>& next);
  /// Sets an attribute of the root group.
  void set_attribute(const std::string& name, const Hdf5Value& value);
  /// Writes the metadata and closes the file. The file's length is then final.
  void close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Creates `path` through an Hdf5Writer, ready for pwrite. Returns the arrays with their offsets.
std::vector<Hdf5Array> create_hdf5(const std::filesystem::path& path, std::vector<Hdf5Array> arrays,
                                   const Hdf5Attributes& attributes);

/// A file open for reading. The constructor takes no lock and checks that each object is a group, a
/// contiguous 1-D array of an Hdf5Type whose bytes lie inside the file, or a 1-D array of strings. It refuses
/// all else, such as filters and chunks, also virtual or external storage and soft or external links, with
/// which a hostile file could make libhdf5 read any file. Main thread only; any thread may use a returned
/// Hdf5Array. All members throw Error(`refusal`): kInputData for data sets, kStorage for checkpoints.
class Hdf5File {
 public:
  explicit Hdf5File(const std::filesystem::path& path, ExitCode refusal = ExitCode::kInputData);
  ~Hdf5File();
  Hdf5File(Hdf5File&&) noexcept;
  Hdf5File& operator=(Hdf5File&&) noexcept;

  /// All arrays except arrays of strings, sorted by name. Names have no leading slash.
  const std::vector<Hdf5Array>& arrays() const;
  /// Throws if there is no such array.
  const Hdf5Array& array(const std::string& name) const;
  /// Throws if there is no such array or if its elements are not of `type`.
  const Hdf5Array& array(const std::string& name, Hdf5Type type) const;

  /// has_attribute(), integer() and text() read attributes of the root group.
  bool has_attribute(const std::string& name) const;
  /// Throws if the attribute is missing or not one integer.
  int64_t integer(const std::string& name) const;
  /// Throws if the attribute is missing or not one text of fixed length.
  std::string text(const std::string& name) const;

  bool has_strings(const std::string& name) const;
  /// Throws if there is no such array. strings() may also throw Error(kInputData) and Error(kStorage).
  int64_t strings_count(const std::string& name) const;
  std::vector<std::string> strings(const std::string& name, int64_t first, int64_t count) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
