#include "base/files/file_users.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <system_error>
#include <unordered_map>
#include <vector>

#include "base/text.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kNamedMax = 4;

struct Wanted {
  dev_t device = 0;
  std::string name;
};
using WantedFiles = std::unordered_map<ino_t, Wanted>;

WantedFiles files_of(const std::vector<fs::path>& paths) {
  WantedFiles files;
  for (const fs::path& path : paths) {
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0) files[info.st_ino] = {info.st_dev, path.filename().native()};
  }
  return files;
}

bool has_open(const fs::path& process, const WantedFiles& files) {
  std::error_code error;
  const fs::directory_iterator descriptors(process / "fd", error);
  return std::any_of(begin(descriptors), end(descriptors), [&](const fs::directory_entry& descriptor) {
    struct stat info {};
    if (::stat(descriptor.path().c_str(), &info) != 0) return false;
    const auto found = files.find(info.st_ino);
    return found != files.end() && found->second.device == info.st_dev;
  });
}

bool has_mapped(const fs::path& process, const WantedFiles& files) {
  std::ifstream maps(process / "maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::string range, access, offset, device;
    ino_t number = 0;
    if (!(fields >> range >> access >> offset >> device >> number)) continue;
    // Some file systems give another device here than stat() does; the name tells as well.
    const auto found = files.find(number);
    if (found != files.end() && line.ends_with("/" + found->second.name)) return true;
  }
  return false;
}

std::string name_of(const fs::path& process) {
  std::string name;
  std::getline(std::ifstream(process / "comm"), name);
  return fmt::format("{} (process {})", printable(name), process.filename().native());
}

}  // namespace

std::string users_in_proc(const std::vector<fs::path>& paths) {
  const WantedFiles files = files_of(paths);
  std::vector<std::string> names;
  std::size_t found = 0;
  std::error_code error;
  for (const fs::directory_entry& process : fs::directory_iterator("/proc", error)) {
    const std::string id = process.path().filename();
    if (id.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!has_open(process.path(), files) && !has_mapped(process.path(), files)) continue;
    if (++found <= kNamedMax) names.push_back(name_of(process.path()));
  }
  std::string all = fmt::format("{}", fmt::join(names, ", "));
  if (found > kNamedMax) all += fmt::format(" and {} more", found - kNamedMax);
  return all;
}

}  // namespace weightcast
