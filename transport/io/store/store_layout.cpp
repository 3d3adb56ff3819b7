#include "transport/io/store/store_layout.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>

#include "transport/io/log.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kVersionDigits = 12;
constexpr std::string_view kPackedSuffix = "-packed";
constexpr unsigned kNamesTried = 1'000'000;

std::string name_of(PayloadId payload) {
  const std::string version = fmt::format("{:0{}}", payload.version.value, kVersionDigits);
  if (payload.is_packed()) return version + std::string(kPackedSuffix);
  return payload.is_patch() ? fmt::format("{}-{:0{}}", version, payload.base.value, kVersionDigits) : version;
}

std::optional<Version> parse_version(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value == 0) return std::nullopt;
  return Version{value};
}

Error refused(int error_number, Op op, const fs::path& path) {
  if (error_number != EACCES && error_number != EPERM && error_number != EROFS) {
    return fail_errno(error_number, op, path.native());
  }
  return fail(Errc::kNotAllowed, op,
              fmt::format("{}: {}; give this user the right to write there, or choose another directory with --state",
                          path.native(), std::strerror(error_number)));
}

/// A name in `folder` that is not taken yet.
fs::path free_name(const fs::path& folder, const std::string& stem) {
  std::error_code ignored;
  for (unsigned i = 0; i < kNamesTried; ++i) {
    fs::path candidate = folder / fmt::format("{}.{}", stem, i);
    if (!fs::exists(fs::symlink_status(candidate, ignored))) return candidate;
  }
  return folder / stem;
}

}  // namespace

fs::path StoreLayout::incoming(PayloadId payload) const { return incoming() / name_of(payload); }
fs::path StoreLayout::complete(Version version) const { return versions() / name_of(version); }
fs::path StoreLayout::patch(PayloadId payload) const { return patches() / name_of(payload); }
fs::path StoreLayout::record(PayloadId payload) const { return records() / name_of(payload); }
fs::path StoreLayout::undo(PayloadId payload) const { return undo() / name_of(payload); }

std::optional<PayloadId> StoreLayout::payload_of(std::string_view name) {
  const std::size_t dash = name.find('-');
  const auto version = parse_version(name.substr(0, dash));
  const auto base = dash == name.npos                    ? kNoVersion
                    : name.substr(dash) == kPackedSuffix ? kEmptyVersion
                                                         : parse_version(name.substr(dash + 1));
  if (!version || !base || name_of({*version, *base}) != name) return std::nullopt;
  return PayloadId{*version, *base};
}

Status StoreLayout::create() const {
  for (const fs::path& path :
       {directory_, incoming(), versions(), patches(), records(), trash(), spare(), undo(), aside()}) {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) return refused(error.value(), Op::kOpen, path);
    if (::access(path.c_str(), W_OK | X_OK) != 0) return refused(errno, Op::kOpen, path);
  }
  return {};
}

Result<File> StoreLayout::acquire() const {
  File file(::open(lock().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (file.fd() < 0) return refused(errno, Op::kLock, lock());
  if (::flock(file.fd(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return refused(errno, Op::kLock, lock());
    std::string pid(32, '\0');
    const ssize_t got = ::pread(file.fd(), pid.data(), pid.size(), 0);
    pid.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    while (!pid.empty() && pid.back() == '\n') pid.pop_back();
    return fail(Errc::kBusy, Op::kLock,
                fmt::format("{}: in use by process {}; stop it, or choose another directory with --state",
                            directory_.native(), pid.empty() ? "(unknown)" : pid));
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(file.fd(), 0) != 0) return refused(errno, Op::kLock, lock());
  WC_TRY(write_fully(file, 0, std::as_bytes(std::span(pid)), lock().native()));
  return file;
}

Status StoreLayout::switch_current(Version version) const {
  const fs::path temporary = directory_ / "current.tmp";
  WC_TRY(remove_file(temporary));
  const fs::path target = fs::path("versions") / name_of(version);  // relative, so that the directory may be moved
  if (::symlink(target.c_str(), temporary.c_str()) != 0) return fail_errno(errno, Op::kWrite, temporary.native());
  return rename_path(temporary, current());
}

std::optional<Version> StoreLayout::read_current() const {
  std::error_code error;
  const fs::path target = fs::read_symlink(current(), error);
  if (error || target.parent_path() != "versions") return std::nullopt;
  const std::optional<PayloadId> named = payload_of(target.filename().native());
  if (!named || named->is_patch()) return std::nullopt;
  return named->version;
}

Status StoreLayout::throw_away(const fs::path& path) const {
  Status moved = rename_path(path, free_name(trash(), path.filename()));
  if (!moved.has_value() && moved.error().code == Errc::kNotFound) return {};
  return moved;
}

void StoreLayout::empty_trash() const {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(trash(), error)) {
    std::error_code not_removed;
    fs::remove_all(entry.path(), not_removed);
    if (not_removed) log_warning("store: cannot remove {}: {}", entry.path().native(), not_removed.message());
  }
}

Status StoreLayout::make_spare(const fs::path& path) const {
  drop_spare();
  return rename_path(path, spare() / path.filename());
}

void StoreLayout::drop_spare() const {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(spare(), error)) {
    const Status moved = throw_away(entry.path());
    if (!moved.has_value()) log_warning("store: {}", moved.error().message());
  }
}

void StoreLayout::move_aside(const fs::path& path) const {
  const fs::path to = free_name(aside(), path.filename());
  const Status moved = rename_path(path, to);
  if (moved.has_value()) {
    log_warning("store: {} is not ours; moved to {}", path.native(), to.native());
  } else {
    log_warning("store: {} is not ours and cannot be moved away: {}", path.native(), moved.error().detail);
  }
}

}  // namespace weightcast
