#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <optional>

#include "data/files/file.h"
#include "data/hdf5/hdf5.h"
#include "data/hdf5/hdf5_library.h"

namespace ripstop {
namespace {

/// An array of strings of variable length: `count` elements from byte `offset_bytes` of the file on.
struct StringArray {
  int64_t count = 0, offset_bytes = 0;
};

/// A collection of the file's global heap, which holds strings. Reads it without libhdf5, which would trust
/// the sizes in it. Source: HDF5 File Format Specification 3.0, III.E.
class HeapCollection {
 public:
  /// Reads the collection at byte `address`. Throws Error(kInputData) if it is damaged or not in the file.
  HeapCollection(const InputFile& file, uint64_t address) : address_(address) {
    constexpr uint64_t kHeader = 16, kMostBytes = uint64_t{256} << 20, kMostObjects = 1 << 16;
    std::array<char, kHeader> header{};
    const auto file_bytes = static_cast<uint64_t>(file.bytes());
    if (address > file_bytes || file_bytes - address < kHeader) refuse(file);
    file.read_at(static_cast<int64_t>(address), header.data(), kHeader);
    const auto bytes = number_at<uint64_t>(header.data() + 8);
    if (std::string_view(header.data(), 5) != std::string_view("GCOL\1", 5) || bytes < kHeader ||
        bytes > std::min(file_bytes - address, kMostBytes))
      refuse(file);
    bytes_.resize(bytes);
    file.read_at(static_cast<int64_t>(address), bytes_.data(), std::ssize(bytes_));
    // An object: index (2 bytes), 6 unused bytes, size (8 bytes), content padded to a multiple of 8 bytes.
    for (uint64_t at = kHeader; bytes - at >= kHeader;) {
      const auto index = number_at<uint16_t>(bytes_.data() + at);
      const auto size = number_at<uint64_t>(bytes_.data() + at + 8);
      if (index == 0) break;  // the free space, which comes last
      if (size > bytes - at - kHeader || objects_.size() == kMostObjects) refuse(file);
      objects_[index] = std::string_view(bytes_.data() + at + kHeader, size);
      at += std::min(bytes - at, kHeader + (size + 7) / 8 * 8);
    }
  }
  HeapCollection(const HeapCollection&) = delete;
  HeapCollection& operator=(const HeapCollection&) = delete;

  uint64_t address() const { return address_; }
  /// The first `bytes` bytes of object `index`; nullopt if there is no such object or if it is shorter.
  std::optional<std::string_view> text(uint32_t index, uint32_t bytes) const {
    const auto found = objects_.find(index);
    if (found == objects_.end() || found->second.size() < bytes) return std::nullopt;
    return found->second.substr(0, bytes);
  }

  template <class Number>
  static Number number_at(const char* bytes) {
    Number number;
    std::memcpy(&number, bytes, sizeof number);
    return number;
  }

 private:
  [[noreturn]] void refuse(const InputFile& file) const {
    fail(ExitCode::kInputData, "{}: its strings at byte {} are damaged", file.path().string(), address_);
  }

