// ZIP archives with uncompressed members, as torch.save writes them: where the members lie.
// Source: PKWARE's APPNOTE.TXT, 4.3 and 4.5.3 (zip64).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/file.h"

namespace ripstop {

/// The unsigned little-endian number in `bytes`, which has at most 8 bytes.
inline uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i)
    value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return value;
}

struct ZipMember {
  std::string name;
  size_t file = 0;    ///< index of the archive, if a model has several
  int64_t begin = 0;  ///< offset of the first byte in the archive
  int64_t bytes = 0;
  uint32_t crc = 0;  ///< the CRC-32 that the archive states
};

/// The members of the archive `file`, in order of their offsets. Reads only the central directory and the
/// members' headers. Throws Error(kInputData), with file and fault:
/// - if the directory is damaged, does not end the file, or is larger than 32 MiB;
/// - if a member is compressed or encrypted, lies outside the file, or shares bytes with another member;
/// - if two members have one name, or a name leaves the archive ("../x", "/x").
std::vector<ZipMember> read_zip_directory(const InputFile& file);

/// Throws Error(kInputData) unless the bytes of `member` have its CRC-32. Reads all these bytes, through a
/// buffer of 1 MiB.
void check_member(const InputFile& file, const ZipMember& member);

}  // namespace ripstop
