#include "train/exchange/hugging_face/state_dict.h"

#include <gtest/gtest.h>

#include "tests/expect_error.h"
#include "tests/train/exchange/torch_writer.h"

namespace ripstop {
namespace {

PickledTensor matrix() {
  return {.name = "w",
          .dtype = "F32",
          .storage = "0",
          .storage_elements = 16,
          .shape = {4, 4},
          .strides = {4, 1}};
}

std::vector<PickledTensor> read(const std::string& opcodes) {
  return read_state_dict(pickle_bytes(opcodes), "x.bin");
}

void expect_refused(const std::string& opcodes, const std::string& what) {
  const std::string refusal = what_of([&] { read(opcodes); }, ExitCode::kInputData);
  EXPECT_TRUE(refusal.starts_with("x.bin: ") && refusal.size() < 300) << refusal;
  EXPECT_HAS(refusal, what);
}

void expect_refused(const std::function<void(PickledTensor&)>& change, const std::string& what) {
  PickledTensor tensor = matrix();
  change(tensor);
  expect_refused(state_dict_op({tensor}), what);
}

TEST(StateDict, TensorsKeepOrderShapeAndPlace) {
  const PickledTensor first = matrix();
  const PickledTensor turned{.name = "a.b",
                             .dtype = "BF16",
                             .storage = "7",
                             .storage_elements = int64_t{1} << 40,
                             .offset = (int64_t{1} << 40) - 20,
                             .shape = {4, 5},
                             .strides = {1, 4}};
  const PickledTensor none{.name = "n", .dtype = "F16", .storage = "8", .shape = {0, 3}, .strides = {3, 1}};
  const PickledTensor one{.name = "o", .dtype = "I64", .storage = "9", .storage_elements = 1};
  const std::vector<PickledTensor> given = {first, turned, none, one}, found = read(state_dict_op(given));
  ASSERT_EQ(found.size(), given.size());
  for (size_t i = 0; i < given.size(); ++i) {
    EXPECT_EQ(found[i].name, given[i].name);
    EXPECT_EQ(found[i].dtype, given[i].dtype);
    EXPECT_EQ(found[i].storage, given[i].storage);
    EXPECT_EQ(found[i].storage_elements, given[i].storage_elements);
    EXPECT_EQ(found[i].offset, given[i].offset);
    EXPECT_EQ(found[i].shape, given[i].shape);
    EXPECT_EQ(found[i].strides, given[i].strides);
  }
}

// Pickles of torch.save: of nn.Module.state_dict(), of Parameters, and of objects written before.
TEST(StateDict, OrderedDictsParametersAndMemo) {
  const std::string ordered = "ccollections\nOrderedDict\n", empty = ordered + ")R";
  const std::string parameter =
      "ctorch._utils\n_rebuild_parameter\n" + tensor_op(matrix()) + "\x88" + empty + "\x87R";
  const std::string metadata =
      "}" + text_op("_metadata") + empty + text_op("") + "}" + text_op("version") + "K\1sssb";
  std::string text = "ccollections\nOrderedDict\nq" + std::string(1, '\0') + ")Rq\1(" + text_op("a") +
                     parameter + "q\2" + text_op("b") + "h\2u" + text_op("c") + "j" + number_bytes(2, 4) +
                     "s" + metadata;
  const std::vector<PickledTensor> found = read(text);
  ASSERT_EQ(found.size(), 3U);
  for (const PickledTensor& tensor : found) EXPECT_EQ(tensor.shape, matrix().shape);
  EXPECT_EQ(found[2].name, "c");
  text.replace(text.find("_metadata"), 9, "__class__");
  expect_refused(text, "sets attributes other than '_metadata'");
}

TEST(StateDict, OtherPythonIsRefusedByName) {
  expect_refused("cos\nsystem\n" + text_op("true") + "\x85R", "asks for Python's os.system");
  expect_refused("}" + text_op("w") + "cbuiltins\ngetattr\n(" + text_op("a") + text_op("b") + "tRs",
                 "builtins.getattr");
  expect_refused("ctorch._utils\n_rebuild_tensor_v3\n", "_rebuild_tensor_v3");
  expect_refused("ctorch\nQInt8Storage\n", "torch.QInt8Storage");
  expect_refused("ctorch\n" + std::string(600, 'x') + "\n", "no end of a name");
  expect_refused("c\xff\nx\n", "not UTF-8");
  expect_refused(text_op("posix") + text_op("system") + "\x93", "opcode 0x93 at byte");
  for (const char opcode :
       {'i', 'o', 'l', ']', 'I', 'L', 'V', 'p', 'P', 'G', '0', '2', '\x81', '\x82', '\x8b'})
    expect_refused(std::string(1, opcode), "opcode 0x");
  expect_refused("ccollections\nOrderedDict\n(K\1tR", "calls collections OrderedDict with other arguments");
  expect_refused("ctorch\nFloatStorage\n)R", "calls torch FloatStorage with other arguments");
  std::string seven = state_dict_op({matrix()});
  seven.replace(seven.size() - 3, 3, "}tRu");
  expect_refused(seven, "calls torch._utils _rebuild_tensor_v2 with other arguments");
  expect_refused("(" + text_op("module") + "tQ", "persistent id that is no storage");
  EXPECT_HAS(error_of([] { read_state_dict("\x80\x04N.", "x.bin"); }).what(), "protocol 2");
}

TEST(StateDict, DamageIsRefused) {
  expect_refused("", "ends with 0 values");
  expect_refused("}}", "ends with 2 values");
  expect_refused(")", "is not a state dict");
  expect_refused("}" + text_op("epoch") + "K\3s", "its 'epoch' is no tensor");
  expect_refused("}" + text_op("model") + state_dict_op({matrix()}) + "s", "its 'model' is no tensor");
  expect_refused("}K\1" + tensor_op(matrix()) + "s", "a name in it is no text");
  expect_refused("}" + text_op("") + tensor_op(matrix()) + "s", "has 0 bytes");
  expect_refused("}" + text_op("w\n\xff") + tensor_op(matrix()) + "s", "not UTF-8");
  expect_refused(state_dict_op({matrix(), matrix()}), "has w twice");
  expect_refused("t", "has no mark");
  expect_refused("(K\1K\2\x87", "takes a value that is not there");
  expect_refused("}(K\1u", "adds items to no dict");
  expect_refused("K\1K\2K\3s", "adds items to no dict");
  expect_refused("h\x63", "uses value 99, of 0");
  expect_refused("}q\5", "remembers value 5 after 0");
  expect_refused("(q" + std::string(1, '\0'), "takes a value that is not there");
  expect_refused(std::string(200000, '('), "ends with 200000 values");
  expect_refused(std::string((1 << 20) + 1, '}'), "more than 1048576 values");
  expect_refused(
      "X\xf0\xff\xff\xff"
      "abc",
      "is cut short: 4294967280 bytes");
  expect_refused(
      "\x8a\x09"
      "123456789",
      "an integer of 9 bytes");
  const std::string good = pickle_bytes(state_dict_op({matrix()}));
  for (size_t bytes = 0; bytes < good.size(); ++bytes)
    EXPECT_EQ(error_of([&] { read_state_dict(good.substr(0, bytes), "x"); }).code(), ExitCode::kInputData)
        << bytes;
}

TEST(StateDict, TensorsOutsideTheirStorageAreRefused) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  const char* const outside = "w lies outside its storage of 16 elements";
  expect_refused([](PickledTensor& w) { w.offset = 1; }, outside);
  expect_refused([](PickledTensor& w) { w.offset = -1; }, outside);
  expect_refused([](PickledTensor& w) { w.offset = kHuge; }, outside);
  expect_refused([](PickledTensor& w) { w.strides = {5, 1}; }, outside);
  expect_refused([](PickledTensor& w) { w.strides = {int64_t{1} << 55, int64_t{1} << 55}; }, outside);
  expect_refused([](PickledTensor& w) { w.storage_elements = -1; }, "lies outside");
  expect_refused([](PickledTensor& w) { w.storage_elements = kHuge; }, "lies outside");
  expect_refused([](PickledTensor& w) { w.strides = {-4, 1}; }, "w has an impossible stride");
  expect_refused([](PickledTensor& w) { w.strides = {kHuge, 1}; }, "w has an impossible stride");
  expect_refused([](PickledTensor& w) { w.shape = {-4, 4}; }, "w has an impossible shape");
  expect_refused(
      [](PickledTensor& w) {
        w.shape = {int64_t{1} << 33, int64_t{1} << 33};
      },
      "impossible shape");
  expect_refused([](PickledTensor& w) { w.strides = {4}; }, "w has 2 sizes and 1 strides");
  expect_refused([](PickledTensor& w) { w.shape = w.strides = std::vector<int64_t>(9, 1); }, "9 sizes");
  PickledTensor w = matrix();
  w.strides = {0, 5};  // a row for all, every fifth element
  EXPECT_EQ(read(state_dict_op({w})).size(), 1U);
}

}  // namespace
}  // namespace ripstop
