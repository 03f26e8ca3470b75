#include "train/exchange/hugging_face/state_dict.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "data/text/json_reader.h"
#include "data/text/utf8.h"
#include "train/exchange/hugging_face/safetensors.h"
#include "train/exchange/hugging_face/zip_directory.h"

namespace ripstop {
namespace {

constexpr size_t kMostValues = size_t{1} << 20;
constexpr const char* kSaveWeights = "torch.save(model.state_dict(), FILE) saves the weights alone";

// A Python name that a state dict may use: "module name". `dtype`: a storage class's dtype as in safetensors.
struct Global {
  std::string_view name, dtype = {};
};
enum : size_t { kOrderedDict, kTensor, kParameter };  // indices of the first globals
constexpr Global kGlobals[] = {
    {"collections OrderedDict"},    {"torch._utils _rebuild_tensor_v2"}, {"torch._utils _rebuild_parameter"},
    {"torch FloatStorage", "F32"},  {"torch HalfStorage", "F16"},        {"torch BFloat16Storage", "BF16"},
    {"torch DoubleStorage", "F64"}, {"torch LongStorage", "I64"},        {"torch IntStorage", "I32"},
    {"torch ShortStorage", "I16"},  {"torch CharStorage", "I8"},         {"torch ByteStorage", "U8"},
    {"torch BoolStorage", "BOOL"}};

using Index = uint32_t;  // index of a value

struct Value {
  enum class Kind : uint8_t { kMark, kOther, kInteger, kText, kGlobal, kTuple, kDict, kStorage, kTensor };
  Kind kind = Kind::kOther;
  int64_t number = 0;  // integer, or index of a global, or elements of a storage, or offset of a tensor
  std::string_view text = {};     // a text, or the name of a storage
  std::vector<Index> items = {};  // items of a tuple; keys and values of a dict in turn; global of a storage;
                                  // storage, sizes and strides of a tensor
};
using Kind = Value::Kind;

// Python's stack machine, without Python. Values refer to each other by index: a value that is used in many
// places is held once.
class StateDictReader : public JsonReader {
 public:
  StateDictReader(std::string_view pickle, const std::string& name)
      : JsonReader(name, ExitCode::kInputData), pickle_(pickle) {}

  std::vector<PickledTensor> tensors() {
    if (take(1) != "\x80" || take(1) != "\x02")
      refuse_with("torch.save without pickle_protocol writes 2",
                  "its pickle does not begin with the opcode PROTO and the protocol 2");
    constexpr char kStop = '.';
    for (char opcode = take(1)[0]; opcode != kStop; opcode = take(1)[0]) step(static_cast<uint8_t>(opcode));
    if (stack_.size() != 1) refuse("its pickle ends with {} values, not with one", stack_.size());
    const Value& dict = values_[stack_[0]];
    if (dict.kind != Kind::kDict) refuse_with(kSaveWeights, "is not a state dict: its pickle has no dict");
    std::vector<PickledTensor> tensors;
    std::set<std::string> names;
    for (size_t i = 0; i < dict.items.size(); i += 2) {
      tensors.push_back(tensor_of(values_[dict.items[i]], values_[dict.items[i + 1]]));
      if (!names.insert(tensors.back().name).second) refuse("has {} twice", tensors.back().name);
    }
    return tensors;
  }

 private:
  // ---- bytes ----

  std::string_view take(uint64_t bytes) {
    if (bytes > pickle_.size() - at_)
      refuse("its pickle is cut short: {} bytes at byte {} of {}", bytes, at_, pickle_.size());
    return pickle_.substr(std::exchange(at_, at_ + bytes), bytes);
  }

  uint64_t take_number(uint64_t bytes) { return little_endian(take(bytes)); }

  // Takes a two's-complement integer.
  int64_t take_integer(uint64_t bytes) {
    if (bytes > 8) refuse("its pickle has an integer of {} bytes", bytes);
    const uint64_t value = take_number(bytes);
    const bool is_negative = bytes > 0 && (value >> (8 * bytes - 1) & 1) != 0;
    return static_cast<int64_t>(is_negative && bytes < 8 ? value | ~uint64_t{0} << (8 * bytes) : value);
  }

  // Takes a text. Only UTF-8 is accepted, so that messages can show the text.
  std::string_view take_text(uint64_t bytes) {
    const std::string_view text = take(bytes);
    if (invalid_utf8(text)) refuse("its pickle has a text that is not UTF-8, at byte {}", at_ - bytes);
    return text;
  }

  std::string_view take_line() {
    const size_t end = pickle_.find('\n', at_);
    if (end == std::string_view::npos || end - at_ > kMostNameBytes)
      refuse("its pickle has no end of a name, at byte {}", at_);
    const std::string_view line = take_text(end - at_);
    ++at_;
    return line;
  }

  // ---- stack and memo ----

