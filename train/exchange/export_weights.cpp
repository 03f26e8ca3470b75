#include "train/exchange/export_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "data/directory.h"
#include "data/file.h"
#include "data/hash.h"
#include "data/whole_file.h"
#include "model/core/rounding.h"
#include "parallel/agreement.h"
#include "train/exchange/export_rounding.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPartElements = int64_t{4} << 20;  // 16 MiB of float32

// Bytes of a file that one call wrote, and the hash of what it was given.
struct WrittenBytes {
  size_t file = 0;
  int64_t offset = 0, bytes = 0;
  uint64_t hash = 0;
};

// One of the equal parts of a unit.
struct UnitPart {
  const UnitSpec* unit = nullptr;
  int64_t count = 0, index = 0;
};

std::vector<UnitPart> parts_of(const std::vector<UnitSpec>& units) {
  std::vector<UnitPart> parts;
  for (const UnitSpec& unit : units) {
    const int64_t count = divide_up(UnitLayout(unit, 1, 0, 1).elements(), kPartElements);
    for (int64_t i = 0; i < count; ++i) parts.push_back({&unit, count, i});
  }
  return parts;
}

// Neighbours, so that a rank reads and writes in order and few blocks are touched by two.
std::vector<UnitPart> share_of_rank(const std::vector<UnitPart>& all, const Communicator& world) {
  const int64_t count = std::ssize(all);
  return {all.begin() + count * world.rank() / world.size(),
          all.begin() + count * (world.rank() + 1) / world.size()};
}

// Rows of a box by their place in the file.
struct RowPlace {
  int64_t stored = 0;  // row of the file's tensor
  int64_t row = 0;     // row of the box
};

std::vector<RowPlace> row_places(const Box& box, const ExportedTensor& tensor) {
  std::vector<RowPlace> places;
  for (int64_t row = 0; row < box.rows; ++row) places.push_back({tensor.stored_row(box.row + row), row});
  std::ranges::sort(places, {}, &RowPlace::stored);
  return places;
}

// Writes this rank's parts. Files are opened when a part needs them, and stay open.
class PartWriter {
 public:
  PartWriter(Io& io, const ExportLayout& layout, const fs::path& directory)
      : io_(io), layout_(layout), directory_(directory), files_(layout.files().size()) {}

  // `values`: elements [begin, ...) of the unit's buffer.
  void write(const Box& box, const float* values, int64_t begin);
  void sync();
  const std::vector<WrittenBytes>& written() const { return written_; }

 private:
  void write_run(const Box& box, const ExportedTensor& tensor, const RowPlace* first, int64_t rows,
                 const float* values);

  Io& io_;
  const ExportLayout& layout_;
  const fs::path& directory_;
  std::vector<std::optional<OutputFile>> files_;
  std::vector<char> bytes_;
  std::vector<WrittenBytes> written_;
};

void PartWriter::write(const Box& box, const float* values, int64_t begin) {
  const ExportedTensor& tensor = layout_.tensors().at(box.parameter->name);
  const std::vector<RowPlace> places = row_places(box, tensor);
  // Rows that lie together in the file are one write. A part of a row stands alone.
  for (size_t first = 0, end = 0; first < places.size(); first = end) {
    for (end = first + 1; end < places.size() && places[end].stored == places[end - 1].stored + 1; ++end) {
    }
    write_run(box, tensor, &places[first], static_cast<int64_t>(end - first), values + box.offset - begin);
  }
}

void PartWriter::write_run(const Box& box, const ExportedTensor& tensor, const RowPlace* first, int64_t rows,
                           const float* values) {
  const int64_t element = element_bytes(layout_.dtype());
  RIPSTOP_CHECK(rows == 1 || box.columns == tensor.columns, "{}: {} columns of {} in {} rows", tensor.name,
                box.columns, tensor.columns, rows);
  bytes_.resize(static_cast<size_t>(rows * box.columns * element));
  for (int64_t i = 0; i < rows; ++i) {
    const std::optional<float> lost = convert(values + first[i].row * box.stride, box.columns,
                                              layout_.dtype(), bytes_.data() + i * box.columns * element);
    if (lost)
      throw Error(ExitCode::kInputData,
                  fmt::format("{} has the weight {}, which {} cannot hold", tensor.name, *lost,
                              to_string(layout_.dtype())),
                  "export with --dtype float32");
  }
  std::optional<OutputFile>& file = files_[tensor.file];
  if (!file) file.emplace(io_, directory_ / layout_.files()[tensor.file].name, OutputFile::Mode::kExisting);
  const int64_t offset = tensor.begin + (first->stored * tensor.columns + box.column) * element;
  // The hash of the copy that is written, as an error in the copy must show.
  written_.push_back({tensor.file, offset, std::ssize(bytes_), hash64(bytes_.data(), std::ssize(bytes_))});
  file->write_at(offset, bytes_.data(), std::ssize(bytes_));
}

