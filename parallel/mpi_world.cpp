#include "parallel/mpi_world.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <random>
#include <thread>

#include "parallel/agreement.h"
#include "parallel/arrivals.h"
#include "parallel/launch_environment.h"
#include "parallel/mpi_transfer.h"

namespace ripstop {
namespace {

using mpi::check_mpi;

[[noreturn]] void refuse_single_worlds(const std::string& why) {
  throw Error(
      ExitCode::kResources,
      fmt::format("{} processes were started, but each is alone in its MPI world{}", launch_size(), why),
      "start them with srun --mpi=pmix (srun --mpi=list shows what there is), or with the mpirun of "
      "the MPI that ripstop was built with");
}

// Throws an Error for a launch that Open MPI would end inside MPI_Init.
void require_fit_launcher() {
#ifdef OMPI_MAJOR_VERSION
  Dl_info library{};
  dladdr(reinterpret_cast<const void*>(&MPI_Init_thread), &library);
  const std::string offered =
      useless_to_open_mpi(OMPI_MAJOR_VERSION, library.dli_fname == nullptr ? "" : library.dli_fname);
  if (!offered.empty())
    refuse_single_worlds(fmt::format(": srun offers {}, and this Open MPI knows PMIx alone", offered));
#endif
}

// Starts MPI. Returns whether several threads may call MPI, one at a time.
bool start_mpi(mpi::World& world) {
  int already = 0, provided = MPI_THREAD_SINGLE, size = 0;
  MPI_Initialized(&already);
  RIPSTOP_CHECK(already == 0, "MPI is started a second time");
  require_fit_launcher();
  const mpi::GuardedCall guard(world, "MPI_Init");
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  // The threads of the watchdog and of OpenMP run beside MPI, but do not call it.
  if (provided < MPI_THREAD_FUNNELED)
    throw Error(ExitCode::kResources, "this MPI allows no threads in a process (MPI_THREAD_SINGLE)",
                "build ripstop with an MPI that offers MPI_THREAD_FUNNELED");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  // The launcher of another MPI does not connect the processes, and each would train alone.
  if (size == 1 && launch_size() > 1) refuse_single_worlds("");
  return provided >= MPI_THREAD_SERIALIZED;
}

int64_t discover_node(mpi::World& world, int rank) {
  const mpi::GuardedCall guard(world, "MPI_Comm_split_type");
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  int lowest = rank;
  check_mpi(MPI_Bcast(&lowest, 1, MPI_INT, 0, node), "MPI_Bcast");
  MPI_Comm_free(&node);
  return lowest;
}

}  // namespace

struct MpiWorld::State {
  mpi::World world;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<Arrivals> arrivals;          ///< null without directory, launch name or other ranks
  std::atomic<const Arrivals*> come{nullptr};  ///< `arrivals` until all ranks have come, then null
  bool started = false;

