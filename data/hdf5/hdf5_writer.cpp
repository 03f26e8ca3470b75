#include <algorithm>

#include "data/hdf5/hdf5.h"
#include "data/hdf5/hdf5_library.h"

namespace ripstop {

struct Hdf5Writer::State {
  std::filesystem::path path;
  FileHandle file;

  ~State() {
    // Leak a handle that close() did not close: H5Fclose would write again after an error.
    file.release();
  }
  template <class Result>
  Result need(Result result, std::string_view doing) const {
    if (result < 0) fail(ExitCode::kStorage, "{}: HDF5 cannot {}: {}", path.string(), doing, library_error());
    return result;
  }
  /// Creates the dataset `name` and the groups in its name, without time stamps.
  DatasetHandle create(const std::string& name, hid_t type, int64_t count, bool allocate) {
    const hsize_t extent = static_cast<hsize_t>(count);
    SpaceHandle space(need(H5Screate_simple(1, &extent, nullptr), "make a data space"));
    PropertyHandle creation(H5Pcreate(H5P_DATASET_CREATE)), link(H5Pcreate(H5P_LINK_CREATE));
    H5Pset_obj_track_times(creation.get(), false);
    H5Pset_create_intermediate_group(link.get(), 1);
    if (allocate) {
      // Allocate now, so that the offset is known. The caller writes every byte with pwrite.
      H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY);
      H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER);
    }
    return DatasetHandle(
        need(H5Dcreate2(file.get(), name.c_str(), type, space.get(), link.get(), creation.get(), H5P_DEFAULT),
             fmt::format("create '{}'", name)));
  }
};

Hdf5Writer::Hdf5Writer(const std::filesystem::path& path) : state_(std::make_unique<State>()) {
  quiet_library();
  state_->path = path;
  const PropertyHandle access = file_access(/*alignment_bytes=*/4096);
  state_->file = FileHandle(
      state_->need(H5Fcreate(path.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, access.get()), "create the file"));
}

Hdf5Writer::~Hdf5Writer() = default;

Hdf5Array Hdf5Writer::add_array(Hdf5Array array) {
  RIPSTOP_CHECK(array.count >= 0, "'{}' has {} elements", array.name, array.count);
  const TypeHandle type = disk_type(array.type);
  DatasetHandle dataset = state_->create(array.name, type.get(), array.count, true);
  if (array.count > 0) {
    const haddr_t offset = H5Dget_offset(dataset.get());
    if (offset == HADDR_UNDEF)
      fail(ExitCode::kStorage, "{}: '{}' got no place", state_->path.string(), array.name);
    array.offset_bytes = static_cast<int64_t>(offset);
  }
  state_->need(dataset.reset(), "close an array");
  return array;
}

void Hdf5Writer::add_strings(const std::string& name, int64_t count,
                             const std::function<std::string_view()>& next) {
  const TypeHandle type = string_type();
  DatasetHandle dataset = state_->create(name, type.get(), count, false);
  SpaceHandle file_space(H5Dget_space(dataset.get()));
  // Write a few strings at a time: the texts of a data set may not fit into memory.
  constexpr int64_t kBatch = 64;
  std::vector<std::string> texts;
  std::vector<const char*> pointers;
  for (int64_t first = 0; first < count; first += kBatch) {
    const hsize_t start = static_cast<hsize_t>(first);
    const hsize_t extent = static_cast<hsize_t>(std::min(kBatch, count - first));
    texts.clear();
    pointers.clear();
    for (hsize_t i = 0; i < extent; ++i) texts.emplace_back(next());
    // Take the pointers after the last emplace_back, which may move the strings.
    for (const std::string& text : texts) pointers.push_back(text.c_str());
    SpaceHandle memory_space(H5Screate_simple(1, &extent, nullptr));
    state_->need(H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, &start, nullptr, &extent, nullptr),
                 "select strings");
    state_->need(H5Dwrite(dataset.get(), type.get(), memory_space.get(), file_space.get(), H5P_DEFAULT,
                          pointers.data()),
                 fmt::format("write '{}'", name));
  }
  state_->need(dataset.reset(), "close strings");
}

void Hdf5Writer::set_attribute(const std::string& name, const Hdf5Value& value) {
  SpaceHandle scalar(H5Screate(H5S_SCALAR));
  const auto write = [&](hid_t disk, hid_t memory, const void* data) {
    AttributeHandle attribute(state_->need(
        H5Acreate2(state_->file.get(), name.c_str(), disk, scalar.get(), H5P_DEFAULT, H5P_DEFAULT),
        fmt::format("create attribute '{}'", name)));
    state_->need(H5Awrite(attribute.get(), memory, data), fmt::format("write attribute '{}'", name));
  };
  if (const auto* integer = std::get_if<int64_t>(&value)) write(H5T_STD_I64LE, H5T_NATIVE_INT64, integer);
  if (const auto* text = std::get_if<std::string>(&value)) {
    // A fixed-length text is stored in the object header, where every tool can read it.
    TypeHandle type(H5Tcopy(H5T_C_S1));
    H5Tset_size(type.get(), std::max<size_t>(1, text->size()));
    H5Tset_cset(type.get(), H5T_CSET_UTF8);
    H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
    write(type.get(), type.get(), text->empty() ? "" : text->data());
  }
}

void Hdf5Writer::close() {
  // Without H5Fflush, the message about a failed write would say "close".
  state_->need(H5Fflush(state_->file.get(), H5F_SCOPE_GLOBAL), "write its metadata");
  state_->need(state_->file.reset(), "close the file");
}

std::vector<Hdf5Array> create_hdf5(const std::filesystem::path& path, std::vector<Hdf5Array> arrays,
                                   const Hdf5Attributes& attributes) {
  Hdf5Writer writer(path);
  for (const auto& [name, value] : attributes) writer.set_attribute(name, value);
  for (Hdf5Array& array : arrays) array = writer.add_array(array);
  writer.close();
  return arrays;
}

}  // namespace ripstop
