#include "data/hdf5/hdf5_library.h"

#include <algorithm>

namespace ripstop {

namespace {

hid_t predefined_type(Hdf5Type type) {
  switch (type) {
    case Hdf5Type::kUint8:
      return H5T_STD_U8LE;
    case Hdf5Type::kUint16:
      return H5T_STD_U16LE;
    case Hdf5Type::kInt32:
      return H5T_STD_I32LE;
    case Hdf5Type::kInt64:
      return H5T_STD_I64LE;
    case Hdf5Type::kUint64:
      return H5T_STD_U64LE;
    case Hdf5Type::kBFloat16:  // the upper half of a float
    case Hdf5Type::kFloat32:
      return H5T_IEEE_F32LE;
    case Hdf5Type::kFloat64:
      return H5T_IEEE_F64LE;
  }
  RIPSTOP_CHECK(false, "unknown Hdf5Type {}", static_cast<int>(type));
}

}  // namespace

// Types of fixed size and byte order, not the machine's: a file must read the same anywhere.
TypeHandle disk_type(Hdf5Type type) {
  TypeHandle copy(H5Tcopy(predefined_type(type)));
  if (type != Hdf5Type::kBFloat16) return copy;
  // The fields first: a type cannot become shorter than its fields.
  const bool done = H5Tset_fields(copy.get(), /*sign=*/15, /*exponent at*/ 7, /*bits*/ 8, /*mantissa at*/ 0,
                                  /*bits*/ 7) >= 0 &&
                    H5Tset_size(copy.get(), 2) >= 0 && H5Tset_ebias(copy.get(), 127) >= 0;
  RIPSTOP_CHECK(done, "HDF5 cannot make bfloat16: {}", library_error());
  return copy;
}

void quiet_library() {
  // After a failed write the library's clean-up at exit crashes: it writes again.
  H5dont_atexit();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

std::string library_error() {
  std::string text = "unknown HDF5 error";
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned depth, const H5E_error2_t* error, void* out) -> herr_t {
        // Depth 0 is the innermost call, which knows the cause. The outer ones only say what failed with it.
        if (depth == 0 && error->desc != nullptr) *static_cast<std::string*>(out) = error->desc;
        return 0;
      },
      &text);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

PropertyHandle file_access(int64_t alignment_bytes) {
  PropertyHandle access(H5Pcreate(H5P_FILE_ACCESS));
  // Clusters still have HDF5 1.8, and its h5dump must read the files.
  H5Pset_libver_bounds(access.get(), H5F_LIBVER_EARLIEST, H5F_LIBVER_V18);
  // Advisory locks fail on Lustre without -o flock and on some NFS; we rename finished directories instead.
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

int64_t size_bytes(Hdf5Type type) {
  switch (type) {
    case Hdf5Type::kUint8:
      return 1;
    case Hdf5Type::kUint16:
    case Hdf5Type::kBFloat16:
      return 2;
    case Hdf5Type::kInt32:
    case Hdf5Type::kFloat32:
      return 4;
    case Hdf5Type::kInt64:
    case Hdf5Type::kUint64:
    case Hdf5Type::kFloat64:
      return 8;
  }
  RIPSTOP_CHECK(false, "unknown Hdf5Type {}", static_cast<int>(type));
}

std::string_view to_string(Hdf5Type type) {
  switch (type) {
    case Hdf5Type::kUint8:
      return "uint8";
    case Hdf5Type::kUint16:
      return "uint16";
    case Hdf5Type::kInt32:
      return "int32";
    case Hdf5Type::kInt64:
      return "int64";
    case Hdf5Type::kUint64:
      return "uint64";
    case Hdf5Type::kBFloat16:
      return "bfloat16";
    case Hdf5Type::kFloat32:
      return "float32";
    case Hdf5Type::kFloat64:
      return "float64";
  }
  RIPSTOP_CHECK(false, "unknown Hdf5Type {}", static_cast<int>(type));
}

}  // namespace ripstop