  void push(Value value) {
    if (values_.size() == kMostValues) refuse("its pickle has more than {} values", kMostValues);
    stack_.push_back(static_cast<Index>(values_.size()));
    values_.push_back(std::move(value));
  }

  Index pop() {
    if (stack_.empty() || values_[stack_.back()].kind == Kind::kMark)
      refuse("its pickle takes a value that is not there, before byte {}", at_);
    const Index index = stack_.back();
    stack_.pop_back();
    return index;
  }

  Value& pop(Kind kind) {
    Value& value = values_[pop()];
    if (value.kind != kind) refuse("its pickle has a value of the wrong kind, before byte {}", at_);
    return value;
  }

  std::vector<Index> pop_many(size_t count) {
    std::vector<Index> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }

  // Takes the values above the last mark, and the mark.
  std::vector<Index> pop_to_mark() {
    size_t count = 0;
    while (count < stack_.size() && values_[stack_[stack_.size() - 1 - count]].kind != Kind::kMark) ++count;
    if (count == stack_.size()) refuse("its pickle has no mark, before byte {}", at_);
    std::vector<Index> items = pop_many(count);
    stack_.pop_back();
    return items;
  }

  // Adds keys and values to the dict on top of the stack, which stays there.
  void add_items(const std::vector<Index>& items) {
    const Index dict = pop();
    if (values_[dict].kind != Kind::kDict || items.size() % 2 != 0)
      refuse("its pickle adds items to no dict, before byte {}", at_);
    values_[dict].items.insert(values_[dict].items.end(), items.begin(), items.end());
    stack_.push_back(dict);
  }

  void put(uint64_t number) {
    // A pickler numbers remembered values 0, 1, 2, ...
    if (number != memo_.size()) refuse("its pickle remembers value {} after {}", number, memo_.size());
    memo_.push_back(pop());
    stack_.push_back(memo_.back());
  }

  void get(uint64_t number) {
    if (number >= memo_.size()) refuse("its pickle uses value {}, of {}", number, memo_.size());
    stack_.push_back(memo_[number]);
  }

  // ---- opcodes ----

  void step(uint8_t opcode) {
    const auto push_integer = [&](int64_t number) { push({Kind::kInteger, number}); };
    switch (opcode) {
      case '(':  // MARK
        return push({.kind = Kind::kMark});
      case 'N':   // NONE
      case 0x88:  // NEWTRUE
      case 0x89:  // NEWFALSE
        return push({});
      case 'K':  // BININT1
        return push_integer(static_cast<int64_t>(take_number(1)));
      case 'M':  // BININT2
        return push_integer(static_cast<int64_t>(take_number(2)));
      case 'J':  // BININT
        return push_integer(take_integer(4));
      case 0x8a:  // LONG1
        return push_integer(take_integer(take_number(1)));
      case 'X':  // BINUNICODE
        return push({.kind = Kind::kText, .text = take_text(take_number(4))});
      case ')':  // EMPTY_TUPLE
        return push({.kind = Kind::kTuple});
      case 't':  // TUPLE
        return push({.kind = Kind::kTuple, .items = pop_to_mark()});
      case 0x85:  // TUPLE1, TUPLE2, TUPLE3
      case 0x86:
      case 0x87:
        return push({.kind = Kind::kTuple, .items = pop_many(opcode - 0x84U)});
      case '}':  // EMPTY_DICT
        return push({.kind = Kind::kDict});
      case 's':  // SETITEM
        return add_items(pop_many(2));
      case 'u':  // SETITEMS
        return add_items(pop_to_mark());
      case 'q':  // BINPUT
        return put(take_number(1));
      case 'r':  // LONG_BINPUT
        return put(take_number(4));
      case 'h':  // BINGET
        return get(take_number(1));
      case 'j':  // LONG_BINGET
        return get(take_number(4));
      case 'c':  // GLOBAL
        return push_global();
      case 'Q':  // BINPERSID
        return push_storage();
      case 'R':  // REDUCE
        return reduce();
      case 'b':  // BUILD
        return build();
      default:
        refuse_with(kSaveWeights, "its pickle has the opcode 0x{:02x} at byte {}, which no state dict needs",
                    opcode, at_ - 1);
    }
  }

  void push_global() {
    const std::string_view module = take_line(), name = take_line();
    const Global* const found =
        std::ranges::find(kGlobals, fmt::format("{} {}", module, name), &Global::name);
    if (found == std::end(kGlobals))
      refuse_with(kSaveWeights, "its pickle asks for Python's {}.{}, which no state dict needs",
                  begin_of(module, 100), begin_of(name, 100));
    push({Kind::kGlobal, found - kGlobals});
  }