void PartWriter::sync() {
  for (std::optional<OutputFile>& file : files_) {
    if (!file) continue;
    file->sync();
    file->close();
    file.reset();
  }
}

// A checkpoint whose manifest was made for another model than it says would leave weights behind.
void check_same_names(const ExportLayout& layout, const Manifest& manifest) {
  for (const UnitSpec& unit : manifest.units)
    for (const PhysicalTensor& tensor : unit.tensors)
      for (const ParameterSpec& p : tensor.parts)
        if (!layout.tensors().contains(p.name))
          fail(ExitCode::kStorage, "the checkpoint has the parameter {}, its model does not", p.name);
}

// On rank 0. The files get their whole size at once: else two ranks of a network file system could both take
// the end of the file, as they know it, for the end of their own writes.
std::vector<WrittenBytes> make_files(Io& io, const ExportLayout& layout, const fs::path& directory) {
  std::vector<WrittenBytes> written;
  for (size_t i = 0; i < layout.files().size(); ++i) {
    const ExportedFile& made = layout.files()[i];
    const int64_t header_bytes = std::ssize(made.header);
    OutputFile file(io, directory / made.name);
    file.write_at(made.bytes - 1, "", 1);
    file.write_at(0, made.header.data(), header_bytes);
    file.sync();
    file.close();
    written.push_back({i, 0, header_bytes, hash64(made.header.data(), header_bytes)});
  }
  return written;
}

std::vector<WrittenBytes> write_share(Io& io, Communicator& world, const Checkpoint& checkpoint,
                                      const ExportLayout& layout, const fs::path& directory,
                                      ExportProgress progress) {
  const std::vector<UnitPart> share = share_of_rank(parts_of(layout.units()), world);
  CheckpointReader reader(io, checkpoint);
  PartWriter writer(io, layout, directory);
  std::vector<float> values;
  int64_t done = 0, total = 0;
  for (const UnitPart& part : share)
    total += UnitLayout(*part.unit, 1, 0, part.count).shard_elements() * element_bytes(layout.dtype());
  for (const UnitPart& part : share) {
    const UnitLayout places(*part.unit, 1, 0, part.count);
    const int64_t elements = places.shard_elements(), begin = part.index * elements;
    values.resize(static_cast<size_t>(elements));
    try {
      reader.read(part.index, {{.layout = &places, .master = values.data()}});
    } catch (const Error& error) {
      throw with_hint_for_damage(error, checkpoint.directory);
    }
    for (const Box& box : places.boxes(begin, begin + elements)) writer.write(box, values.data(), begin);
    progress("writing", done += elements * element_bytes(layout.dtype()), total);
  }
  writer.sync();
  return writer.written();
}

// All ranks' lists, sorted by place. A file is read by one rank, which is rarely the one that wrote.
std::vector<WrittenBytes> gather_written(Communicator& world, const std::vector<WrittenBytes>& own) {
  std::string text;
  for (const WrittenBytes& w : own) text += fmt::format("{} {} {} {}\n", w.file, w.offset, w.bytes, w.hash);
  std::vector<WrittenBytes> all;
  for (const std::string& of_rank : world.all_gather_text(text)) {
    std::istringstream lines(of_rank);
    for (WrittenBytes w; lines >> w.file >> w.offset >> w.bytes >> w.hash;) all.push_back(w);
  }
  std::ranges::sort(all, {}, [](const WrittenBytes& w) { return std::pair(w.file, w.offset); });
  return all;
}

