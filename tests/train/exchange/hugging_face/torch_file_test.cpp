#include "train/exchange/hugging_face/torch_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "data/files/hash.h"
#include "tests/expect_error.h"
#include "tests/test_files.h"
#include "tests/train/exchange/torch_writer.h"
#include "train/exchange/hugging_face/stored_elements.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

class TorchFile : public testing::Test {
 protected:
  /// Reads headers, checksums and all elements, as training does. Returns the elements of each tensor,
  /// row-major in its own dtype.
  static std::map<std::string, std::string> read(const fs::path& path) {
    const InputFile file(path);
    const WeightsHeader header = read_weights_header(file);
    for (const ZipMember& storage : header.storages) check_member(file, storage);
    std::map<std::string, std::string> found;
    for (const StoredTensor& tensor : header.tensors) {
      const bool vector = tensor.shape.size() == 1;
      const ParameterSpec spec{.name = tensor.name,
                               .rows = vector ? 1 : tensor.shape.at(0),
                               .columns = tensor.shape.back(),
                               .vector = vector};
      const UnitSpec unit{.name = tensor.name, .tensors = {{{spec}}}};
      const UnitLayout layout(unit, 1, 0, 1);
      std::vector<float> values(static_cast<size_t>(layout.elements()));
      read_stored(layout, 0, layout.elements(), values.data(), 1, [&](const std::string&) {
        return StoredPlace{file, tensor};
      });
      const Box& box = layout.slices().front();
      const ExportDType dtype = find_export_dtype(tensor.dtype).value();
      std::string& bytes = found[tensor.name];
      std::vector<char> row(static_cast<size_t>(box.columns * element_bytes(dtype)));
      for (int64_t r = 0; r < box.rows; ++r) {
        convert(values.data() + box.offset + r * box.stride, box.columns, dtype, row.data());
        bytes.append(row.begin(), row.end());
      }
    }
    return found;
  }

  fs::path file() const { return scratch_ / "pytorch_model.bin"; }
  void expect_refused(const std::string& bytes, const std::string& what, const std::string& hint = "") const {
    write_bytes(file(), bytes);
    const auto read_it = [&] { read(file()); };
    expect_error(read_it, ExitCode::kInputData, what, hint);
    EXPECT_TRUE(std::string(error_of(read_it).what()).starts_with(file().string() + ": ")) << what;
  }

  ScratchDirectory scratch_;
};

// All dtypes, column-major and row-major: every element is that of the safetensors.
TEST_F(TorchFile, EqualsSafetensorsOfTheSameModel) {
  PretrainedDirectory model;
  for (const char* dtype : {"F32", "F16", "BF16"}) {
    model.fill(dtype);
    model.write();
    const auto expected = read(model.path() / "model.safetensors");
    EXPECT_EQ(expected.size(), model.tensors.size());
    for (const bool turned : {false, true}) {
      write_bytes(file(), torch_bytes(model.tensors, turned));
      EXPECT_EQ(read(file()), expected) << dtype << turned;
    }
  }
}

// Views of one storage: an interval, the same once more, every second column, a row for all rows.
TEST_F(TorchFile, ViewsOfOneStorage) {
  std::string bytes;
  for (int i = 0; i < 24; ++i) bytes += bits_of("BF16", static_cast<float>(i));
  PickledTensor view{.name = "a",
                     .dtype = "BF16",
                     .storage = "0",
                     .storage_elements = 24,
                     .offset = 2,
                     .shape = {2, 3},
                     .strides = {3, 1}};
  std::vector<PickledTensor> tensors = {view};
  const auto add = [&](const char* name, int64_t offset, std::vector<int64_t> shape,
                       std::vector<int64_t> strides) {
    view.name = name, view.offset = offset, view.shape = std::move(shape), view.strides = std::move(strides);
    tensors.push_back(view);
  };
  add("b", 2, {2, 3}, {3, 1});
  add("every second", 1, {2, 3}, {12, 2});
  add("turned", 0, {3, 2}, {1, 10});
  add("repeated", 5, {3, 2}, {0, 1});
  add("vector", 3, {3}, {7});
  add("one row", 3, {1, 4}, {99, 1});
  write_bytes(file(), zip_bytes(torch_members(pickle_bytes(state_dict_op(tensors)), {{"0", bytes}})));
  const auto found = read(file());
  const auto expect = [&](const char* name, const std::vector<float>& values) {
    std::string expected;
    for (const float value : values) expected += bits_of("BF16", value);
    EXPECT_EQ(found.at(name), expected) << name;
  };
  expect("a", {2, 3, 4, 5, 6, 7});
  expect("b", {2, 3, 4, 5, 6, 7});
  expect("every second", {1, 3, 5, 13, 15, 17});
  expect("turned", {0, 10, 1, 11, 2, 12});
  expect("repeated", {5, 6, 5, 6, 5, 6});
  expect("vector", {3, 10, 17});
  expect("one row", {3, 4, 5, 6});
  EXPECT_EQ(read_weights_header(InputFile(file())).storages.size(), 1U);
}

