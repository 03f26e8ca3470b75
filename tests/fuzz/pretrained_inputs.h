// Gives bytes of unknown origin to the readers of Hugging Face's models and PEFT's adapters, as one file of a
// good one. The fuzz targets and the test that replays their corpus share it.
#pragma once
#include <algorithm>
#include <stdexcept>
#include <string>

#include "data/files/file.h"
#include "model/parameter.h"
#include "tests/train/exchange/peft_directory.h"
#include "tests/train/exchange/pretrained_directory.h"
#include "train/exchange/hugging_face/pretrained_model.h"
#include "train/exchange/peft/peft_adapter.h"

namespace ripstop {

/// The directory with the good model, and what opening must never do. Every member throws std::logic_error if
/// a promise is broken; any other exception that leaves it is a bug as well.
class PretrainedInputs {
 public:
  /// The result of an input.
  struct Outcome {
    bool accepted = false;
    std::string what;  ///< of the refusal
  };

  PretrainedInputs() {
    one_file_.write();
    several_.write_sharded();
  }

  /// Reads `bytes` as model.safetensors.
  Outcome header(const std::string& bytes) const {
    write_bytes(one_file_.path() / "model.safetensors", bytes);
    const Outcome outcome = tried([&] {
      const InputFile file(one_file_.path() / "model.safetensors");
      int64_t end = 0;
      for (const StoredTensor& tensor : read_safetensors_header(file)) {
        require(tensor.begin >= 8 && tensor.begin >= end, "tensors lie one after the other");
        end = tensor.begin + tensor.bytes;
        require(tensor.bytes >= 0 && end <= file.bytes(), "a tensor lies in its file");
        int64_t bytes_of_shape = dtype_bytes(tensor.dtype);
        for (const int64_t size : tensor.shape) bytes_of_shape *= size;
        require(tensor.bytes == bytes_of_shape, "a tensor has the bytes of its shape");
      }
    });
    const Outcome opened = opening(one_file_);
    require(outcome.accepted || !opened.accepted, "no model has a file that is refused");
    return outcome;
  }

  /// Reads `bytes` as config.json.
  Outcome config(const std::string& bytes) const {
    const Outcome outcome = tried([&] { validate(parse_pretrained_config(bytes, "config.json")); });
    write_bytes(one_file_.path() / "config.json", bytes);
    const Outcome opened = opening(one_file_);
    require(outcome.accepted || !opened.accepted, "no model has a config that is refused");
    return outcome;
  }

  /// Reads `bytes` as adapter_config.json, beside adapters of the good model.
  Outcome adapter(const std::string& bytes) const {
    adapters_.write();
    write_bytes(adapters_.path() / "adapter_config.json", bytes);
    const ModelConfig model = pretrained_directory_model();
    return tried([&] {
      const PeftAdapter adapter = open_peft_adapter(adapters_.path(), model);
      require(!lora_lines(adapter.lora).empty(), "adapters can be described");
      for (const AdapterSpec& spec : adapter_specs(model, adapter.lora))
        for (const ParameterSpec* parameter : {&spec.a, &spec.b}) {
          const StoredTensor& found = adapter.tensors.at(parameter->name);
          require(found.bytes == parameter->count() * dtype_bytes(found.dtype), "a parameter has its size");
        }
    });
  }

  /// Reads `bytes` as model.safetensors.index.json.
  Outcome index(const std::string& bytes) const {
    write_bytes(several_.path() / "model.safetensors.index.json", bytes);
    return opening(several_);
  }

  /// Throws std::logic_error unless `promise` holds.
  static void require(bool promise, const char* what) {
    if (!promise) throw std::logic_error(std::string("broken: ") + what);
  }

  /// Runs a reader, and looks at the error of a refusal.
  template <class Action>
  static Outcome tried(const Action& action) {
    try {
      action();
    } catch (const Error& error) {
      const std::string what = error.what();
      require(error.code() == ExitCode::kInputData, "bad input ends with 65");
      require(!what.empty() && what.size() < 2000, "a message is short");
      require(std::ranges::none_of(what, [](unsigned char c) { return c < ' ' || c == 0x7f; }),
              "a message is one line without control characters");
      return {false, what};
    }
    return {true, ""};
  }

 private:
  static Outcome opening(const PretrainedDirectory& directory) {
    return tried([&] {
      const PretrainedModel model = open_pretrained_model(directory.path());
      for (const UnitSpec& unit : parameter_table(model.config))
        for (const PhysicalTensor& tensor : unit.tensors)
          for (const ParameterSpec& parameter : tensor.parts) {
            const StoredTensor& found = model.tensors.at(parameter.name);
            require(found.bytes == parameter.count() * dtype_bytes(found.dtype), "a parameter has its size");
            require(found.begin + found.bytes <= model.files.at(found.file).bytes(),
                    "a parameter lies in its file");
          }
    });
  }

  PretrainedDirectory one_file_, several_;
  PeftDirectory adapters_;
};

}  // namespace ripstop