  // Guards calls of `arrivals`, because a file system may hang.
  mpi::GuardedCall guard_files() { return {world, "a file near " + world.options.directory.string()}; }
  void begin();
  void know_each_other();
  void report_hang(const std::string& operation, double seconds);
  std::string describe_start(double& wait_for_turn);
  [[noreturn]] void rethrow_at_start(const Error& error);
};

// Runs before MPI starts. From here on, the watchdog ends the process if the launcher is gone or MPI hangs.
void MpiWorld::State::begin() {
  world.watchdog.start(launch_size() > 1,
                       [this](const std::string& call, double seconds) { report_hang(call, seconds); });
  const std::string launch = launch_name();
  if (world.options.directory.empty() || launch.empty() || launch_size() < 2) return;
  constexpr double kMostSeconds = 5, kLeastSeconds = 0.1, kTouchesInADeadline = 10;
  const mpi::GuardedCall guard = guard_files();
  arrivals = std::make_unique<Arrivals>(
      world.options.directory, launch, launch_rank(), world.watchdog.address().host,
      std::clamp(world.options.deadline_seconds / kTouchesInADeadline, kLeastSeconds, kMostSeconds));
  come.store(arrivals.get());
}

// Exchanges hosts, nodes and watchdogs' addresses of all ranks.
void MpiWorld::State::know_each_other() {
  Communicator& all = *communicator;
  const std::string host = world.watchdog.address().host;
  const std::vector<int64_t> nodes = of_all_ranks(all, discover_node(world, static_cast<int>(all.rank())));
  const std::vector<std::string> hosts = all.all_gather_text(host);
  for (size_t r = 0; r < nodes.size(); ++r) world.places.push_back({hosts[r], nodes[r]});
  // All ranks have come, so nobody reads the files any more.
  come.store(nullptr);
  if (const mpi::GuardedCall guard = guard_files(); arrivals != nullptr) arrivals->leave();
  // Compare node and host, because containers on one node may have names and networks of their own.
  const auto is_here = [&](const RankHost& place) { return place.node == 0 && place.host == hosts[0]; };
  const bool one_host = std::all_of(world.places.begin(), world.places.end(), is_here);
  world.watchdog.open(one_host ? Reach::kHost : Reach::kNetwork);
  std::vector<WatchdogAddress> addresses;
  for (const std::string& text : all.all_gather_text(world.watchdog.address().to_text()))
    addresses.push_back(WatchdogAddress::from_text(text));
  if (const mpi::GuardedCall guard = guard_files(); arrivals != nullptr && all.rank() == 0)
    arrivals->remove_all();
  // A random number from rank 0 marks this world's datagrams, because other runs may use the same nodes.
  std::random_device random;
  world.watchdog.connect(all.rank(), addresses, of_rank_0(all, (uint64_t{random()} << 32) | random()));
  world.connected = true;
}

// Runs on a thread of its own while the main thread hangs in MPI. All ranks may hang, and only one should
// print, so higher ranks wait first.
void MpiWorld::State::report_hang(const std::string& operation, double seconds) {
  const StepPlace place = world.watchdog.place();
  double wait_for_turn = 0;
  std::string who;
  if (world.connected) {
    who = describe_missing(world, {});
    if (who.empty()) who = "all ranks answer, but MPI does not go on";
    wait_for_turn = 0.1 * static_cast<double>(std::min<int64_t>(communicator->rank(), 10));
  } else {
    who = describe_start(wait_for_turn);
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(wait_for_turn));
  if (world.watchdog.failure_announced()) return;
  if (world.connected) world.watchdog.announce_failure(ExitCode::kCommunication, kSecondsToEnd / 3);
  Error error(ExitCode::kCommunication,
              fmt::format("{} ({} ranks) waited {:.0f} s: {}", operation, launch_size(), seconds, who),
              "see those ranks' nodes and the launcher's output; run the same command again");
  if (place.step >= 0) error.set_step(place.step);
  if (world.options.end_process) world.options.end_process(error);
  _exit(static_cast<int>(error.code()));
}

// Describes the ranks that have not come. `wait_for_turn`: seconds to wait before printing. When a lower
// rank has printed and ended, the launcher ends this rank.
std::string MpiWorld::State::describe_start(double& wait_for_turn) {
  constexpr double kTurn = 2 * kSecondsToEnd;
  const auto turn = [](int64_t before) { return kTurn * static_cast<double>(std::min<int64_t>(before, 2)); };
  const int64_t rank = launch_rank(), size = launch_size();
  wait_for_turn = turn(rank);
  // Once: if the look hangs, report_hang() must not hang, too.
  const Arrivals* files = come.exchange(nullptr);
  if (files == nullptr) return "nothing tells which rank is missing";
  const ArrivalsSeen seen = files->look();
  const bool own = std::any_of(seen.ranks.begin(), seen.ranks.end(),
                               [&](const ArrivalsSeen::Rank& each) { return each.rank == rank; });
  if (!own)
    return fmt::format("nothing tells which rank is missing: {} cannot be read", seen.folder.string());
  wait_for_turn =
      turn(std::count_if(seen.ranks.begin(), seen.ranks.end(),
                         [&](const ArrivalsSeen::Rank& each) { return each.moves && each.rank < rank; }));
  // The rank that prints first removes the files. A rank that looks later then waits as if all lower ranks
  // had come.
  if (wait_for_turn == 0) files->remove_all();
  return missing_at_start(seen, size, launch_nodes());
}

// Rethrows the error of a wait at the start. All ranks fail, and only one should print.
void MpiWorld::State::rethrow_at_start(const Error& error) {
  double wait_for_turn = 0;
  const std::string who = [&] {
    const mpi::GuardedCall guard = guard_files();
    return describe_start(wait_for_turn);
  }();
  std::this_thread::sleep_for(std::chrono::duration<double>(wait_for_turn));
  throw Error(error.code(), fmt::format("{} ({})", error.what(), who), error.hint());
}

MpiWorld::MpiWorld(const MpiOptions& options) : state_(std::make_unique<State>()) {
  State& state = *state_;
  RIPSTOP_CHECK(options.piece_bytes > 0 && options.piece_bytes <= int64_t{1} << 30, "pieces of {} bytes",
                options.piece_bytes);
  state.world.options = options;
  state.world.storage_seconds = options.deadline_seconds;
  // Without a launcher, do not start MPI: MPI_Init may fail or hang on a login node. One rank needs no MPI.
  if (!was_launched()) {
    state.communicator = make_self_communicator("world");
    state.world.places = {{state.world.watchdog.address().host, 0}};
    return;
  }
  state.begin();
  const bool serialized = start_mpi(state.world);
  state.started = true;
  // A communicator of our own, because ripstop's messages must not mix with others on MPI_COMM_WORLD.
  MPI_Comm everyone = MPI_COMM_NULL;
  {
    const mpi::GuardedCall guard(state.world, "MPI_Comm_dup");
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &everyone), "MPI_Comm_dup");
  }
  state.communicator = mpi::make_mpi_communicator(state.world, everyone, "world");
  try {
    state.know_each_other();
  } catch (const Error& error) {
    state.rethrow_at_start(error);
  }
  if (serialized) state.world.progress.start();
}

