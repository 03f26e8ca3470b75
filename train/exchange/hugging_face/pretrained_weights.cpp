#include "train/exchange/hugging_face/pretrained_weights.h"

#include <algorithm>
#include <string>
#include <vector>

#include "model/core/error.h"
#include "train/exchange/hugging_face/stored_elements.h"

namespace ripstop {
namespace {

void read_box(const PretrainedModel& model, const PretrainedTensor& tensor, const Box& box, float* to,
              const ReadBuffer& buffer) {
  const int64_t turned = has_turned_rows(box.parameter->name) ? model.config.head_size() : 0;
  read_stored(model.files[tensor.file], tensor.stored, box, turned, to, buffer);
}

// Compares what was read of a tied table with its second copy. Another table would be lost silently.
void check_copy(const PretrainedModel& model, const PretrainedTensor& copy, const Box& box, const float* got,
                const ReadBuffer& buffer) {
  std::vector<float> row(static_cast<size_t>(box.columns));
  Box one = box;
  one.rows = 1;
  for (int64_t r = 0; r < box.rows; ++r, ++one.row) {
    read_box(model, copy, one, row.data(), buffer);
    if (!std::equal(row.begin(), row.end(), got + r * box.stride))
      throw Error(ExitCode::kInputData,
                  fmt::format("{}: row {} of {} differs from the embedding, and config.json ties the two",
                              model.files[copy.file].path().string(), one.row, copy.stored.name),
                  "set tie_word_embeddings to false in its config.json if the head has weights of its own");
  }
}

}  // namespace

void read_pretrained(const PretrainedModel& model, const UnitLayout& layout, int64_t begin, int64_t end,
                     float* to) {
  zero_padding(layout, begin, end, to, DType::kFloat32);
  const ReadBuffer buffer((end - begin) * static_cast<int64_t>(sizeof(float)));
  for (const Box& box : layout.boxes(begin, end)) {
    if (box.empty()) continue;
    float* const at = to + (box.offset - begin);
    const PretrainedTensor& tensor = model.tensors.at(box.parameter->name);
    read_box(model, tensor, box, at, buffer);
    if (box.parameter->name != "tok_embeddings.weight") continue;
    for (const PretrainedTensor& copy : model.tied_copies) check_copy(model, copy, box, at, buffer);
  }
}

}  // namespace ripstop