  // A persistent id: ("storage", type, name, device, elements).
  void push_storage() {
    const std::vector<Index> id = pop(Kind::kTuple).items;
    const auto is = [&](size_t i, Kind kind) { return values_[id[i]].kind == kind; };
    if (id.size() != 5 || !is(0, Kind::kText) || values_[id[0]].text != "storage" || !is(1, Kind::kGlobal) ||
        kGlobals[values_[id[1]].number].dtype.empty() || !is(2, Kind::kText) || !is(4, Kind::kInteger))
      refuse("its pickle has a persistent id that is no storage, before byte {}", at_);
    push({Kind::kStorage, values_[id[4]].number, values_[id[2]].text, {id[1]}});
  }

  void reduce() {
    const std::vector<Index> given = pop(Kind::kTuple).items;
    const auto callee = static_cast<size_t>(pop(Kind::kGlobal).number);
    const auto is = [&](size_t i, Kind kind) { return values_[given[i]].kind == kind; };
    if (callee == kOrderedDict && given.empty()) return push({.kind = Kind::kDict});
    if (callee == kParameter && given.size() == 3 && is(0, Kind::kTensor)) return stack_.push_back(given[0]);
    // Refuses a seventh argument, which may say that the elements are to be negated or conjugated.
    if (callee == kTensor && given.size() == 6 && is(0, Kind::kStorage) && is(1, Kind::kInteger) &&
        is(2, Kind::kTuple) && is(3, Kind::kTuple))
      return push({Kind::kTensor, values_[given[1]].number, {}, {given[0], given[2], given[3]}});
    refuse("its pickle calls {} with other arguments than a state dict does", kGlobals[callee].name);
  }

  // Accepts the one attribute that PyTorch sets on an OrderedDict: `_metadata`, the versions of the modules.
  void build() {
    const std::vector<Index> state = pop(Kind::kDict).items;
    const Index object = pop();
    if (values_[object].kind != Kind::kDict || state.size() != 2 || values_[state[0]].text != "_metadata")
      refuse_with(kSaveWeights, "its pickle sets attributes other than '_metadata', before byte {}", at_);
    stack_.push_back(object);
  }

  // ---- tensors ----

  std::vector<int64_t> integers_of(const Value& tuple, const std::string& name, const char* what) const {
    std::vector<int64_t> numbers;
    for (const Index item : tuple.items) {
      const Value& value = values_[item];
      if (value.kind != Kind::kInteger || value.number < 0 || value.number > kMostElements)
        refuse("{} has an impossible {}", name, what);
      numbers.push_back(value.number);
    }
    return numbers;
  }

  PickledTensor tensor_of(const Value& key, const Value& value) const {
    if (key.kind != Kind::kText || key.text.empty() || key.text.size() > kMostNameBytes)
      refuse("is not a state dict: a name in it is no text, or has {} bytes", key.text.size());
    PickledTensor tensor{.name = std::string(key.text)};
    if (value.kind != Kind::kTensor)
      refuse_with(kSaveWeights, "is not a state dict: its '{}' is no tensor", tensor.name);
    const Value& storage = values_[value.items[0]];
    tensor.dtype = kGlobals[values_[storage.items[0]].number].dtype;
    tensor.storage = storage.text;
    tensor.storage_elements = storage.number;
    tensor.offset = value.number;
    tensor.shape = integers_of(values_[value.items[1]], tensor.name, "shape");
    tensor.strides = integers_of(values_[value.items[2]], tensor.name, "stride");
    check_place(tensor);
    return tensor;
  }

  void check_place(const PickledTensor& tensor) const {
    if (tensor.shape.size() != tensor.strides.size() || tensor.shape.size() > kMostDims)
      refuse("{} has {} sizes and {} strides", tensor.name, tensor.shape.size(), tensor.strides.size());
    int64_t elements = 1;
    for (const int64_t size : tensor.shape) {
      if (elements > 0 && size > kMostElements / elements) refuse("{} has an impossible shape", tensor.name);
      elements *= size;
    }
    const bool is_number = std::min(tensor.offset, tensor.storage_elements) >= 0 &&
                           std::max(tensor.offset, tensor.storage_elements) <= kMostElements;
    // Storage elements after the tensor's first element that the dims so far do not reach.
    int64_t room = is_number ? tensor.storage_elements - 1 - tensor.offset : -1;
    for (size_t dim = 0; dim < tensor.shape.size() && room >= 0; ++dim) {
      const int64_t steps = std::max<int64_t>(tensor.shape[dim] - 1, 0), stride = tensor.strides[dim];
      room = stride > 0 && steps > room / stride ? -1 : room - steps * stride;
    }
    if (!is_number || (elements > 0 && room < 0))
      refuse("{} lies outside its storage of {} elements", tensor.name, tensor.storage_elements);
  }

  std::string_view pickle_;
  uint64_t at_ = 0;
  std::vector<Value> values_;
  std::vector<Index> stack_, memo_;
};

}  // namespace

std::vector<PickledTensor> read_state_dict(std::string_view pickle, const std::string& name) {
  return StateDictReader(pickle, name).tensors();
}

}  // namespace ripstop
