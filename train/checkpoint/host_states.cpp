#include "train/checkpoint/host_states.h"

namespace ripstop {

HostStates::HostStates(ShardedTransformer& model, const AdamW& optimizer, const Stream& stream)
    : stream_(stream) {
  for (size_t u = 0; u < model.units().size(); ++u) {
    const FsdpUnit& unit = model.units()[u];
    units_.push_back(
        {&unit.layout(), {unit.master(), {}}, {optimizer.first(u), {}}, {optimizer.second(u), {}}});
  }
  // On the CPU, files are written from the tensors themselves and read into them.
  if (stream.device().kind == DeviceKind::kCpu) return;
  each([](State& state) { state.copy.resize(static_cast<size_t>(state.tensor.bytes())); });
}

void* HostStates::State::host() {
  return tensor.device.kind == DeviceKind::kCpu ? tensor.data : copy.data();
}

void HostStates::each(FunctionRef<void(State&)> body) {
  for (Unit& unit : units_)
    for (State* state : {&unit.master, &unit.first, &unit.second}) body(*state);
}

std::vector<UnitStates> HostStates::units() {
  std::vector<UnitStates> states;
  for (Unit& unit : units_)
    states.push_back({.layout = unit.layout,
                      .master = static_cast<float*>(unit.master.host()),
                      .first_moment = unit.first.host(),
                      .second_moment = unit.second.host(),
                      .moments = unit.first.tensor.dtype});
  return states;
}

void HostStates::to_host() {
  each([&](State& state) {
    if (!state.copy.empty()) copy_bytes(stream_, state.copy.data(), state.tensor.data, state.tensor.bytes());
  });
  stream_.synchronize();  // the writer reads the copies without knowing the stream
}

void HostStates::to_device() {
  each([&](State& state) {
    if (!state.copy.empty()) copy_bytes(stream_, state.tensor.data, state.copy.data(), state.tensor.bytes());
  });
}

}  // namespace ripstop
