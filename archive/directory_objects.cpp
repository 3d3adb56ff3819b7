#include "archive/directory_objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace weightcast {
namespace {

constexpr std::size_t kPieceBytes = kMiB;

}  // namespace

Result<std::optional<std::uint64_t>> DirectoryObjects::size_of(const std::string& name) {
  const Result<FileInfo> info = files_.info(directory_ / name);
  if (info.has_value()) return std::optional(info->size_bytes);
  if (info.error().code == Errc::kNotFound) return std::optional<std::uint64_t>();
  return info.error();
}

Result<std::string> DirectoryObjects::read(const std::string& name, std::uint64_t bytes_max) {
  return read_file(files_, directory_ / name, bytes_max);
}

Status DirectoryObjects::read_range(const std::string& name, std::uint64_t object_bytes, std::uint64_t offset,
                                    std::uint64_t size, const Sink& sink) {
  WC_ASSIGN(const std::unique_ptr<File> file, files_.open(directory_ / name, {}));
  WC_ASSIGN(const FileInfo info, file->info());
  if (info.size_bytes != object_bytes) {
    return fail(
        Errc::kCorrupt, Op::kRead,
        fmt::format("{}: it has {} bytes, and the index says {}", place_of(name), info.size_bytes, object_bytes));
  }
  std::vector<std::byte> buffer(std::min<std::uint64_t>(size, kPieceBytes));
  for (std::uint64_t done = 0; done < size;) {
    const MutableBytes piece = MutableBytes(buffer).first(std::min<std::uint64_t>(buffer.size(), size - done));
    WC_TRY(read_fully(*file, offset + done, piece, place_of(name)));
    WC_TRY(sink(piece));
    done += piece.size();
  }
  return {};
}

Status DirectoryObjects::write(const std::string& name, Bytes bytes) {
  WC_TRY(make_directories(files_, directory_));
  return replace_file(files_, directory_ / name, chars_of(bytes), Synced::kBytesAndName);
}

}  // namespace weightcast
