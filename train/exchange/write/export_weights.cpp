#include "train/exchange/write/export_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

#include "data/files/checked_output.h"
#include "data/files/directory.h"
#include "data/files/hash.h"
#include "data/files/whole_file.h"
#include "data/process/block_threads.h"
#include "model/core/rounding.h"
#include "parallel/agreement.h"
#include "train/exchange/hugging_face/safetensors.h"
#include "train/exchange/read/weights_reader.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPartElements = int64_t{4} << 20;  // 16 MiB of float32
constexpr int64_t kWriteBytes = int64_t{4} << 20;    // maximum bytes of one write, unless a row is longer

// Bytes that one call wrote to a file of ExportLayout::files.
struct WrittenPlace {
  size_t file = 0;
  WrittenBytes place;
};

struct UnitPart {
  const UnitSpec* unit = nullptr;
  int64_t count = 0, index = 0;
};

// Consecutive parts of the units for this rank: it reads in order, and few disk blocks belong to two ranks.
std::vector<UnitPart> share_of_rank(const std::vector<UnitSpec>& units, const Communicator& world) {
  std::vector<UnitPart> all;
  for (const UnitSpec& unit : units) {
    const int64_t count = divide_up(UnitLayout(unit, 1, 0, 1).elements(), kPartElements);
    for (int64_t i = 0; i < count; ++i) all.push_back({&unit, count, i});
  }
  const int64_t count = std::ssize(all);
  return {all.begin() + count * world.rank() / world.size(),
          all.begin() + count * (world.rank() + 1) / world.size()};
}

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

// The files that the threads of this rank write, opened at their first use.
class SharedFiles {
 public:
  SharedFiles(Io& io, const ExportLayout& layout, const fs::path& directory)
      : io_(io), layout_(layout), directory_(directory), files_(layout.files().size()) {}

  CheckedOutput& at(size_t file) {
    const std::lock_guard lock(mutex_);
    if (!files_[file])
      files_[file].emplace(io_, directory_ / layout_.files()[file].name, OutputFile::Mode::kExisting);
    return *files_[file];
  }
  void sync_and_close() {
    for (std::optional<CheckedOutput>& file : files_)
      if (file) file->sync_and_close();
  }

 private:
  Io& io_;
  const ExportLayout& layout_;
  const fs::path& directory_;
  std::mutex mutex_;
  std::vector<std::optional<CheckedOutput>> files_;
};

// Writes the parts of one thread, and reads back each part after writing the next.
class PartWriter {
 public:
  PartWriter(const ExportLayout& layout, SharedFiles& files) : layout_(layout), files_(files) {}

  // Reads the part with `reader` and writes it. Then reads back the earlier parts, which the device has had
  // time to store.
  void write(const UnitPart& part, WeightsReader& reader) {
    const UnitLayout places(*part.unit, 1, 0, part.count);
    const int64_t elements = places.shard_elements(), begin = part.index * elements;
    const size_t earlier = written_.size();
    values_.resize(static_cast<size_t>(elements));
    reader.read(part.index, {.layout = &places, .master = values_.data()});
    for (const Box& box : places.boxes(begin, begin + elements))
      write_box(box, values_.data() + box.offset - begin);
    read_back_up_to(earlier);
  }
  void read_back_all() { read_back_up_to(written_.size()); }
  const std::vector<WrittenPlace>& written() const { return written_; }

 private:
  // `values` points to the first element of `box`.
  void write_box(const Box& box, const float* values) {
    const ExportedTensor& tensor = layout_.tensors().at(box.parameter->name);
    const std::vector<RowPlace> places = row_places(box, tensor);
    const int64_t row_bytes = box.columns * element_bytes(layout_.dtype());
    const auto most_rows = static_cast<size_t>(std::max<int64_t>(kWriteBytes / row_bytes, 1));
    // A write has rows that are consecutive in the file, or a piece of one row.
    for (size_t first = 0, end = 0; first < places.size(); first = end) {
      do ++end;
      while (end < places.size() && end - first < most_rows &&
             places[end].stored == places[end - 1].stored + 1);
      write_run(box, tensor, std::span(places).subspan(first, end - first), values);
    }
  }

