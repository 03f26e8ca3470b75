#!/usr/bin/env bash
# Fails on a file that uses a name of a precompiled header, or one that a header of the project declares, and includes that header
# neither itself nor through the project's headers that it includes: such a file compiles only while another file, with which
# RIPSTOP_UNITY compiles it as one, or the precompiled header brings the name along.
#      tests/includes_test.sh [ROOT]
# Looks at words, not at meaning: comments and literals are left out, and what other headers bring along does not count.
set -euo pipefail

# A header, other headers that have the same names (or -), and the names: the part before the next "::", or the part behind
# std::ranges::. A header that is precompiled needs a row; more rows are for headers that precompiled ones bring along.
rules='
<algorithm>     -   std:: adjacent_find all_of any_of binary_search clamp copy copy_backward copy_if copy_n count count_if equal
  equal_range fill fill_n find find_end find_first_of find_if find_if_not for_each for_each_n generate generate_n includes
  inplace_merge is_partitioned is_permutation is_sorted is_sorted_until iter_swap lexicographical_compare lower_bound make_heap max
  max_element merge min min_element minmax minmax_element mismatch none_of nth_element partial_sort partial_sort_copy partition
  partition_copy partition_point pop_heap push_heap remove_copy remove_copy_if remove_if replace replace_copy replace_if reverse
  reverse_copy rotate rotate_copy sample search search_n set_difference set_intersection set_symmetric_difference set_union
  shift_left shift_right shuffle sort sort_heap stable_partition stable_sort swap_ranges transform unique unique_copy upper_bound
<chrono>        -   std:: chrono chrono_literals
<cstdint>       <stdint.h>   :: int8_t int16_t int32_t int64_t intptr_t intmax_t uint8_t uint16_t uint32_t uint64_t uintptr_t uintmax_t
  INT8_MAX INT16_MAX INT32_MAX INT64_MAX INT8_MIN INT16_MIN INT32_MIN INT64_MIN UINT8_MAX UINT16_MAX UINT32_MAX UINT64_MAX SIZE_MAX
  std:: int8_t int16_t int32_t int64_t intptr_t uint8_t uint16_t uint32_t uint64_t uintptr_t
<filesystem>    -   std:: filesystem
<functional>    -   std:: bind bit_and bit_or bit_xor divides equal_to function greater greater_equal invoke less less_equal
  logical_and logical_or minus modulus multiplies negate not_fn placeholders plus ref cref reference_wrapper mem_fn
<map>           -   std:: map multimap
<memory>        -   std:: unique_ptr shared_ptr weak_ptr make_unique make_shared enable_shared_from_this allocator default_delete
  static_pointer_cast dynamic_pointer_cast uninitialized_copy uninitialized_fill destroy destroy_at construct_at to_address
<optional>      -   std:: optional nullopt nullopt_t make_optional
<span>          -   std:: span as_bytes as_writable_bytes dynamic_extent
<string>        -   std:: string wstring u8string char_traits to_string stoi stol stoll stoul stoull stof stod getline
<string_view>   <string>   std:: string_view wstring_view
<vector>        -   std:: vector
<fmt/format.h>  <fmt/core.h>,<fmt/ranges.h>,<fmt/chrono.h>   fmt:: format format_to format_to_n format_string print
<fmt/ranges.h>  <fmt/format.h>   fmt:: join
<nlohmann/json.hpp>   <nlohmann/json_fwd.hpp>   nlohmann:: json ordered_json basic_json detail
<array>         -   std:: array to_array
<atomic>        -   std:: atomic atomic_ref memory_order_relaxed memory_order_acquire memory_order_release
<bit>           -   std:: bit_cast bit_ceil bit_floor bit_width countl_zero countr_zero endian has_single_bit popcount rotl rotr
<cctype>        -   std:: isalnum isalpha isdigit islower isprint ispunct isspace isupper isxdigit tolower toupper
<cerrno>        <errno.h>   :: errno
<charconv>      -   std:: from_chars to_chars chars_format
<cmath>         -   std:: ceil cos exp floor fmod fmin fmax hypot isfinite isinf isnan ldexp llround log log2 lround pow round sin sqrt
  tanh trunc
