// Reads the weights of a Hugging Face model into the layout of ripstop's units.
#pragma once
#include <cstdint>

#include "parallel/unit_layout.h"
#include "train/exchange/hugging_face/pretrained_model.h"

namespace ripstop {

/// Overwrites `to` with the elements [begin, end) of the flat buffer of `layout`, whose unit is one of
/// parameter_table(model.config); padding becomes zero. Values of 16 bits become float32 exactly. Reads from
/// the files what these elements need and no more, through a buffer of at most 4 MiB. If the files hold a
/// tied table twice, reads both and compares them. Not collective; any thread may call. Throws
/// Error(kInputData) if a value is not finite or the two tables differ, and Error(kStorage) as
/// InputFile::read_at.
void read_pretrained(const PretrainedModel& model, const UnitLayout& layout, int64_t begin, int64_t end,
                     float* to);

}  // namespace ripstop
