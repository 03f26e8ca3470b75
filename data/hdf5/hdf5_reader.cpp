#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "data/hdf5/hdf5.h"
#include "data/hdf5/hdf5_library.h"

namespace ripstop {
namespace {

constexpr std::array kTypes = {Hdf5Type::kUint8,   Hdf5Type::kUint16, Hdf5Type::kInt32,
                               Hdf5Type::kInt64,   Hdf5Type::kUint64, Hdf5Type::kBFloat16,
                               Hdf5Type::kFloat32, Hdf5Type::kFloat64};

/// Callback of H5Literate. It only collects links: an exception must not pass through the C library.
herr_t collect_links(hid_t, const char* name, const H5L_info_t* info, void* out) {
  static_cast<std::vector<std::pair<std::string, H5L_type_t>>*>(out)->emplace_back(name, info->type);
  return 0;
}

}  // namespace

struct Hdf5File::State {
  std::filesystem::path path;
  ExitCode refusal = ExitCode::kInputData;
  int64_t file_bytes = 0;
  FileHandle file;
  std::vector<Hdf5Array> arrays;
  std::map<std::string, int64_t> string_counts;

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(refusal, path.string() + ": " + fmt::format(format, std::forward<Args>(args)...));
  }
  template <class Result>
  Result need(Result result, std::string_view doing) const {
    if (result < 0) refuse("HDF5 cannot {}: {}", doing, library_error());
    return result;
  }
  void walk(const std::string& group);
  void add(const std::string& name);
  void add_array(const std::string& name, hid_t dataset, hid_t type, int64_t count);
  AttributeHandle attribute(const std::string& name) const;
};

void Hdf5File::State::walk(const std::string& group) {
  // A hostile file could cause an endless walk or a stack overflow. Real files stay far below.
  constexpr size_t kMostLinks = 1'000'000, kDeepest = 8;
  if (static_cast<size_t>(std::count(group.begin(), group.end(), '/')) > kDeepest)
    refuse("groups nest too deep");
  std::vector<std::pair<std::string, H5L_type_t>> links;
  hsize_t index = 0;
  need(H5Literate_by_name(file.get(), group.empty() ? "/" : group.c_str(), H5_INDEX_NAME, H5_ITER_INC, &index,
                          collect_links, &links, H5P_DEFAULT),
       fmt::format("list group '/{}'", group));
  for (const auto& [link, type] : links) {
    const std::string name = group.empty() ? link : group + "/" + link;
    // Soft and external links could lead to another file, or in a circle.
    if (type != H5L_TYPE_HARD) refuse("'{}' is a soft or external link, which is not allowed", name);
    if (arrays.size() + string_counts.size() > kMostLinks) refuse("more than {} objects", kMostLinks);
    const hid_t object = need(H5Oopen(file.get(), name.c_str(), H5P_DEFAULT), fmt::format("open '{}'", name));
    const H5I_type_t kind = H5Iget_type(object);
    H5Oclose(object);
    if (kind == H5I_GROUP) {
      walk(name);
    } else if (kind == H5I_DATASET) {
      add(name);
    } else {
      refuse("'{}' is a named type, which is not allowed", name);
    }
  }
}

void Hdf5File::State::add(const std::string& name) {
  DatasetHandle dataset(
      need(H5Dopen2(file.get(), name.c_str(), H5P_DEFAULT), fmt::format("open '{}'", name)));
  TypeHandle type(need(H5Dget_type(dataset.get()), "read a type"));
  SpaceHandle space(need(H5Dget_space(dataset.get()), "read a shape"));
  PropertyHandle creation(need(H5Dget_create_plist(dataset.get()), "read a layout"));
  if (H5Sget_simple_extent_ndims(space.get()) != 1) refuse("'{}' is not 1-D", name);
  hsize_t extent = 0;
  need(H5Sget_simple_extent_dims(space.get(), &extent, nullptr), "read a shape");
  // The size in bytes must fit into int64.
  if (extent > static_cast<hsize_t>(std::numeric_limits<int64_t>::max() / 8))
    refuse("'{}' is too long", name);
  // pread reads the arrays, so their bytes must lie in the file unchanged and contiguous.
  if (H5Pget_nfilters(creation.get()) != 0) refuse("'{}' has a filter, which is not allowed", name);
  if (H5Pget_layout(creation.get()) != H5D_CONTIGUOUS) {
    refuse("'{}' is not contiguous (chunked, compact or virtual storage is not allowed)", name);
  }
  if (H5Pget_external_count(creation.get()) != 0)
    refuse("'{}' lies in another file, which is not allowed", name);
  const int64_t count = static_cast<int64_t>(extent);
  if (H5Tget_class(type.get()) == H5T_STRING && H5Tis_variable_str(type.get()) > 0) {
    string_counts[name] = count;
  } else {
    add_array(name, dataset.get(), type.get(), count);
  }
}

void Hdf5File::State::add_array(const std::string& name, hid_t dataset, hid_t type, int64_t count) {
  const auto known = std::find_if(kTypes.begin(), kTypes.end(),
                                  [&](Hdf5Type t) { return H5Tequal(type, disk_type(t).get()) > 0; });
  if (known == kTypes.end()) {
    refuse("'{}' has a type that is not allowed (little-endian integers and floats are)", name);
  }
  Hdf5Array array{name, *known, count, 0};
  if (count > 0) {
    const haddr_t offset = H5Dget_offset(dataset);
    // libhdf5 allocates an array at its first write unless told otherwise.
    if (offset == HADDR_UNDEF) refuse("'{}' was never written", name);
    // Add in uint64 and check for wrap-around: a hostile file may state any offset.
    const uint64_t end = static_cast<uint64_t>(offset) + static_cast<uint64_t>(array.bytes());
    if (end < offset || end > static_cast<uint64_t>(file_bytes)) {
      refuse("'{}' ends at byte {}, the file at {}: it is cut short", name, end, file_bytes);
    }
    array.offset_bytes = static_cast<int64_t>(offset);
  }
  arrays.push_back(std::move(array));
}