<condition_variable>   -   std:: condition_variable
<cstdio>        <stdio.h>   std:: FILE fclose ferror fflush fopen fputs fread fwrite snprintf
<cstdlib>       <stdlib.h>   std:: abort aligned_alloc atexit exit free getenv malloc strtod strtol system
<cstring>       <string.h>   std:: memchr memcmp memcpy memmove memset strchr strcmp strerror strlen strncmp strstr
<deque>         -   std:: deque
<exception>     -   std:: current_exception exception_ptr make_exception_ptr rethrow_exception set_terminate terminate uncaught_exceptions
<fstream>       -   std:: fstream ifstream ofstream
<future>        -   std:: async future promise packaged_task
<limits>        -   std:: numeric_limits
<mutex>         <condition_variable>   std:: call_once lock_guard mutex once_flag scoped_lock unique_lock
<numbers>       -   std:: numbers
<numeric>       -   std:: accumulate gcd inner_product iota lcm midpoint partial_sum reduce
<random>        -   std:: mt19937 mt19937_64 random_device uniform_int_distribution uniform_real_distribution normal_distribution
<set>           -   std:: set multiset
<sstream>       -   std:: istringstream ostringstream stringstream
<stdexcept>     -   std:: invalid_argument logic_error out_of_range runtime_error
<system_error>  <filesystem>,<charconv>   std:: errc error_code generic_category system_category system_error
<thread>        -   std:: thread this_thread jthread
<tuple>         -   std:: forward_as_tuple make_tuple tie tuple
<typeindex>     -   std:: type_index
<unordered_map> -   std:: unordered_map unordered_multimap
<unordered_set> -   std:: unordered_set
<variant>       -   std:: get_if holds_alternative monostate variant visit
'

