# Runs at every build. Writes version, commit, compiler and libraries to OUTPUT. An unchanged OUTPUT keeps its
# time, so that nothing is compiled again.
# Arguments: SOURCE, OUTPUT, VERSION, COMPILER, LIBRARIES (name=version, separated by |).
execute_process(COMMAND git describe --always --dirty --abbrev=12 --exclude=*
                WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE
                RESULT_VARIABLE status ERROR_QUIET)
if(NOT status EQUAL 0 OR NOT commit)
  set(commit "unknown")
endif()
string(REPLACE "|" ";" libraries "${LIBRARIES}")
set(rows "")
foreach(library IN LISTS libraries)
  string(REGEX REPLACE "^([^=]*)=(.*)$" "    {\"\\1\", \"\\2\"},\n" row "${library}")
  string(APPEND rows "${row}")
endforeach()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
#include "train/machine/version.h"

namespace ripstop {
namespace {
const Library kLibraries[] = {
@rows@};
}  // namespace

std::string_view version() { return "@VERSION@"; }
std::string_view git_commit() { return "@commit@"; }
std::string_view compiler() { return "@COMPILER@"; }
std::span<const Library> libraries() { return kLibraries; }

}  // namespace ripstop
]])