AttributeHandle Hdf5File::State::attribute(const std::string& name) const {
  AttributeHandle attribute(H5Aopen(file.get(), name.c_str(), H5P_DEFAULT));
  if (attribute.get() < 0) refuse("attribute '{}' is missing", name);
  SpaceHandle space(H5Aget_space(attribute.get()));
  if (H5Sget_simple_extent_npoints(space.get()) != 1) refuse("attribute '{}' is not one value", name);
  return attribute;
}

Hdf5File::Hdf5File(const std::filesystem::path& path, ExitCode refusal) : state_(std::make_unique<State>()) {
  quiet_library();
  state_->path = path;
  state_->refusal = refusal;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) state_->refuse("{}", error ? error.message() : "no such file");
  if (!std::filesystem::is_regular_file(path, error)) state_->refuse("not a file");
  state_->file_bytes = static_cast<int64_t>(std::filesystem::file_size(path, error));
  if (error) state_->refuse("{}", error.message());
  // The checks above have clearer messages than libhdf5.
  const PropertyHandle access = file_access(1);
  state_->file = FileHandle(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()));
  if (state_->file.get() < 0) state_->refuse("not a readable HDF5 file: {}", library_error());
  state_->walk("");
  std::ranges::sort(state_->arrays, {}, &Hdf5Array::name);
}

Hdf5File::~Hdf5File() = default;
Hdf5File::Hdf5File(Hdf5File&&) noexcept = default;
Hdf5File& Hdf5File::operator=(Hdf5File&&) noexcept = default;

const std::vector<Hdf5Array>& Hdf5File::arrays() const {
  return state_->arrays;
}

const Hdf5Array& Hdf5File::array(const std::string& name) const {
  const auto& arrays = state_->arrays;
  const auto at = std::ranges::lower_bound(arrays, name, {}, &Hdf5Array::name);
  if (at == arrays.end() || at->name != name) state_->refuse("array '{}' is missing", name);
  return *at;
}

const Hdf5Array& Hdf5File::array(const std::string& name, Hdf5Type type) const {
  const Hdf5Array& found = array(name);
  if (found.type != type) {
    state_->refuse("array '{}' is {}, expected {}", name, to_string(found.type), to_string(type));
  }
  return found;
}

bool Hdf5File::has_attribute(const std::string& name) const {
  return H5Aexists(state_->file.get(), name.c_str()) > 0;
}

int64_t Hdf5File::integer(const std::string& name) const {
  const AttributeHandle attribute = state_->attribute(name);
  TypeHandle type(H5Aget_type(attribute.get()));
  if (H5Tget_class(type.get()) != H5T_INTEGER) state_->refuse("attribute '{}' is not an integer", name);
  int64_t value = 0;
  state_->need(H5Aread(attribute.get(), H5T_NATIVE_INT64, &value), fmt::format("read attribute '{}'", name));
  return value;
}

std::string Hdf5File::text(const std::string& name) const {
  const AttributeHandle attribute = state_->attribute(name);
  TypeHandle type(H5Aget_type(attribute.get()));
  // libhdf5 stores attributes of up to 64 KiB in the header of their object.
  constexpr size_t kLongest = 65536;
  const size_t bytes = H5Tget_size(type.get());
  if (H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) > 0 || bytes > kLongest) {
    state_->refuse("attribute '{}' is not a fixed-length text", name);
  }
  std::string value(bytes, '\0');
  state_->need(H5Aread(attribute.get(), type.get(), value.data()), fmt::format("read attribute '{}'", name));
  // A fixed-length text is padded with NUL bytes.
  value.resize(std::min(value.size(), value.find('\0')));
  return value;
}

bool Hdf5File::has_strings(const std::string& name) const {
  return state_->string_counts.count(name) != 0;
}

int64_t Hdf5File::strings_count(const std::string& name) const {
  const auto at = state_->string_counts.find(name);
  if (at == state_->string_counts.end()) state_->refuse("strings '{}' are missing", name);
  return at->second;
}

std::vector<std::string> Hdf5File::strings(const std::string& name, int64_t first, int64_t count) const {
  const int64_t present = strings_count(name);
  RIPSTOP_CHECK(first >= 0 && count >= 0 && first <= present - count, "strings {} + {} of {}", first, count,
                present);
  std::vector<std::string> texts;
  if (count == 0) return texts;
  const hsize_t start = static_cast<hsize_t>(first), extent = static_cast<hsize_t>(count);
  DatasetHandle dataset(
      state_->need(H5Dopen2(state_->file.get(), name.c_str(), H5P_DEFAULT), "open strings"));
  SpaceHandle file_space(H5Dget_space(dataset.get())), memory_space(H5Screate_simple(1, &extent, nullptr));
  state_->need(H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, &start, nullptr, &extent, nullptr),
               "select");
  const TypeHandle type = string_type();
  std::vector<char*> pointers(static_cast<size_t>(count), nullptr);
  state_->need(
      H5Dread(dataset.get(), type.get(), memory_space.get(), file_space.get(), H5P_DEFAULT, pointers.data()),
      fmt::format("read '{}'", name));
  for (const char* pointer : pointers) texts.emplace_back(pointer == nullptr ? "" : pointer);
  // libhdf5 has allocated the strings.
  H5Dvlen_reclaim(type.get(), memory_space.get(), H5P_DEFAULT, pointers.data());
  return texts;
}

}  // namespace ripstop
