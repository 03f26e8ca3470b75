#include "data/hdf5/hdf5_library.h"

#include <array>

#include "model/core/one_line.h"

namespace ripstop {

TypeHandle disk_type(Hdf5Type type) {
  // bfloat16 begins as a float32, which the code below shrinks.
  const std::array<hid_t, kWords<Hdf5Type>.size()> predefined = {
      H5T_STD_U8LE,  H5T_STD_U16LE,  H5T_STD_I32LE,  H5T_STD_I64LE,
      H5T_STD_U64LE, H5T_IEEE_F32LE, H5T_IEEE_F32LE, H5T_IEEE_F64LE};
  TypeHandle copy(H5Tcopy(predefined.at(static_cast<size_t>(type))));
  if (type != Hdf5Type::kBFloat16) return copy;
  // Set the fields before the size, which cannot become smaller than the fields need.
  const bool done = H5Tset_fields(copy.get(), /*sign=*/15, /*exponent at*/ 7, /*bits*/ 8, /*mantissa at*/ 0,
                                  /*bits*/ 7) >= 0 &&
                    H5Tset_size(copy.get(), 2) >= 0 && H5Tset_ebias(copy.get(), 127) >= 0;
  RIPSTOP_CHECK(done, "HDF5 cannot make bfloat16: {}", library_error());
  return copy;
}

void quiet_library() {
  // libhdf5's clean-up at exit would write again after a failed write and crash.
  H5dont_atexit();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

std::string library_error() {
  std::string text = "unknown HDF5 error";
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned depth, const H5E_error2_t* error, void* out) -> herr_t {
        // Depth 0 is the innermost call, whose message names the cause.
        if (depth == 0 && error->desc != nullptr) *static_cast<std::string*>(out) = error->desc;
        return 0;
      },
      &text);
  return in_one_line(std::move(text));
}

PropertyHandle file_access(int64_t alignment_bytes) {
  PropertyHandle access(H5Pcreate(H5P_FILE_ACCESS));
  // Write the format of HDF5 1.8, because clusters still have h5dump of that version.
  H5Pset_libver_bounds(access.get(), H5F_LIBVER_EARLIEST, H5F_LIBVER_V18);
  // Locks fail on Lustre without -o flock and on some NFS servers. ripstop needs no locks, because readers
  // see only complete directories.
  H5Pset_file_locking(access.get(), false, true);
  if (alignment_bytes > 1)
    H5Pset_alignment(access.get(), static_cast<hsize_t>(alignment_bytes),
                     static_cast<hsize_t>(alignment_bytes));
  return access;
}

TypeHandle string_type() {
  TypeHandle type(H5Tcopy(H5T_C_S1));
  H5Tset_size(type.get(), H5T_VARIABLE);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  return type;
}

}  // namespace ripstop
