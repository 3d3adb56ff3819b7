#include "transport/io/store/files/readable.h"

#include <fmt/format.h>

namespace weightcast {

bool is_proven_wrong(const Error& error) {
  switch (error.code) {
    case Errc::kNotFound:
    case Errc::kCorrupt:
    case Errc::kTooLarge:
    case Errc::kInvalidArgument: return true;
    default: return false;
  }
}

Error cannot_look_at(const std::filesystem::path& path, Error error) {
  // That one says itself what to do.
  if (error.code == Errc::kUnsupported) return error;
  error.detail += fmt::format(
      "; {} stays as it is: start again when the disk works, or remove it by hand to have the version fetched anew",
      path.native());
  return error;
}

Result<std::vector<std::string>> names_in(FileSystem& files, const std::filesystem::path& path) {
  Result<std::vector<std::string>> names = files.list(path);
  if (!names.has_value() && names.error().code == Errc::kNotFound) return std::vector<std::string>();
  return names;
}

Result<bool> is_there(FileSystem& files, const std::filesystem::path& path) {
  const Result<FileInfo> info = files.link_info(path);
  if (info.has_value()) return true;
  if (info.error().code == Errc::kNotFound) return false;
  return info.error();
}

}  // namespace weightcast
