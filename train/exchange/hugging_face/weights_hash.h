// Hashes of the weights of a model of Hugging Face, whose files have none of their own.
#pragma once
#include <cstdint>
#include <string>

#include "model/core/function_ref.h"
#include "parallel/communicator.h"
#include "train/exchange/hugging_face/pretrained_model.h"

namespace ripstop {

/// XXH3-128 of names, dtypes, shapes, and of 4 KiB of every 16 MiB and at the end of each tensor. It tells
/// models apart without reading a file whole; damage between the samples does not change it. Not collective.
/// Throws as contents_hash.
std::string samples_hash(const PretrainedModel& model);

/// XXH3-128 of names, dtypes, shapes, and of the XXH3-128 (32 hex digits) of each 16 MiB of each tensor, in
/// the order of ripstop's names: every bit counts. Each rank reads its part of the bytes with kBlockThreads
/// threads, through 1 MiB each; the result does not depend on their number. Meanwhile `watch` is called a few
/// times a second with the share of this rank's part that is done, in percent. Collective over `world`; if a
/// rank fails, all throw. Throws Error(kStorage), and Error(kInputData) if a file became shorter.
std::string contents_hash(
    const PretrainedModel& model, Communicator& world,
    FunctionRef<void(int64_t percent)> watch = [](int64_t) {});

}  // namespace ripstop
