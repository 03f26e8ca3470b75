// Which ripstop this is, and what it was built with.
#pragma once
#include <span>
#include <string_view>

namespace ripstop {

/// "0.1.0".
std::string_view version();

/// The commit it was built from, short, with "-dirty" where files differed; "unknown" outside a git checkout.
std::string_view git_commit();

/// "GNU 12.2.0, Release".
std::string_view compiler();

/// A library ripstop was built with. At run time a newer one of the same interface may be loaded.
struct Library {
  std::string_view name;
  std::string_view version;
};

/// Every library, in the order of the build's search for them.
std::span<const Library> libraries();

}  // namespace ripstop