  void write_run(const Box& box, const ExportedTensor& tensor, std::span<const RowPlace> rows,
                 const float* values) {
    const int64_t element = element_bytes(layout_.dtype()), row_bytes = box.columns * element;
    RIPSTOP_CHECK(rows.size() == 1 || box.columns == tensor.columns, "{}: {} columns of {} in {} rows",
                  tensor.name, box.columns, tensor.columns, rows.size());
    const int64_t bytes = std::ssize(rows) * row_bytes;
    if (std::ssize(bytes_) < bytes) bytes_.resize(static_cast<size_t>(bytes));
    char* to = bytes_.data();
    for (const RowPlace& row : rows) {
      const std::optional<float> lost =
          convert(values + row.row * box.stride, box.columns, layout_.dtype(), to);
      to += row_bytes;
      if (lost)
        throw Error(ExitCode::kInputData,
                    fmt::format("{} has the weight {}, which {} cannot hold", tensor.name, *lost,
                                to_string(layout_.dtype())),
                    "export with --dtype float32");
    }
    const int64_t offset = tensor.begin + (rows[0].stored * tensor.columns + box.column) * element;
    written_.push_back({tensor.file, files_.at(tensor.file).write_at(offset, bytes_.data(), bytes)});
  }

  void read_back_up_to(size_t end) {
    for (; read_back_ < end; ++read_back_)
      files_.at(written_[read_back_].file).read_back(written_[read_back_].place, bytes_);
  }

  const ExportLayout& layout_;
  SharedFiles& files_;
  std::vector<float> values_;
  std::vector<char> bytes_;
  std::vector<WrittenPlace> written_;
  size_t read_back_ = 0;  // number of places in written_ that were read back
};

// Makes the files on rank 0, with their headers and in full size: on a network file system, ranks that extend
// one file could overwrite each other.
std::vector<WrittenPlace> make_files(Io& io, const ExportLayout& layout, const fs::path& directory) {
  std::vector<WrittenPlace> written;
  std::vector<char> buffer;
  for (size_t i = 0; i < layout.files().size(); ++i) {
    const ExportedFile& made = layout.files()[i];
    CheckedOutput file(io, directory / made.name);
    file.write_at(made.bytes - 1, "", 1);
    written.push_back({i, file.write_at(0, made.header.data(), std::ssize(made.header))});
    file.read_back(written.back().place, buffer);
    file.sync_and_close();
  }
  return written;
}

std::vector<WrittenPlace> write_share(Io& io, Communicator& world, const StoredModel& model,
                                      const ExportLayout& layout, const fs::path& directory,
                                      ExportProgress progress) {
  const std::vector<UnitPart> share = share_of_rank(layout.units(), world);
  WeightsReader reader(io, model);
  SharedFiles files(io, layout, directory);
  int64_t total = 0;
  for (const UnitPart& part : share)
    total += UnitLayout(*part.unit, 1, 0, part.count).shard_elements() * element_bytes(layout.dtype());
  std::vector<PartWriter> writers(kBlockThreads, PartWriter(layout, files));
  share_blocks(
      std::ssize(share), kBlockThreads,
      [&](int64_t thread, int64_t number) {
        writers[static_cast<size_t>(thread)].write(share[static_cast<size_t>(number)], reader);
      },
      [&](int64_t done) { progress("writing", done * total / std::ssize(share), total); });
  std::vector<WrittenPlace> written;
  for (PartWriter& writer : writers) {
    writer.read_back_all();
    written.insert(written.end(), writer.written().begin(), writer.written().end());
  }
  files.sync_and_close();
  return written;
}

// The places that all ranks wrote, sorted by file and offset.
std::vector<WrittenPlace> gather_written(Communicator& world, const std::vector<WrittenPlace>& own) {
  std::string text;
  for (const auto& [file, w] : own) text += fmt::format("{} {} {} {}\n", file, w.offset, w.bytes, w.hash);
  std::vector<WrittenPlace> all;
  for (const std::string& of_rank : world.all_gather_text(text)) {
    std::istringstream lines(of_rank);
    for (WrittenPlace w; lines >> w.file >> w.place.offset >> w.place.bytes >> w.place.hash;)
      all.push_back(w);
  }
  std::ranges::sort(all, {}, [](const WrittenPlace& w) { return std::pair(w.file, w.place.offset); });
  return all;
}

