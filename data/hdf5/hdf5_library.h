// Only the files of data/hdf5/ include this header.
#pragma once
#include <hdf5.h>

#include <cstdint>
#include <string>
#include <utility>

#include "data/hdf5/hdf5.h"

namespace ripstop {

template <herr_t (*Close)(hid_t)>
class Handle {
 public:
  explicit Handle(hid_t id = H5I_INVALID_HID) : id_(id) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  hid_t get() const { return id_; }
  /// Returns the id, which the caller then owns.
  hid_t release() { return std::exchange(id_, H5I_INVALID_HID); }
  /// Closes the object now. Returns a negative number on failure.
  herr_t reset() {
    const hid_t id = release();
    return id < 0 ? 0 : Close(id);
  }

 private:
  hid_t id_;
};
using FileHandle = Handle<H5Fclose>;
using DatasetHandle = Handle<H5Dclose>;
using SpaceHandle = Handle<H5Sclose>;
using TypeHandle = Handle<H5Tclose>;
using PropertyHandle = Handle<H5Pclose>;
using AttributeHandle = Handle<H5Aclose>;

/// The HDF5 type of `type` on disk: little-endian on any machine, so that any machine can read the file.
TypeHandle disk_type(Hdf5Type type);

/// The HDF5 type of UTF-8 text of variable length.
TypeHandle string_type();

/// File options: format of HDF5 1.8, no locks. Objects of at least `alignment_bytes` begin at a multiple of
/// `alignment_bytes`.
PropertyHandle file_access(int64_t alignment_bytes);

/// Stops libhdf5 from printing errors and from cleaning up at exit. Call it before anything else of libhdf5.
void quiet_library();

/// The innermost message on libhdf5's error stack, on one line.
std::string library_error();

}  // namespace ripstop
