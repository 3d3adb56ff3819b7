#include "tools/doctor/host.h"

#include <fmt/format.h>
#include <linux/io_uring.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>

#include "base/files/descriptors.h"
#include "base/files/unique_fd.h"
#include "transport/security/node_keys.h"

namespace weightcast {
namespace {

// A connection takes one, so 4096 are 1,000 workers with room for files.
constexpr rlim_t kDescriptorsWanted = 4096;

}  // namespace

Finding check_descriptors() {
  static_cast<void>(raise_descriptor_limit());  // a node does so, too
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return ok("descriptors", "not known");
  const std::string what = fmt::format("a node may have {} open here", limit.rlim_cur);
  if (limit.rlim_cur >= kDescriptorsWanted) return ok("descriptors", what);
  return fault(
      "descriptors", fmt::format("{}, and each connection and file takes one", what),
      "ulimit -Hn 65536 in the shell that starts it, LimitNOFILE=65536 in its unit, or --ulimit nofile=65536 of "
      "the container");
}

Finding check_io_uring() {
  io_uring_params parameters{};
  const UniqueFd ring(static_cast<int>(::syscall(SYS_io_uring_setup, 4, &parameters)));
  if (ring.valid()) return ok("io_uring", "the kernel has it");
  const int error = errno;
  return warning("io_uring",
                 fmt::format("the kernel refuses a ring ({}); threads do the disk's work, for more processor time",
                             std::strerror(error)),
                 error == EPERM ? "sysctl -w kernel.io_uring_disabled=0, or let io_uring_setup through the container's "
                                  "seccomp profile"
                                : "a kernel of 5.10 or newer; nothing is lost without it but time");
}

Finding check_bbr() {
  std::ifstream file("/proc/sys/net/ipv4/tcp_available_congestion_control");
  std::string names, name;
  std::getline(file, names);
  for (std::istringstream all(names); all >> name;) {
    if (name == "bbr") return ok("bbr", "the kernel has it: --congestion bbr");
  }
  return warning("bbr",
                 fmt::format("the kernel has {} alone; over long links a relay may send at a third of its rate",
                             names.empty() ? "no list of congestion controls" : names),
                 "modprobe tcp_bbr, then --congestion bbr");
}

Finding check_clock() {
  timex state{};
  const int clock = ::adjtimex(&state);
  const std::time_t now = unix_now_s();
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  const std::string at = fmt::format("{:04}-{:02}-{:02} {:02}:{:02} UTC", utc.tm_year + 1900, utc.tm_mon + 1,
                                     utc.tm_mday, utc.tm_hour, utc.tm_min);
  if (clock < 0 || (clock != TIME_ERROR && (state.status & STA_UNSYNC) == 0)) return ok("clock", at);
  return warning("clock", fmt::format("it is {} here, and no time server keeps this clock; certificates end by it", at),
                 "timedatectl set-ntp true (in a container: on its host)");
}

Findings check_keys(const std::string& keys) {
  if (keys.empty()) return {};
  const auto read = read_node_keys(keys, unix_now_s());
  if (!read.has_value()) {
    const bool is_time = read.error().code == Errc::kTimedOut;
    return {fault("keys", read.error().detail,
                  is_time ? "date: set this host's clock if it is wrong, else weightcast keys issue NAME --renew"
                          : "weightcast keys issue NAME, and install -m 600 the file for the daemon's user")};
  }
  if (const auto soon = read->expiry_warning(unix_now_s())) {
    return {warning("keys", *soon, "weightcast keys issue NAME --renew")};
  }
  return {ok("keys",
             fmt::format("they are of {} {}", read->role() == Role::kOrigin ? "origin" : "worker", read->info.name))};
}

}  // namespace weightcast
