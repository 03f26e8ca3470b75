#include "train/exchange/hugging_face/zip_directory.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/files/hash.h"
#include "data/text/json_reader.h"
#include "data/text/utf8.h"
#include "train/exchange/hugging_face/safetensors.h"

namespace ripstop {
namespace {

constexpr int64_t kMostDirectoryBytes = int64_t{32} << 20;
constexpr int64_t kEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56, kEntryBytes = 46, kHeaderBytes = 30;
constexpr uint64_t kIn64 = 0xffffffff;  // this value in a 32-bit field: the number stands in a zip64 field

class ZipReader : public JsonReader {
 public:
  explicit ZipReader(const InputFile& file)
      : JsonReader(file.path().string(), ExitCode::kInputData), file_(file) {}

  std::vector<ZipMember> members() {
    find_directory();
    const std::string directory = file_.text_at(begin_, end_ - begin_);
    std::vector<ZipMember> members;
    for (std::string_view rest = directory; !rest.empty();) members.push_back(take_entry(rest));
    if (static_cast<uint64_t>(members.size()) != count_)
      refuse("its ZIP directory has {} entries and says {}", members.size(), count_);
    check(members);
    return members;
  }

 private:
  // The record at the end of the file, before a comment, says where the directory lies.
  void find_directory() {
    constexpr int64_t kMostCommentBytes = 65535;
    const int64_t tail_bytes = std::min(file_.bytes(), kEndBytes + kMostCommentBytes);
    const std::string tail = file_.text_at(file_.bytes() - tail_bytes, tail_bytes);
    size_t at = tail.size();
    do {
      at = at == 0 ? std::string::npos : tail.rfind("PK\x05\x06", at - 1);
      if (at == std::string::npos) refuse("is cut short, or no ZIP archive: it has no ZIP directory");
    } while (tail.size() - at < kEndBytes ||
             little_endian(std::string_view(tail).substr(at + 20, 2)) != tail.size() - at - kEndBytes);
    const std::string_view end = std::string_view(tail).substr(at, kEndBytes);
    if (little_endian(end.substr(4, 4)) != 0) refuse("is one part of a ZIP archive of several files");
    end_ = file_.bytes() - tail_bytes + static_cast<int64_t>(at);
    count_ = little_endian(end.substr(10, 2));
    uint64_t bytes = little_endian(end.substr(12, 4)), begin = little_endian(end.substr(16, 4));
    if (at >= kLocatorBytes && tail.compare(at - kLocatorBytes, 4, "PK\x06\x07") == 0) {
      const uint64_t place = little_endian(std::string_view(tail).substr(at - kLocatorBytes + 8, 8));
      end_ -= kLocatorBytes + kEnd64Bytes;
      const bool is_there = end_ >= 0 && place == static_cast<uint64_t>(end_);
      const std::string end64 = is_there ? file_.text_at(end_, kEnd64Bytes) : "";
      if (!end64.starts_with("PK\x06\x06")) refuse("its zip64 directory is damaged");
      count_ = little_endian(std::string_view(end64).substr(32, 8));
      bytes = little_endian(std::string_view(end64).substr(40, 8));
      begin = little_endian(std::string_view(end64).substr(48, 8));
    }
    if (bytes > kMostDirectoryBytes) refuse("its ZIP directory has {} bytes, too many to be read", bytes);
    if (begin > static_cast<uint64_t>(end_) || begin + bytes != static_cast<uint64_t>(end_))
      refuse("its ZIP directory is not where it says: byte {} and {} bytes, of {}", begin, bytes,
             file_.bytes());
    begin_ = static_cast<int64_t>(begin);
  }

  void require_name(const std::string& name) const {
    if (name.empty() || name.size() > kMostNameBytes || invalid_utf8(name))
      refuse("has a member whose name has {} bytes, or is not UTF-8", name.size());
    if (name[0] == '/' || name.find('\\') != std::string::npos ||
        ("/" + name + "/").find("/../") != std::string::npos)
      refuse("has a member whose name leaves the archive: {}", name);
  }