// Reads the file from its begin to its end. [first, last): what was written to it, by offset.
std::string check_file(Io& io, const fs::path& path, int64_t bytes, const WrittenBytes* first,
                       const WrittenBytes* last, FunctionRef<void(int64_t bytes)> done) {
  const InputFile file(io, path);
  if (file.bytes() != bytes)
    fail(ExitCode::kStorage, "{}: has {} bytes, {} were written", path.string(), file.bytes(), bytes);
  // The page cache would return the written bytes even if the disk has others.
  file.forget();
  StreamHash whole;
  std::vector<char> buffer;
  int64_t end = 0;
  for (const WrittenBytes* w = first; w != last; ++w) {
    RIPSTOP_CHECK(w->offset == end, "{}: bytes {} to {} were written {}", path.string(), end, w->offset,
                  w->offset > end ? "by nobody" : "twice");
    buffer.resize(static_cast<size_t>(w->bytes));
    file.read_at(w->offset, buffer.data(), w->bytes);
    if (hash64(buffer.data(), w->bytes) != w->hash)
      throw Error(ExitCode::kStorage,
                  fmt::format("{}: bytes {} to {} are not what was written", path.string(), w->offset,
                              w->offset + w->bytes),
                  "the disk, or the way to it, changes data: try another one");
    whole.update(buffer.data(), w->bytes);
    end += w->bytes;
    done(w->bytes);
  }
  RIPSTOP_CHECK(end == bytes, "{}: bytes {} to {} were written by nobody", path.string(), end, bytes);
  return whole.hex();
}

// Each rank reads whole files. Returns the hash of every file, on all ranks.
std::vector<std::string> check_files(Io& io, Communicator& world, const ExportLayout& layout,
                                     const fs::path& directory, const std::vector<WrittenBytes>& written,
                                     ExportProgress progress) {
  const auto is_own = [&](size_t i) { return static_cast<int64_t>(i) % world.size() == world.rank(); };
  int64_t done = 0, total = 0;
  for (size_t i = 0; i < layout.files().size(); ++i) total += is_own(i) ? layout.files()[i].bytes : 0;
  std::string own;
  do_and_agree(world, [&] {
    for (size_t i = 0; i < layout.files().size(); ++i) {
      if (!is_own(i)) continue;
      const auto [first, last] = std::ranges::equal_range(written, i, {}, &WrittenBytes::file);
      own += check_file(io, directory / layout.files()[i].name, layout.files()[i].bytes,
                        std::to_address(first), std::to_address(last),
                        [&](int64_t bytes) { progress("checking", done += bytes, total); }) +
             "\n";
    }
  });
  std::vector<std::istringstream> of_ranks;
  for (const std::string& text : world.all_gather_text(own)) of_ranks.emplace_back(text);
  std::vector<std::string> hashes(layout.files().size());
  for (size_t i = 0; i < hashes.size(); ++i) of_ranks[i % of_ranks.size()] >> hashes[i];
  return hashes;
}

}  // namespace

std::vector<CheckedFile> export_weights(Io& io, Communicator& world, const Checkpoint& checkpoint,
                                        const ExportLayout& layout, const fs::path& directory,
                                        ExportProgress progress) {
  std::vector<WrittenBytes> own;
  do_and_agree(world, [&] {
    check_same_names(layout, checkpoint.manifest);
    if (world.rank() == 0) own = make_files(io, layout, directory);
  });
  do_and_agree(world, [&] {
    if (path_exists(io, directory / layout.files().front().name)) return;
    throw Error(
        ExitCode::kStorage,
        fmt::format("{}: this rank does not see the files that rank 0 made there", directory.string()),
        "export to a file system that all nodes share, or on one node");
  });
  do_and_agree(world, [&] {
    const std::vector<WrittenBytes> share = write_share(io, world, checkpoint, layout, directory, progress);
    own.insert(own.end(), share.begin(), share.end());
  });
  const std::vector<std::string> hashes =
      check_files(io, world, layout, directory, gather_written(world, own), progress);
  std::vector<CheckedFile> files;
  for (size_t i = 0; i < hashes.size(); ++i)
    files.push_back({layout.files()[i].name, layout.files()[i].bytes, hashes[i]});
  return files;
}

CheckedFile write_checked_file(Io& io, const fs::path& directory, const std::string& name,
                               const std::string& bytes) {
  create_file(io, directory / name, bytes);
  const int64_t count = std::ssize(bytes);
  const WrittenBytes all{0, 0, count, hash64(bytes.data(), count)};
  return {name, count, check_file(io, directory / name, count, &all, &all + 1, [](int64_t) {})};
}

}  // namespace ripstop
