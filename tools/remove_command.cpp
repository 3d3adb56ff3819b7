#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/files/posix_file_system.h"
#include "base/files/unique_fd.h"
#include "base/text.h"
#include "base/units.h"
#include "tools/command.h"
#include "transport/io/store/store_layout.h"
#include "transport/node/memory_directories.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

// A daemon says goodbye for a second, and a disk that hangs ends it some seconds later.
constexpr auto kEndLimit = std::chrono::seconds(20);
constexpr auto kEndInterval = std::chrono::milliseconds(50);
// All that a node makes in its state directory (ARCHITECTURE.md), but for aside/ and the lock, which goes last.
constexpr std::array kNames{"api.sock",   "incoming", "patches",      "versions", "records", "current", "accepted",
                            "peers.json", "history",  "http_address", "run",      "role",    "trash",   "revoked.pem",
                            "spare",      "undo",     "anchors",      "arriving", "memory"};

struct RemoveFlags {
  std::string state, memory = "/dev/shm";
};

/// The process that answers on the node's socket, or else the one that its lock names; 0: none that can be seen here.
pid_t process_of(FileSystem& files, const StoreLayout& layout) {
  const std::string path = layout.directory() / "api.sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ucred peer{};
  socklen_t size = sizeof peer;
  if (path.size() < sizeof address.sun_path && fd.valid() &&
      ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0) {
    return peer.pid;
  }
  const std::string text = read_file(files, layout.lock(), 32).value_or("");
  return parse_number<pid_t>(std::string_view(text).substr(0, text.find('\n'))).value_or(0);
}

/// Ends the daemon of that directory, if one runs, and takes its lock.
Result<std::unique_ptr<File>> end_and_lock(FileSystem& files, const StoreLayout& layout) {
  Result<std::unique_ptr<File>> lock = layout.acquire();
  if (lock.has_value() || lock.error().code != Errc::kBusy) return lock;
  const pid_t process = process_of(files, layout);
  if (process <= 0 || ::kill(process, SIGTERM) != 0) return lock;
  const auto deadline = std::chrono::steady_clock::now() + kEndLimit;
  while (!lock.has_value() && lock.error().code == Errc::kBusy) {
    if (std::chrono::steady_clock::now() >= deadline) {
      return fail(Errc::kTimedOut, Op::kLock,
                  fmt::format("{}: process {} does not end; 'kill -9 {}', then try again", layout.directory().native(),
                              process, process));
    }
    std::this_thread::sleep_for(kEndInterval);
    lock = layout.acquire();
  }
  if (lock.has_value()) fmt::print("process {} has ended\n", process);
  return lock;
}

Status remove_memory(const fs::path& path, bool& found) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) return {};
  const std::uint64_t bytes = bytes_in_memory(path);
  WC_TRY(remove_memory_directory(path));
  fmt::print("removed {}, with {}\n", path.native(), format_bytes(bytes));
  found = true;
  return {};
}

/// Of another user's node this one would leave what lies in memory.
Status check_owner(const StoreLayout& layout) {
  struct stat info {};
  if (::stat(layout.lock().c_str(), &info) != 0 || info.st_uid == ::geteuid()) return {};
  return fail(
      Errc::kNotAllowed, Op::kOpen,
      fmt::format("{}: the node is of user {}; run this as that user: sudo -u '#{}' weightcast remove --state {}",
                  layout.directory().native(), info.st_uid, info.st_uid, layout.directory().native()));
}

bool is_state_directory(FileSystem& files, const StoreLayout& layout) {
  return exists(files, layout.lock()) &&
         (exists(files, layout.directory() / "role") || exists(files, layout.records()));
}

/// What a node has made there; with the directory, unless somebody else keeps something in it.
Status remove_contents(FileSystem& files, const StoreLayout& layout) {
  const fs::path& directory = layout.directory();
  for (const char* name : kNames) {
    WC_TRY(remove_all(files, directory / name));
    WC_TRY(remove_all(files, directory / (std::string(name) + ".tmp")));
  }
  std::error_code ignored;
  fs::remove(layout.aside(), ignored);  // if it is empty
  WC_TRY(remove_if_there(files, layout.lock()));
  WC_ASSIGN(const std::vector<std::string> left, files.list(directory));
  if (left.empty() && files.remove_directory(directory).has_value()) {
    fmt::print("removed {}\n", directory.native());
    return {};
  }
  fmt::print("removed what the node had in {}\n", directory.native());
  for (const std::string& name : left) {
    fmt::print("{} stays: it is not the node's\n", printable((directory / name).native()));
  }
  return {};
}

Status run(const RemoveFlags& flags) {
  PosixFileSystem files;
  std::error_code ignored;
  const fs::path directory = fs::weakly_canonical(fs::absolute(flags.state), ignored);
  const StoreLayout layout(files, directory);
  bool found = false;
  const fs::path of_path = memory_directory_of(flags.memory, directory);
  if (files.info(directory).has_value()) {
    if (!is_state_directory(files, layout)) {
      return fail(Errc::kNotFound, Op::kOpen,
                  fmt::format("{}: no node has its state there, and nothing was removed", directory.native()));
    }
    WC_TRY(check_owner(layout));
    WC_ASSIGN(const std::unique_ptr<File> lock, end_and_lock(files, layout));
    const Result<fs::path> memory = StoreLayout::versions_root_of(files, directory);
    if (memory.has_value() && is_memory_directory(*memory)) WC_TRY(remove_memory(*memory, found));
    WC_TRY(remove_memory(of_path, found));
    return remove_contents(files, layout);
  }
  // Its memory outlives a state directory that somebody has deleted.
  WC_TRY(remove_memory(of_path, found));
  if (found) return {};
  return fail(Errc::kNotFound, Op::kOpen, fmt::format("{}: there is no such directory", directory.native()));
}

}  // namespace

void add_remove_command(const Commands& commands) {
  const auto [app, flags] = add_command<RemoveFlags>(
      commands, "remove", "End the node of a state directory, and remove all that it has on this host", run);
  add_state_option(*app, flags->state, "The node's state directory, whether or not its daemon runs");
  app->add_option("--memory-dir", flags->memory, "As the daemon's, where its state directory is gone already")
      ->capture_default_str();
  app->footer(
      "Versions, records and memory go; keys and configuration stay. What others have put into the directory stays, "
      "too, "
      "and is named. At the origin, 'weightcast forget NAME' forgets a worker.");
}

}  // namespace weightcast