MpiWorld::~MpiWorld() {
  // Other ranks may never come to MPI_Finalize, so leave all clean-up to _exit.
  if (std::uncaught_exceptions() > 0) {
    static_cast<void>(state_.release());
    return;
  }
  if (!state_->started) return;
  state_->communicator.reset();
  state_->world.progress.stop();
  const mpi::GuardedCall guard(state_->world, "MPI_Finalize");
  MPI_Finalize();
}

Communicator& MpiWorld::communicator() {
  return *state_->communicator;
}
const std::vector<RankHost>& MpiWorld::places() const {
  return state_->world.places;
}
int64_t MpiWorld::ranks_here() const {
  const int64_t own = places()[static_cast<size_t>(state_->communicator->rank())].node;
  return std::count_if(places().begin(), places().end(),
                       [&](const RankHost& place) { return place.node == own; });
}
int64_t MpiWorld::local_rank() const {
  const auto own = places().begin() + state_->communicator->rank();
  return std::count_if(places().begin(), own, [&](const RankHost& place) { return place.node == own->node; });
}
void MpiWorld::set_step(int64_t step) {
  state_->world.watchdog.set_place({.step = step});
}
void MpiWorld::set_micro_batch(int64_t stage, int64_t micro_batch) {
  Watchdog& watchdog = state_->world.watchdog;
  watchdog.set_place({.step = watchdog.place().step, .stage = stage, .micro_batch = micro_batch});
}
void MpiWorld::record_into(RangeRecorder* recorder) {
  state_->world.recorder = recorder;
}
void MpiWorld::set_deadline(double seconds) {
  state_->world.options.deadline_seconds = seconds;
}

void MpiWorld::set_waits_for_storage(bool waits) {
  state_->world.watchdog.set_waits_for_storage(waits);
}

std::string MpiWorld::library() const {
  if (!state_->started) return "none";
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  // With some libraries a page of text follows name and version; the page is cut off.
  MPI_Get_library_version(text, &length);
  const std::string whole(text, static_cast<size_t>(length));
  return whole.substr(0, whole.find_first_of(",\n"));
}

// train/main.cpp prints the exception that this function rethrows, and ends the process.
ExitCode MpiWorld::run(FunctionRef<ExitCode()> body) {
  try {
    const RankHost& own = places()[static_cast<size_t>(state_->communicator->rank())];
    require_equal(*state_->communicator, ExitCode::kUsage, "command", state_->world.options.command, own.host,
                  "start the same command on every rank");
    const ExitCode code = body();
    // ~MpiWorld() may not throw. Unlike MPI_Finalize, this names a missing rank.
    state_->communicator->barrier();
    return code;
  } catch (...) {
    tell_failure(current_error().code());
    throw;
  }
}

void MpiWorld::tell_failure(ExitCode code) {
  if (!state_->world.connected) return;
  using std::chrono::milliseconds;
  Watchdog& watchdog = state_->world.watchdog;
  // Lower ranks announce first, even on a busy machine. A rank that has heard of an earlier failure waits
  // below until its watchdog ends it.
  std::this_thread::sleep_for(milliseconds(100 * std::min<int64_t>(state_->communicator->rank(), 10)));
  // Rank 0 may still wait for storage before it writes the error, and an announcement would end rank 0.
  // Rank 0 itself announces the failure after that.
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(state_->world.storage_seconds);
  while (code != ExitCode::kCommunication && state_->communicator->rank() != 0 &&
         !watchdog.failure_announced() && std::chrono::steady_clock::now() < end &&
         watchdog.ask({0}, kSecondsToEnd).front().waits_for_storage)
    std::this_thread::sleep_for(milliseconds(200));
  if (watchdog.failure_announced()) std::this_thread::sleep_for(milliseconds(5000));
  watchdog.announce_failure(code, kSecondsToEnd / 3);
}

}  // namespace ripstop
