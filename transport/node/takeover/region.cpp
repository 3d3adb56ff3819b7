#include "transport/node/takeover/region.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/posix_file_system.h"
#include "proto/limits.h"

namespace weightcast {
namespace {

constexpr const char* kName = "the region";  // as errors call it

}  // namespace

Result<FileRef> adopt_region(UniqueFd descriptor) {
  const auto refuse = [](Errc code, std::string_view why) {
    return fail(code, Op::kPublish, fmt::format("{}: {}; send what wc_begin() made", kName, why));
  };
  if (!descriptor.valid()) return refuse(Errc::kInvalidArgument, "no descriptor came with the request");
  // Only memory can be sealed. The seals come first: without them the size is not to be relied on.
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = ::fcntl(descriptor.get(), F_GET_SEALS);
  if (seals < 0) return refuse(Errc::kInvalidArgument, "the descriptor is not a memfd's");
  if ((seals & kSeals) != kSeals) return refuse(Errc::kInvalidArgument, "its size is not sealed");
  if ((::fcntl(descriptor.get(), F_GETFL) & O_ACCMODE) == O_WRONLY) {
    return refuse(Errc::kInvalidArgument, "the descriptor is not open for reading");
  }
  struct stat info {};
  if (::fstat(descriptor.get(), &info) != 0) return fail_errno(errno, Op::kPublish, kName);
  if (!S_ISREG(info.st_mode)) return refuse(Errc::kInvalidArgument, "the descriptor is not a memfd's");
  if (info.st_size <= 0) return refuse(Errc::kInvalidArgument, "it is empty");
  if (static_cast<std::uint64_t>(info.st_size) > kPayloadBytesMax) {
    return refuse(Errc::kTooLarge, fmt::format("{} bytes exceed the limit of {}", info.st_size, kPayloadBytesMax));
  }
  return FileRef(adopt_file(descriptor.release(), kName));
}

Result<FileRef> adopt_output(UniqueFd descriptor) {
  const auto refuse = [](std::string_view why) {
    return fail(Errc::kInvalidArgument, Op::kRead, fmt::format("the memory for the changes: {}", why));
  };
  if (!descriptor.valid()) return refuse("no descriptor came with the request");
  // Only memory can be sealed: a write to anything else might block.
  const int seals = ::fcntl(descriptor.get(), F_GET_SEALS);
  if (seals < 0) return refuse("the descriptor is not a memfd's");
  if ((seals & ~F_SEAL_SEAL) != 0) return refuse("it is sealed");
  if ((::fcntl(descriptor.get(), F_GETFL) & O_ACCMODE) != O_RDWR) return refuse("it is not open for writing");
  struct stat info {};
  if (::fstat(descriptor.get(), &info) != 0) return fail_errno(errno, Op::kRead, "the memory for the changes");
  if (!S_ISREG(info.st_mode) || info.st_size != 0) return refuse("it is not empty");
  return FileRef(adopt_file(descriptor.release(), "the memory for the changes"));
}

}  // namespace weightcast