TEST_F(TorchFile, AMatrixLongerThanTheBufferIsReadInParts) {
  TensorToWrite tensor{.name = "w", .shape = {3, int64_t{3} << 19}};
  tensor.values.resize(static_cast<size_t>(tensor.bytes()));
  for (size_t i = 0; i < tensor.values.size(); i += 4) tensor.values[i] = static_cast<char>(i * 31 >> 4);
  for (const bool turned : {false, true}) {
    write_bytes(file(), torch_bytes({tensor}, turned));
    EXPECT_TRUE(read(file()).at("w") == tensor.values) << turned;
  }
}

TEST_F(TorchFile, OtherFilesAreRefused) {
  const PretrainedDirectory model;
  const std::string good = torch_bytes(model.tensors), pickle = pickle_bytes("}");
  expect_refused("", "no ZIP archive");
  expect_refused("version https://git-lfs.github.com/spec/v1\n", "pointer of Git LFS", "git lfs pull");
  expect_refused("<!DOCTYPE html><html></html>", "web page", "download");
  expect_refused("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.",
                 "PyTorch before 1.6", "torch.save(torch.load(");
  expect_refused(safetensors_bytes(model.tensors), "no ZIP archive");
  expect_refused(good.substr(0, good.size() / 2), "is cut short");
  expect_refused(good + "more", "no ZIP archive");
  std::vector<MemberToWrite> members = torch_members(pickle, {});
  members.push_back({"model/constants.pkl", ""});
  expect_refused(zip_bytes(members), "is a TorchScript", "state_dict()");
  members.back().name = "other/x";
  expect_refused(zip_bytes(members), "has other/x beside model/");
  expect_refused(zip_bytes({{"model/version", "3"}}), "has no data.pkl");
  expect_refused(zip_bytes({}), "has no data.pkl");
  expect_refused(zip_bytes({{"model/data.pkl", pickle}, {"model/byteorder", "big"}}), "is not little-endian");
  expect_refused(zip_bytes({{.name = "model/data.pkl", .bytes = pickle, .crc = 1}}), "data.pkl is damaged");
  expect_refused(zip_bytes({{"model/data.pkl", std::string((16 << 20) + 1, '}')}}), "too many to be read");
}

TEST_F(TorchFile, StoragesThatDoNotFitAreRefused) {
  const PickledTensor w{
      .name = "w", .dtype = "F32", .storage = "0", .storage_elements = 4, .shape = {2, 2}, .strides = {2, 1}};
  const auto refused = [&](const PickledTensor& tensor, const Storages& storages, const std::string& what) {
    expect_refused(zip_bytes(torch_members(pickle_bytes(state_dict_op({tensor})), storages)), what);
  };
  refused(w, {{"1", std::string(16, 'x')}}, "w is in the storage '0', which is missing");
  refused(w, {{"0", std::string(15, 'x')}}, "data/0 has 15 bytes, its 4 elements of F32 need 16");
  refused(w, {{"0", std::string(17, 'x')}}, "data/0 has 17 bytes");
  PickledTensor climbing = w;
  climbing.storage = "../../../etc/passwd";
  refused(climbing, {{"0", std::string(16, 'x')}}, "which is missing");
  refused(w, {{"0", std::string(16, '\xff')}}, "w has a value that is not finite, among its elements 0 to ");
  PickledTensor turned = w;
  turned.strides = {1, 2};
  refused(turned, {{"0", std::string(16, '\xff')}}, "w has a value that is not finite, 0 elements after");
  std::vector<MemberToWrite> members =
      torch_members(pickle_bytes(state_dict_op({w})), {{"0", std::string(16, 'x')}});
  members[2].crc = 7;
  expect_refused(zip_bytes(members), "model/data/0 is damaged");
}

TEST_F(TorchFile, AnyFlippedByteIsReadOrRefused) {
  const std::string good = torch_bytes({{"a.weight", {2, 3}}, {"b.weight", {3}, "BF16"}}, true);
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (at % 2 == 0 ? 1 : 0x80));
    write_bytes(file(), bad);
    SCOPED_TRACE(at);
    error_of([&] { read(file()); }, ExitCode::kInputData);
  }
}

// Files of torch.save itself: SHA-256 of every tensor, and hostile files.
TEST_F(TorchFile, FilesOfTorchAndHostileFiles) {
  const auto pickles = shared_file("golden/families/pickles");
  if (!pickles) GTEST_SKIP() << "needs shared/golden/families/pickles";
  const auto expected = nlohmann::json::parse(std::ifstream(*pickles / "expect.json"));
  for (const auto& [name, tensors] : expected["good"].items()) {
    SCOPED_TRACE(name);
    const auto found = read(*pickles / name);
    EXPECT_EQ(found.size(), tensors.size());
    for (const auto& [tensor, facts] : tensors.items())
      EXPECT_EQ(sha256_hex(found.at(tensor)), facts["sha256"].get<std::string>()) << tensor;
  }
  for (const auto& [name, why] : expected["refuse"].items()) {
    const std::string what = what_of([&] { read(*pickles / "refuse" / name); }, ExitCode::kInputData);
    EXPECT_HAS(what, name + ": ") << why;
    EXPECT_LT(what.size(), 400U);
    RecordProperty(name, what);
  }
  EXPECT_EQ(expected["refuse"].size(), 32U);
}

}  // namespace
}  // namespace ripstop