# Prints the headers that CMakeLists.txt files below ROOT have precompiled.
precompiled() {
  (cd "$1" && cat {.,model,parallel,data,train}/CMakeLists.txt | awk '
    { sub(/#.*/, "") }
    /(set\(RIPSTOP_PRECOMPILED|ripstop_precompile\()/ { inside = 1 }
    inside {
      line = $0
      while (match(line, /<[a-z_\/.]+>/)) { print substr(line, RSTART, RLENGTH); line = substr(line, RSTART + RLENGTH) }
      if (/\)/) inside = 0
    }') | sort -u
}

# Prints one line for every header that a file below ROOT lacks, and for every precompiled header without a rule.
violations() {
  (cd "$1" && find model parallel data train -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' | LC_ALL=C sort |
    RULES=$rules PRECOMPILED=$(precompiled .) xargs awk '
    function read_rules(   words, i, n, word) {
      n = split(ENVIRON["RULES"], words, /[ \n]+/)
      for (i = 1; i <= n; i++) {
        word = words[i]
        if (word ~ /^</) { header = word; if (words[++i] != "-") others[header] = words[i]; has_rule[header] = 1 }
        else if (word ~ /::$/) prefix = word == "::" ? "" : word
        else if (word != "") home[prefix word] = header
      }
      n = split(ENVIRON["PRECOMPILED"], words, "\n")
      if (n == 0) print "no precompiled header found in CMakeLists.txt"
      for (i = 1; i <= n; i++) if (!(words[i] in has_rule)) print words[i] " is precompiled and has no rule in tests/includes_test.sh"
    }
    # The line without comments and literals. `inside` is what the line before left open: "*/" or the end of a raw string.
    function code_of(line,   code, at, mark, rest) {
      code = ""
      for (;;) {
        if (inside != "") {
          at = index(line, inside)
          if (at == 0) return code
          line = substr(line, at + length(inside))
          inside = ""
        }
        if (!match(line, /\/\/|\/\*|"|'\''/)) return code line
        mark = substr(line, RSTART, 1)
        code = code substr(line, 1, RSTART - 1)
        rest = substr(line, RSTART + 1)
        if (mark == "/" && rest ~ /^\//) return code
        if (mark == "/") {
          inside = "*/"
          line = substr(rest, 2)
        } else if (mark == "\"" && code ~ /(^|[^A-Za-z0-9_])R$/) {
          at = index(rest, "(")
          inside = ")" substr(rest, 1, at - 1) "\""
          line = substr(rest, at + 1)
        } else if (mark != "\"" && code ~ /[0-9A-Fa-f]$/) {
          line = rest  # the mark of thousands
        } else {
          while (match(rest, "[\\\\" mark "]") && substr(rest, RSTART, 1) == "\\") rest = substr(rest, RSTART + 2)
          line = RSTART == 0 ? "" : " " substr(rest, RSTART + 1)
        }
      }
    }
    function use(name) {
      sub(/^std::ranges::/, "std::", name)
      if (name in home && !((FILENAME, home[name]) in line_of)) {
        line_of[FILENAME, home[name]] = FNR
        name_of[FILENAME, home[name]] = name
      }
    }
    # Notes what a line of code declares: a word behind a type. What a header declares outside any body is for others to use.
    function declare(code,   name, before, between, outside, is_new) {
      outside = code ~ /^[A-Za-z]/ && code !~ /^(namespace|using namespace|return|extern|public|private|protected|static_assert)/
      before = ""
      while (match(code, /[A-Za-z_][A-Za-z0-9_]*/)) {
        name = substr(code, RSTART, RLENGTH)
        between = substr(code, 1, RSTART - 1)
        code = substr(code, RSTART + RLENGTH)
        is_new = before ~ /^(class|struct|union|enum|using|auto)$/ ||
          before != "" && before !~ /^(const|constexpr|static|inline|explicit|virtual|return|throw|new|delete|case|else|goto|typename|operator|template|public|private|protected|mutable|noexcept|override|sizeof|alignas|if|while|for|in|and|or|not|co_return)$/ &&
          between ~ /^([&* ]*[<)(].*>)?[ *&(]*[ *&>][ *&]*$/ || name ~ /^k[A-Z]/ && (between ~ /[{,] *$/ || before between == "  ")
        if (is_new && name !~ /^(class|const|constexpr|noexcept|override|final|struct)$/) {
          declares[FILENAME, name] = 1
          if (outside && FILENAME ~ /h$/ && code !~ /^;/ && !((name, FILENAME) in owned)) {
            owned[name, FILENAME] = 1
            owners[name] = owners[name] " " FILENAME
          }
          if (code ~ /^[ ]*[({=;]/) outside = 0
        }
        before = name
      }
    }
    # Calls use() for every name of a line of code: one with its namespace, or one word.
    function use_names(code,   word, parts, n, member, i) {
      while (match(code, /[A-Za-z_][A-Za-z0-9_]*(::[A-Za-z_][A-Za-z0-9_]*)*/)) {
        member = substr(code, 1, RSTART - 1) ~ /(\.|->)$/
        word = substr(code, RSTART, RLENGTH)
        code = substr(code, RSTART + RLENGTH)
        n = split(word, parts, "::")
        for (i = 1; i < n && parts[i] !~ /^[A-Z]/;) i++  # of a member of a class, the class
        if (!member && parts[1] != "std" && !((FILENAME, parts[i]) in first_use)) first_use[FILENAME, parts[i]] = FNR
        if (n == 1) use(word)
        else if (parts[2] == "ranges" && n > 2) use(parts[1] "::ranges::" parts[3])
        else use(parts[1] "::" parts[2])
      }
    }
    # Whether `file`, or a header of the project that it reaches, includes one of `headers`.
    function reaches(file, headers,   list, i, n) {
      if (file in seen) return 0
      seen[file] = 1
      n = split(headers, list, ",")
      for (i = 1; i <= n; i++) if ((file, list[i]) in includes) return 1
      n = split(project[file], list, " ")
      for (i = 1; i <= n; i++) if (reaches(list[i], headers)) return 1
      return 0
    }
    BEGIN { read_rules() }
    FNR == 1 { inside = "" }
    inside == "" && /^[ \t]*#[ \t]*include/ {
      name = $0
      sub(/^[ \t]*#[ \t]*include[ \t]*/, "", name)
      if (name ~ /^</) { sub(/>.*/, ">", name); includes[FILENAME, name] = 1 }
      else if (name ~ /^"/) { sub(/^"/, "", name); sub(/".*/, "", name); project[FILENAME] = project[FILENAME] " " name }
      next
    }
    {
      code = code_of($0)
      declare(code)
      use_names(code)
    }
    # Whether `file`, or a header of the project that it reaches, declares `name`.
    function knows(file, name,   list, i, n) {
      if (file in seen) return 0
      seen[file] = 1
      if ((file, name) in declares) return 1
      n = split(project[file], list, " ")
      for (i = 1; i <= n; i++) if (knows(list[i], name)) return 1
      return 0
    }
    END {
      for (key in first_use) {
        split(key, part, SUBSEP)
        if (!(part[2] in owners)) continue
        split("", seen)
        if (!knows(part[1], part[2]))
          print part[1] ":" first_use[key] ": uses " part[2] ", includes" owners[part[2]] " neither itself nor through its headers"
      }
      for (key in line_of) {
        split(key, part, SUBSEP)
        split("", seen)
        headers = part[2] (part[2] in others ? "," others[part[2]] : "")
        if (!reaches(part[1], headers))
          print part[1] ":" line_of[key] ": uses " name_of[key] ", includes " part[2] " neither itself nor through its headers"
      }
    }' | LC_ALL=C sort -t: -k1,1 -k2,2n)
}

root=${1:-$(dirname "$0")/..}
status=0

# lacks TEXT [HEADER]: what the test says about a small tree whose data/a.cpp is TEXT and whose data/a.h is HEADER. Beside
# it lies data/b.h with what $b_h is, which nobody includes.
lacks() {
  local tree
  tree=$(mktemp -d)
  mkdir "$tree"/{model,parallel,data,train}
  touch "$tree"/{model,parallel,data,train}/CMakeLists.txt
  echo "${precompile:-"set(RIPSTOP_PRECOMPILED <vector>)"}" >"$tree/CMakeLists.txt"
  printf '%s\n' "$1" >"$tree/data/a.cpp"
  printf '%s\n' "${2:-}" >"$tree/data/a.h"
  printf '#include <cstdint>\n#include <vector>\n%s\n' "${b_h:-}" >"$tree/data/b.h"
  violations "$tree"
  rm -rf "$tree"
}
# The test can fail: what is left of each of these lines must be seen in its code.
while IFS='|' read -r header text; do
  if [[ $(lacks "$text") != "data/a.cpp:1: uses "*", includes $header neither"* ]]; then
    echo "includes_test is blind: $text was not seen to need $header"
    status=1
  fi
done <<'TEXT'
<vector>|std::vector<int> v;
<vector>|f("//", '"', 10'000, std::vector<int>());
<vector>|f("\\", "/* \" ", '\'', std::vector<int>());
<vector>|/* one */ std::vector<int> v;
<algorithm>|return std::ranges::any_of(v, f);
<chrono>|const auto now = std::chrono::steady_clock::now();
<cstdint>|for (int64_t i = 0; i < n; ++i) f(i);
<cstdint>|const auto most = INT64_MAX;
<fmt/format.h>|return fmt::format("{}", 1);
<nlohmann/json.hpp>|nlohmann::json json;
TEXT
own='#include "data/a.h"'
while read -r text; do
  if [[ -n $(lacks "$own"$'\n'"${text//@/$'\n'}" '#include <vector>') ]]; then
    echo "includes_test refuses what is right: $text"
    status=1
  fi
done <<'TEXT'
std::vector<int> v;
f("std::string");  // std::string
/* std::string@ std::string */
f(R"x(std::string@ )" std::string)x");
f("\"std::string", '"', "std::string");
ripstop::chrono::now(); string my_int64_t;
#include <string>@std::string_view s;
TEXT
# Names of the project: b.h declares them, a.cpp may know them from b.h alone.
others='struct Shape { int rows; };
enum class Cut {
  kRows,
};
inline constexpr int64_t kMost = 1;
/// Comments may name anything: unit_of().
std::vector<int> unit_of(int64_t row);'
while read -r text; do
  if [[ $(b_h=$others lacks "${text//@/$'\n'}") != "data/a.cpp:1: uses "*", includes data/b.h neither"* ]]; then
    echo "includes_test is blind: $text was not seen to need data/b.h"
    status=1
  fi
  if [[ -n $(b_h=$others lacks '#include "data/a.h"'$'\n'"${text//@/$'\n'}" '#include "data/b.h"') ]]; then
    echo "includes_test refuses what is right: $text, with a header that includes data/b.h"
    status=1
  fi
done <<'TEXT'
void f(const Shape& s);
auto c = Cut::kRows;
auto c = unit_of(1);
f(ripstop::unit_of(1), kMost);
int i = kMost;
TEXT
while read -r text; do
  if [[ -n $(b_h=$others lacks "${text//@/$'\n'}") ]]; then
    echo "includes_test refuses what is right: $text"
    status=1
  fi
done <<'TEXT'
struct Shape {};@Shape s;
f(spec.unit_of(1), it->kMost);  // unit_of
void f(const Parts& unit_of) { return unit_of.size(); }
enum class Axis { kRows, kColumns };@auto a = Axis::kRows;
int rows = 1;
TEXT
if [[ $(lacks "$own"$'\n''std::vector<int> v;' '') != "data/a.cpp:2: uses std::vector, "* ]]; then
  echo "includes_test is blind: a header without <vector> was taken for one with it"
  status=1
fi
if [[ $(precompile='ripstop_precompile(x <vector> <no/such.h>)' lacks '') != "<no/such.h> is precompiled and has no rule"* ]]; then
  echo "includes_test is blind: a precompiled header without a rule was not seen"
  status=1
fi

found=$(violations "$root")
if [[ -n $found ]]; then
  echo "$found"
  status=1
fi
exit $status
