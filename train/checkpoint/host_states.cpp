#include "train/checkpoint/host_states.h"

#include <cstddef>

namespace ripstop {
namespace {

int64_t bytes_of(const UnitStates& unit, UnitState state) {
  return unit.layout->shard_elements() * element_bytes(state_dtype(state, unit.moments));
}

}  // namespace

std::vector<UnitStates> live_states(ShardedTransformer& model, const AdamW& optimizer) {
  std::vector<UnitStates> states;
  for (size_t u = 0; u < model.trained_units().size(); ++u) {
    const FsdpUnit& unit = model.trained_units()[u];
    states.push_back({.layout = &unit.layout(),
                      .master = static_cast<float*>(unit.master().data),
                      .first_moment = optimizer.first(u).data,
                      .second_moment = optimizer.second(u).data,
                      .moments = optimizer.first(u).dtype});
  }
  return states;
}

void load_states(const std::vector<UnitStates>& units, const Stream& stream,
                 FunctionRef<void(const std::vector<UnitStates>&)> read) {
  if (stream.device().kind == DeviceKind::kCpu) return read(units);
  std::vector<std::byte> host[kUnitStateCount];
  for (const UnitStates& unit : units) {
    for (const UnitState state : kUnitStates)
      host[static_cast<size_t>(state)].assign(static_cast<size_t>(bytes_of(unit, state)), std::byte{0});
    UnitStates staged = unit;
    // Memory from `new` is aligned for every scalar.
    staged.master = reinterpret_cast<float*>(host[0].data());
    staged.first_moment = host[1].data();
    staged.second_moment = host[2].data();
    read({staged});
    for (const UnitState state : kUnitStates)
      copy_bytes(stream, unit.array(state), staged.array(state), bytes_of(unit, state));
  }
}

}  // namespace ripstop