std::span<const WrittenPlace> places_in(size_t file, const std::vector<WrittenPlace>& all) {
  return std::ranges::equal_range(all, file, {}, &WrittenPlace::file);
}

// Throws unless `places`, sorted by offset, cover every byte of the file once.
void check_places(const std::string& name, int64_t bytes, std::span<const WrittenPlace> places) {
  int64_t end = 0;
  for (const auto& [file, place] : places) {
    RIPSTOP_CHECK(place.offset == end, "{}: bytes {} to {} were written {}", name, end, place.offset,
                  place.offset > end ? "by nobody" : "twice");
    end += place.bytes;
  }
  RIPSTOP_CHECK(end == bytes, "{}: bytes {} to {} were written by nobody", name, end, bytes);
}

// Reads the file, compares it with the hashes of `places`, and returns its hash. Calls `done` with the bytes
// of each place.
std::string check_file(const InputFile& file, int64_t bytes, std::span<const WrittenPlace> places,
                       FunctionRef<void(int64_t bytes)> done) {
  if (file.bytes() != bytes)
    fail(ExitCode::kStorage, "{}: has {} bytes, {} were written", file.path().string(), file.bytes(), bytes);
  StreamHash whole;
  std::vector<char> buffer;
  for (const auto& [number, place] : places) {
    require_hash(file, place, buffer);
    whole.update(buffer.data(), place.bytes);
    done(place.bytes);
  }
  return whole.hex();
}

// Rank r of R checks the files r, r + R, r + 2R, ... Returns the hash of every file, on all ranks.
std::vector<std::string> check_files(Io& io, Communicator& world, const ExportLayout& layout,
                                     const fs::path& directory, const std::vector<WrittenPlace>& written,
                                     ExportProgress progress) {
  const auto is_own = [&](size_t i) { return static_cast<int64_t>(i) % world.size() == world.rank(); };
  int64_t done = 0, total = 0;
  for (size_t i = 0; i < layout.files().size(); ++i) total += is_own(i) ? layout.files()[i].bytes : 0;
  std::string own;
  do_and_agree(world, [&] {
    for (size_t i = 0; i < layout.files().size(); ++i) {
      if (!is_own(i)) continue;
      const InputFile file(io, directory / layout.files()[i].name);
      own += check_file(file, layout.files()[i].bytes, places_in(i, written),
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

std::vector<CheckedFile> export_weights(Io& io, Communicator& world, const StoredModel& model,
                                        const ExportLayout& layout, const fs::path& directory,
                                        bool hashes_files, ExportProgress progress) {
  std::vector<WrittenPlace> own;
  do_and_agree(world, [&] {
    // A manifest with other parameters than its model would give an export without some weights.
    const Manifest& manifest = model.checkpoint()->manifest;
    check_same_parameters(manifest.units,
                          model.base() == nullptr ? layout.units() : stored_table(manifest.state));
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
    const std::vector<WrittenPlace> share = write_share(io, world, model, layout, directory, progress);
    own.insert(own.end(), share.begin(), share.end());
  });
  const std::vector<WrittenPlace> written = gather_written(world, own);
  for (size_t i = 0; i < layout.files().size(); ++i)
    check_places(layout.files()[i].name, layout.files()[i].bytes, places_in(i, written));
  // Each rank has read back its own writes. On a network file system, a later write of another rank to the
  // same page may have overwritten them.
  std::vector<std::string> hashes(layout.files().size());
  if (hashes_files || world.size() > 1) hashes = check_files(io, world, layout, directory, written, progress);
  std::vector<CheckedFile> files;
  for (size_t i = 0; i < hashes.size(); ++i)
    files.push_back({layout.files()[i].name, layout.files()[i].bytes, hashes[i]});
  return files;
}

CheckedFile write_checked_file(Io& io, const fs::path& directory, const std::string& name,
                               const std::string& bytes) {
  create_file(io, directory / name, bytes);
  const int64_t count = std::ssize(bytes);
  const WrittenPlace all{0, {0, count, hash64(bytes.data(), count)}};
  const InputFile file(io, directory / name);
  file.forget();  // the page cache would return the bytes even if the device stored others
  return {name, count, check_file(file, count, {&all, 1}, [](int64_t) {})};
}

}  // namespace ripstop
