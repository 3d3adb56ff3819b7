#include "bench/codec/zipnn_rival.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/files/posix_file_system.h"

namespace weightcast::bench {
namespace {

// zipnn.sh: there is no zipnn.
constexpr int kExitNotFound = 3;

/// A file of our own, removed in the end.
class ScratchFile {
 public:
  static Result<ScratchFile> write(Bytes bytes) {
    const char* folder = std::getenv("TMPDIR");
    ScratchFile file;
    file.path_ = fmt::format("{}/weightcast-zipnn-XXXXXX", folder != nullptr ? folder : "/var/tmp");
    const int fd = ::mkstemp(file.path_.data());
    if (fd < 0) return fail_errno(errno, Op::kOpen, std::exchange(file.path_, {}));
    WC_TRY(write_fully(*adopt_file(fd, file.path_), 0, bytes, file.path_));
    return file;
  }
  ScratchFile(ScratchFile&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchFile& operator=(ScratchFile&&) = delete;
  ~ScratchFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  ScratchFile() = default;
  std::string path_;
};

std::string shell_word(std::string_view word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

Result<ZipnnCost> run_zipnn(CellKind kind, Bytes cells, unsigned repetitions) {
  constexpr std::array kKnown{CellKind::kBf16, CellKind::kF16, CellKind::kF32, CellKind::kF8E4M3};
  if (std::ranges::find(kKnown, kind) == kKnown.end()) {
    return fail(Errc::kUnsupported, Op::kEncode, "zipnn: it does not know such cells");
  }
  WC_ASSIGN(const ScratchFile file, ScratchFile::write(cells));
  const std::string command =
      fmt::format("{} {} {} {}", shell_word(WEIGHTCAST_ZIPNN), shell_word(file.path()), to_string(kind), repetitions);
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return fail_errno(errno, Op::kOpen, WEIGHTCAST_ZIPNN);
  std::string output;
  std::array<char, 4096> buffer;
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe))
    output.append(buffer.data(), count);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kExitNotFound) {
    return fail(Errc::kNotFound, Op::kOpen, "zipnn: it is not installed, and cannot be; see above");
  }
  const auto json = nlohmann::json::parse(output, nullptr, false);
  if (status != 0 || !json.is_object()) {
    return fail(Errc::kCorrupt, Op::kVerify, fmt::format("{} failed; see above", command));
  }
  return ZipnnCost{json.value("bytes", std::uint64_t{0}), json.value("pack_cpu_s", 0.0),
                   json.value("unpack_cpu_s", 0.0)};
}

}  // namespace weightcast::bench
