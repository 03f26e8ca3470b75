// HDF5 files as containers: named 1-D arrays at known byte offsets, a few strings, a few attributes.
//
// libhdf5 makes the file's skeleton. The caller fills the arrays with its own pwrite and reads them with its
// own pread. There are three reasons: a write error cannot leave libhdf5 in a bad state; the caller can hash
// and sync every byte; and only the main thread enters libhdf5, whose parallel builds are not thread-safe.
// Only data/hdf5_*.h and .cpp include libhdf5's own header.
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

/// Element type of an array, little-endian on disk. bfloat16 is a floating-point type of 16 bits with the
/// sign in bit 15, 8 bits of exponent (bias 127) and 7 of mantissa, which HDF5 2.0 calls
/// H5T_FLOAT_BFLOAT16LE. h5dump shows its numbers.
enum class Hdf5Type { kUint8, kUint16, kInt32, kInt64, kUint64, kBFloat16, kFloat32, kFloat64 };

/// Bytes of one element.
int64_t size_bytes(Hdf5Type type);
/// "uint16", "int64", "float32", ...
std::string_view to_string(Hdf5Type type);

/// An array to create. `name` is a path inside the file ("tokens", "layers.3/first_moment"); groups are
/// created as needed.
struct Hdf5ArraySpec {
  std::string name;
  Hdf5Type type = Hdf5Type::kFloat32;
  int64_t count = 0;
};

/// An array of a file: `count` elements of `type` lie without gaps from byte `offset_bytes` of the file on.
struct Hdf5Array {
  std::string name;
  Hdf5Type type = Hdf5Type::kFloat32;
  int64_t count = 0;
  int64_t offset_bytes = 0;

  int64_t bytes() const { return count * size_bytes(type); }
};

/// A scalar attribute of the file's root group.
using Hdf5Value = std::variant<int64_t, double, std::string>;
using Hdf5Attributes = std::vector<std::pair<std::string, Hdf5Value>>;

/// Creates the file `path` (it must not exist) with the arrays `specs`, in that order, and the root
/// attributes `attributes`. Arrays are contiguous and allocated, but not written: their bytes are undefined
/// (zeros on a new file). An array of at least `alignment_bytes` begins at a multiple of it.
///
/// Returns the arrays with their offsets, in the order of `specs`. The file is closed and ready for pwrite;
/// its length is final. The same arguments give the same bytes. Nothing is synced: the caller does that with
/// its own descriptor. Main thread only. Throws Error(kStorage); the caller removes a file that could not be
/// finished.
std::vector<Hdf5Array> create_hdf5(const std::filesystem::path& path, const std::vector<Hdf5ArraySpec>& specs,
                                   const Hdf5Attributes& attributes, int64_t alignment_bytes = 4096);

/// Creates a file in steps: as create_hdf5 does, but with strings, too. Main thread only. Throws
/// Error(kStorage). The destructor of an unfinished writer abandons the file without a further write.
class Hdf5Writer {
 public:
  explicit Hdf5Writer(const std::filesystem::path& path, int64_t alignment_bytes = 4096);
  ~Hdf5Writer();
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  /// Adds an array, allocated but not written; its offset is valid once close() has returned.
  Hdf5Array add_array(const Hdf5ArraySpec& spec);
  /// Adds `count` UTF-8 strings of any length, without NUL bytes. Calls `next` once for each; a returned text
  /// must be valid until the next call. Memory does not grow with `count`.
  void add_strings(const std::string& name, int64_t count, const std::function<std::string_view()>& next);
  /// Sets an attribute of the root group.
  void set_attribute(const std::string& name, const Hdf5Value& value);
  /// Writes all metadata and closes the file.
  void close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A file open for reading. Opening takes no lock and looks at every object once. An object must be a group,
/// a contiguous 1-D array of an Hdf5Type whose bytes lie inside the file, or a 1-D array of strings. Links to
/// other files, filters, chunks, external or virtual storage and other types are refused, because a hostile
/// file could lead the reader anywhere with them. Main thread only; the returned Hdf5Array values may be used
/// by any thread. Throws Error with the code `refusal`: kInputData for data sets, kStorage for checkpoints.
class Hdf5File {
 public:
  explicit Hdf5File(const std::filesystem::path& path, ExitCode refusal = ExitCode::kInputData);
  ~Hdf5File();
  Hdf5File(Hdf5File&&) noexcept;
  Hdf5File& operator=(Hdf5File&&) noexcept;

  const std::filesystem::path& path() const;
  /// All arrays, sorted by name. Names carry no leading slash.
  const std::vector<Hdf5Array>& arrays() const;
  bool has_array(const std::string& name) const;
  /// The array `name`. Throws if it is missing.
  const Hdf5Array& array(const std::string& name) const;
  /// The array `name`. Throws if it is missing or not of `type`.
  const Hdf5Array& array(const std::string& name, Hdf5Type type) const;

  bool has_attribute(const std::string& name) const;
  /// A root attribute as an integer, or as text. Throws if it is missing or of another kind.
  int64_t integer(const std::string& name) const;
  std::string text(const std::string& name) const;

  bool has_strings(const std::string& name) const;
  /// How many strings the array of strings `name` has.
  int64_t strings_count(const std::string& name) const;
  /// Strings first .. first + count - 1 of `name`.
  std::vector<std::string> strings(const std::string& name, int64_t first, int64_t count) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
