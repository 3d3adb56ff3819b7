#include "transport/security/owner_only_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/files/posix_file_system.h"

namespace weightcast {
namespace {

constexpr std::size_t kFileBytesMax = 64 * kKiB;

Status check_owner_only(const std::filesystem::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return fail_errno(errno, Op::kOpen, path.native());
  const auto refuse = [&](std::string why) { return fail(Errc::kNotAllowed, Op::kOpen, path.native() + why); };
  if (!S_ISREG(info.st_mode)) return refuse(": not a file");
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return refuse(
        fmt::format(": it belongs to user {}, and this process is user {}; chown it", info.st_uid, ::geteuid()));
  }
  const mode_t allowed = info.st_uid == 0 && ::geteuid() != 0 ? S_IRWXU | S_IRGRP : S_IRWXU;
  if ((info.st_mode & (S_IRWXU | S_IRWXG | S_IRWXO) & ~allowed) == 0) return {};
  return refuse(fmt::format(": others may use it (mode {:04o}), and it holds a secret; chmod 600 {}",
                            info.st_mode & 07777, path.native()));
}

}  // namespace

void hide_memory() { ::prctl(PR_SET_DUMPABLE, 0); }

Secret::~Secret() { OPENSSL_cleanse(text_.data(), text_.size()); }

bool Secret::matches(std::string_view given) const {
  return given.size() == text_.size() && CRYPTO_memcmp(given.data(), text_.data(), text_.size()) == 0;
}

Result<Secret> read_owner_only(const std::filesystem::path& path) {
  WC_TRY(check_owner_only(path));
  PosixFileSystem files;
  WC_ASSIGN(std::string text, read_file(files, path, kFileBytesMax));
  return Secret(std::move(text));
}

Status write_owner_only(const std::filesystem::path& path, std::string_view text) {
  PosixFileSystem files;
  std::filesystem::path fresh = path;
  fresh += ".tmp";
  WC_TRY(remove_if_there(files, fresh));  // of a process that died, perhaps with another mode
  {
    WC_ASSIGN(const std::unique_ptr<File> file,
              files.open(fresh, {.write = true, .create = Create::kNew, .follow_links = false, .permissions = 0600}));
    Status written = write_fully(*file, 0, std::as_bytes(std::span(text)), fresh.native());
    if (written.has_value()) written = file->sync_data();
    if (!written.has_value()) {
      static_cast<void>(remove_if_there(files, fresh));
      return written;
    }
  }
  WC_TRY(files.rename(fresh, path));
  return sync_directory(files, path.parent_path());
}

}  // namespace weightcast
