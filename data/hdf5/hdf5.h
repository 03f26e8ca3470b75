// HDF5 files as containers of named 1-D arrays at known byte offsets, of strings and of attributes.
//
// libhdf5 makes only the skeleton of a file. The caller writes the arrays with pwrite and reads them with
// pread, for three reasons: a write error cannot leave libhdf5 in a bad state; the caller can hash and sync
// every byte; and only the main thread enters libhdf5, which parallel builds do not make thread-safe. Only
// the files of data/hdf5/ include <hdf5.h>.
#pragma once
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

namespace ripstop {

/// Element type of an array, little-endian on disk. kBFloat16 has its sign in bit 15, 8 bits of exponent with
/// bias 127, and 7 bits of mantissa. HDF5 2.0 calls this type H5T_FLOAT_BFLOAT16LE; h5dump shows its numbers.
enum class Hdf5Type { kUint8, kUint16, kInt32, kInt64, kUint64, kBFloat16, kFloat32, kFloat64 };

/// Number of bytes of one element.
int64_t size_bytes(Hdf5Type type);
/// The name of the type: "uint16", "int64", "float32", ...
std::string_view to_string(Hdf5Type type);

/// Describes an array of a file: `count` elements of `type`, contiguous from byte `offset_bytes` of the file
/// on.
struct Hdf5Array {
  std::string name;  ///< path inside the file: "tokens", "layers.3/first_moment"
  Hdf5Type type = Hdf5Type::kFloat32;
  int64_t count = 0;
  int64_t offset_bytes = 0;

  int64_t bytes() const { return count * size_bytes(type); }
};

/// The value of a scalar attribute of the root group.
using Hdf5Value = std::variant<int64_t, std::string>;
using Hdf5Attributes = std::vector<std::pair<std::string, Hdf5Value>>;

/// Creates a file, which must not exist yet. The same calls give the same bytes. An array of 4 KiB or more
/// begins at a multiple of 4 KiB. Syncs nothing: the caller does that with a descriptor of its own. Use it on
/// the main thread only. Throws Error(kStorage). If close() was not called, the destructor abandons the file
/// without a further write, and the caller must remove it.
class Hdf5Writer {
 public:
  explicit Hdf5Writer(const std::filesystem::path& path);
  ~Hdf5Writer();
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  /// Adds `array` and the groups in its name. Returns the array with its offset, which is valid once close()
  /// has returned. Allocates the array, but does not write it: its bytes are undefined (zeros in a new file).
  Hdf5Array add_array(Hdf5Array array);
  /// Adds an array of `count` UTF-8 strings of any length, without NUL bytes. Calls next() once for each
  /// string; the text that it returns must stay valid until the next call. Memory does not grow with `count`.
  void add_strings(const std::string& name, int64_t count, const std::function<std::string_view()>& next);
  /// Sets an attribute of the root group.
  void set_attribute(const std::string& name, const Hdf5Value& value);
  /// Writes the metadata and closes the file. From then on, the length of the file is final.
  void close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Creates the file `path` with `attributes` and `arrays` through an Hdf5Writer, ready for pwrite. Returns
/// the arrays with their offsets.
std::vector<Hdf5Array> create_hdf5(const std::filesystem::path& path, std::vector<Hdf5Array> arrays,
                                   const Hdf5Attributes& attributes);

/// A file open for reading. The constructor takes no lock and checks every object once. An object must be a
/// group, a contiguous 1-D array of an Hdf5Type whose bytes lie inside the file, or a 1-D array of strings.
/// Other types, filters, chunks, external or virtual storage and links to other files are refused, because
/// with them a hostile file could make the reader read any file. Use it on the main thread only; any thread
/// may use a returned Hdf5Array. All members throw Error(`refusal`): kInputData for data sets, kStorage for
/// checkpoints.
class Hdf5File {
 public:
  explicit Hdf5File(const std::filesystem::path& path, ExitCode refusal = ExitCode::kInputData);
  ~Hdf5File();
  Hdf5File(Hdf5File&&) noexcept;
  Hdf5File& operator=(Hdf5File&&) noexcept;

  /// All arrays of the file except those of strings, sorted by name. Names have no leading slash.
  const std::vector<Hdf5Array>& arrays() const;
  /// The array `name`. Throws if there is no such array.
  const Hdf5Array& array(const std::string& name) const;
  /// The array `name`. Throws if there is no such array or if its elements are not of `type`.
  const Hdf5Array& array(const std::string& name, Hdf5Type type) const;

  /// Whether the root group has the attribute `name`.
  bool has_attribute(const std::string& name) const;
  /// The value of an attribute of the root group. Throws if the attribute is missing or of another type.
  int64_t integer(const std::string& name) const;
  /// The value of a text attribute of the root group. Throws as integer() does.
  std::string text(const std::string& name) const;

  /// Whether the file has an array of strings `name`.
  bool has_strings(const std::string& name) const;
  /// The number of strings in the array `name`. Throws if there is no such array.
  int64_t strings_count(const std::string& name) const;
  /// Strings first .. first + count - 1 of the array of strings `name`.
  std::vector<std::string> strings(const std::string& name, int64_t first, int64_t count) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