  // Takes an entry of the directory off `rest`. The member's `begin` is still the offset of its header.
  ZipMember take_entry(std::string_view& rest) const {
    if (rest.size() < kEntryBytes || !rest.starts_with("PK\x01\x02")) refuse("its ZIP directory is damaged");
    const auto number = [&](size_t at, size_t bytes) { return little_endian(rest.substr(at, bytes)); };
    const uint64_t name_bytes = number(28, 2), extra_bytes = number(30, 2);
    const uint64_t all_bytes = kEntryBytes + name_bytes + extra_bytes + number(32, 2);
    if (rest.size() < all_bytes) refuse("its ZIP directory is damaged");
    ZipMember member{.name = std::string(rest.substr(kEntryBytes, name_bytes)),
                     .crc = static_cast<uint32_t>(number(16, 4))};
    require_name(member.name);
    constexpr uint64_t kEncrypted = 1 | 1 << 6 | 1 << 13;
    if ((number(8, 2) & kEncrypted) != 0) refuse("{} is encrypted", member.name);
    uint64_t packed = number(20, 4), bytes = number(24, 4), begin = number(42, 4);
    std::string_view extra = rest.substr(kEntryBytes + name_bytes, extra_bytes);
    for (uint64_t size = 0; extra.size() >= 4; extra.remove_prefix(size)) {
      size = std::min<uint64_t>(extra.size(), 4 + little_endian(extra.substr(2, 2)));
      if (little_endian(extra.substr(0, 2)) != 1) continue;  // no zip64 field
      std::string_view values = extra.substr(4, size - 4);
      for (uint64_t* value : {&bytes, &packed, &begin}) {
        if (*value != kIn64 || values.size() < 8) continue;
        *value = little_endian(values.substr(0, 8));
        values.remove_prefix(8);
      }
    }
    if (number(10, 2) != 0 || packed != bytes)
      refuse_with("torch.save does not compress: save it once more", "{} is compressed", member.name);
    if (begin > static_cast<uint64_t>(begin_) || bytes > static_cast<uint64_t>(begin_) - begin)
      refuse("{} lies outside the file", member.name);
    member.begin = static_cast<int64_t>(begin);
    member.bytes = static_cast<int64_t>(bytes);
    rest.remove_prefix(all_bytes);
    return member;
  }

  // Checks the members, sorts them by offset, and moves each `begin` past the member's header.
  void check(std::vector<ZipMember>& members) const {
    std::ranges::sort(members, {}, &ZipMember::name);
    const auto twice = std::ranges::adjacent_find(members, {}, &ZipMember::name);
    if (twice != members.end()) refuse("has {} twice", twice->name);
    std::ranges::sort(members, {}, &ZipMember::begin);
    int64_t end = 0;
    for (ZipMember& member : members) {
      const std::string& name = member.name;
      if (member.begin < end) refuse("{} shares bytes with another member", name);
      const int64_t header_bytes = kHeaderBytes + std::ssize(name);
      if (begin_ - member.begin < header_bytes) refuse("{} lies outside the file", name);
      const std::string header = file_.text_at(member.begin, header_bytes);
      const auto number = [&](size_t at) { return little_endian(std::string_view(header).substr(at, 2)); };
      if (!header.starts_with("PK\x03\x04") || (number(6) & 1) != 0 || number(8) != 0 ||
          number(26) != name.size() || header.compare(kHeaderBytes, name.size(), name) != 0)
        refuse("the header of {} is not what the ZIP directory says", name);
      member.begin += header_bytes + static_cast<int64_t>(number(28));
      end = member.begin + member.bytes;
      if (end > begin_) refuse("{} lies outside the file", name);
    }
  }

  const InputFile& file_;
  uint64_t count_ = 0;
  int64_t begin_ = 0, end_ = 0;  // range of the directory
};

}  // namespace

std::vector<ZipMember> read_zip_directory(const InputFile& file) {
  return ZipReader(file).members();
}

void check_member(const InputFile& file, const ZipMember& member) {
  constexpr int64_t kPiece = int64_t{1} << 20;
  std::string piece;
  uint32_t crc = 0;
  for (int64_t at = 0; at < member.bytes; at += kPiece) {
    piece.resize(static_cast<size_t>(std::min(kPiece, member.bytes - at)));
    file.read_at(member.begin + at, piece.data(), std::ssize(piece));
    crc = crc32(piece, crc);
  }
  if (crc != member.crc)
    throw Error(ExitCode::kInputData,
                fmt::format("{}: {} is damaged: its CRC-32 is {:08x}, {:08x} was written",
                            file.path().string(), in_one_line(member.name), crc, member.crc),
                "take the weights from their source again; if they were saved with set_crc32_options(False), "
                "save them once more without");
}

}  // namespace ripstop
