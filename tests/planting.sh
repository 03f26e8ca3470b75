# shellcheck shell=bash
# For scripts that plant faults in a copy of the source, to see which tests notice them; to be sourced.
# In the copy the environment variable RIPSTOP_PLANTED chooses the fault; 0, or none, is the program as it is.

# copy_source FROM TREE: the tracked files of the tree FROM, and the header that asks for the fault
copy_source() {
  mkdir -p "$2"
  (cd "$1" && git ls-files -z | xargs -0 cp --parents -t "$2")
}

# begin_planting TREE FILE...: goes into the copy; these files of it may ask for `planted(NUMBER)`
begin_planting() {
  cd "$1" || exit
  shift
  cat >model/core/planted.h <<'TEXT'
#pragma once
#include <cstdlib>
namespace ripstop {
inline bool planted(int fault) {
  static const int chosen = [] {
    const char* text = std::getenv("RIPSTOP_PLANTED");
    return text == nullptr ? 0 : std::atoi(text);
  }();
  return chosen == fault;
}
}  // namespace ripstop
TEXT
  local file
  for file in "$@"; do
    sed -i '0,/^#include/s//#include "model\/core\/planted.h"\n#include/' "$file"
  done
}

# change FILE FROM TO: replaces the lines of FILE that hold FROM, which may be several lines, by TO, where &LINE& is these
# lines. Ends the script unless FROM occurs once.
change() {
  FROM=$2 TO=$3 awk '
    BEGIN { RS = "\001" }
    {
      from = ENVIRON["FROM"]
      begin = index($0, from)
      if (begin == 0 || index(substr($0, begin + 1), from) > 0) exit 1
      end = begin + length(from)
      while (begin > 1 && substr($0, begin - 1, 1) != "\n") begin--
      while (end <= length($0) && substr($0, end, 1) != "\n") end++
      line = substr($0, begin, end - begin)
      out = ""
      for (rest = ENVIRON["TO"]; (at = index(rest, "&LINE&")) > 0; rest = substr(rest, at + 6))
        out = out substr(rest, 1, at - 1) line
      printf "%s%s%s%s", substr($0, 1, begin - 1), out, rest, substr($0, end)
    }' "$1" >"$1.planted" || {
    echo "${0##*/}: $1 should hold once: $2"$'\n'"The source has changed: adapt this script." >&2
    exit 1
  }
  mv "$1.planted" "$1"
}
