#pragma once
#include <span>
#include <string_view>

namespace ripstop {

/// "0.2.0".
std::string_view version();

/// The short commit of the source, with "-dirty" for changed files; "unknown" outside a git checkout.
std::string_view git_commit();

/// The compiler and the build type: "GNU 12.2.0, Release".
std::string_view compiler();

/// A library of this build. The library loaded at run time may be a newer version with the same interface.
struct Library {
  std::string_view name;
  std::string_view version;
};

/// All libraries, in the order in which the build looks for them.
std::span<const Library> libraries();

}  // namespace ripstop
