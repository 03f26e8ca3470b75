// The parts of libhdf5 that the writer and the reader of HDF5 files share. Only data/hdf5_*.cpp include this.
#pragma once
#include <hdf5.h>

#include <cstdint>
#include <string>
#include <utility>

#include "data/hdf5/hdf5.h"

namespace ripstop {

/// An open HDF5 object, closed by `Close` when the scope ends.
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
  hid_t release() { return std::exchange(id_, H5I_INVALID_HID); }
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

/// The type of an array's elements on disk: little-endian, whatever the machine.
TypeHandle disk_type(Hdf5Type type);

/// UTF-8 text of variable length.
TypeHandle string_type();

/// How files are opened: format of HDF5 1.8, no locks. Objects of at least `alignment_bytes` begin at a
/// multiple of it.
PropertyHandle file_access(int64_t alignment_bytes);

/// Keeps the library from printing, and from its clean-up at exit. Call it before any other function.
void quiet_library();

/// The innermost message of the library's error stack, on one line.
std::string library_error();

}  // namespace ripstop