  uint64_t address_;
  std::string bytes_;
  std::map<uint32_t, std::string_view> objects_;
};

// An element of an array of strings: length (4 bytes), address of the heap collection (8), index in it (4).
constexpr int64_t kStringBytes = 16;

/// Callback for each link of a group. Only collects: no exception may pass through the C library.
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
  std::map<std::string, StringArray> strings;
  size_t links = 0;  // counts those that walk() has followed

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
  int64_t place_of(const std::string& name, hid_t dataset, int64_t bytes) const;
  AttributeHandle attribute(const std::string& name) const;
};

void Hdf5File::State::walk(const std::string& group) {
  // A hostile file could cause an endless walk or a stack overflow. Real files stay far below these limits.
  constexpr size_t kMostLinks = 100'000, kDeepest = 8;
  if (static_cast<size_t>(std::count(group.begin(), group.end(), '/')) > kDeepest)
    refuse("groups nest too deep");
  std::vector<std::pair<std::string, H5L_type_t>> found;
  hsize_t index = 0;
  need(H5Literate_by_name(file.get(), group.empty() ? "/" : group.c_str(), H5_INDEX_NAME, H5_ITER_INC, &index,
                          collect_links, &found, H5P_DEFAULT),
       fmt::format("list group '/{}'", group));
  for (const auto& [link, type] : found) {
    const std::string name = group.empty() ? link : group + "/" + link;
    if (type != H5L_TYPE_HARD) refuse("'{}' is a soft or external link, which is not allowed", name);
    if (++links > kMostLinks) refuse("more than {} links", kMostLinks);
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
  // The size of the array in bytes must fit into int64.
  if (extent > static_cast<hsize_t>(std::numeric_limits<int64_t>::max() / kStringBytes))
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
    strings[name] = {count, place_of(name, dataset.get(), count * kStringBytes)};
  } else {
    add_array(name, dataset.get(), type.get(), count);
  }
}

void Hdf5File::State::add_array(const std::string& name, hid_t dataset, hid_t type, int64_t count) {
  for (size_t known = 0; known < kWords<Hdf5Type>.size(); ++known) {
    Hdf5Array array{name, static_cast<Hdf5Type>(known), count, 0};
    if (H5Tequal(type, disk_type(array.type).get()) <= 0) continue;
    array.offset_bytes = place_of(name, dataset, array.bytes());
    arrays.push_back(std::move(array));
    return;
  }
  refuse("'{}' has a type that is not allowed (little-endian integers and floats are)", name);
}

/// The offset of a dataset of `bytes` bytes, which must lie in the file. 0 if `bytes` is 0: an array without
/// elements has no place in the file.
int64_t Hdf5File::State::place_of(const std::string& name, hid_t dataset, int64_t bytes) const {
  if (bytes == 0) return 0;
  const haddr_t offset = H5Dget_offset(dataset);
  // libhdf5 allocates an array at its first write unless told otherwise.
  if (offset == HADDR_UNDEF) refuse("'{}' was never written", name);
  // Add in uint64, and check for wrap-around: a hostile file may state any offset.
  const uint64_t end = static_cast<uint64_t>(offset) + static_cast<uint64_t>(bytes);
  if (end < offset || end > static_cast<uint64_t>(file_bytes)) {
    refuse("'{}' ends at byte {}, the file at {}: it is cut short", name, end, file_bytes);
  }
  return static_cast<int64_t>(offset);
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
  // libhdf5 comes last, because the checks above have clearer messages.
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
  return state_->strings.count(name) != 0;
}

int64_t Hdf5File::strings_count(const std::string& name) const {
  const auto at = state_->strings.find(name);
  if (at == state_->strings.end()) state_->refuse("strings '{}' are missing", name);
  return at->second.count;
}

std::vector<std::string> Hdf5File::strings(const std::string& name, int64_t first, int64_t count) const {
  const int64_t present = strings_count(name);
  RIPSTOP_CHECK(first >= 0 && count >= 0 && first <= present - count, "strings {} + {} of {}", first, count,
                present);
  std::vector<std::string> texts;
  if (count == 0) return texts;
  const InputFile file(state_->path, state_->refusal);
  const std::string elements =
      file.text_at(state_->strings.at(name).offset_bytes + first * kStringBytes, count * kStringBytes);
  std::optional<HeapCollection> heap;
  for (const char* at = elements.data(); std::ssize(texts) < count; at += kStringBytes) {
    const auto bytes = HeapCollection::number_at<uint32_t>(at);
    const auto address = HeapCollection::number_at<uint64_t>(at + 4);
    const auto index = HeapCollection::number_at<uint32_t>(at + 12);
    std::optional<std::string_view> text = "";
    if (bytes > 0) {
      if (!heap || heap->address() != address) heap.emplace(file, address);
      text = heap->text(index, bytes);
    }
    if (!text) state_->refuse("string {} of '{}' is damaged", first + std::ssize(texts), name);
    texts.emplace_back(text->substr(0, text->find('\0')));
  }
  return texts;
}

}  // namespace ripstop
