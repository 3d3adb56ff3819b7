#include "transport/node/daemon.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "base/heap.h"
#include "transport/io/log.h"
#include "transport/node/node.h"

namespace weightcast {
namespace {

// How long peers have to take our goodbye.
constexpr Duration kGoodbye = std::chrono::milliseconds(1200);

// A connection takes a descriptor, and the usual soft limit of 1024 would end a fleet at some 1000 workers.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
    log_warning("cannot raise the limit of open files: {}", std::strerror(errno));
}

}  // namespace

Status validate(const DaemonConfig& config) {
  const auto refuse = [](Errc code, std::string why) -> Status { return fail(code, Op::kConfigure, std::move(why)); };
  if (config.state.empty()) return refuse(Errc::kInvalidArgument, "--state: a directory is needed");
  if (config.name.empty() || config.name.size() > kNameBytesMax) {
    return refuse(Errc::kInvalidArgument, "--name: empty or longer than 255 bytes");
  }
  if (config.role == Role::kWorker && !config.origin) {
    return refuse(Errc::kInvalidArgument, "--origin HOST:PORT: a worker needs to know its origin");
  }
  if (config.role == Role::kOrigin && config.origin) {
    return refuse(Errc::kInvalidArgument, "--origin: an origin has none; did you mean --role worker?");
  }
  if (config.role == Role::kOrigin && config.single_copy) {
    return refuse(Errc::kInvalidArgument, "--single-copy: an origin needs the version before to make patches from");
  }
  if (config.versions_kept < 1) return refuse(Errc::kInvalidArgument, "--keep: at least 1");
  if (!config.insecure) {
    return refuse(Errc::kNotAllowed,
                  "connections of this release are not encrypted; say --insecure if that is acceptable here");
  }
  if (!config.listen.is_loopback() && !config.insecure_beyond_loopback) {
    return refuse(Errc::kNotAllowed,
                  fmt::format("--listen {}: plain connections beyond loopback can be read and changed by others; say "
                              "--insecure-beyond-loopback too if the network is trusted",
                              config.listen.to_string()));
  }
  return {};
}

Status run_daemon(DaemonConfig config) {
  WC_TRY(validate(config));
  set_up_heap();
  raise_descriptor_limit();
  WC_ASSIGN(const std::unique_ptr<Node> node, open_node(config));
  UvLoop& loop = node->loop();
  Timer goodbye(loop, [&] { loop.stop(); });
  bool stopping = false;
  loop.on_terminate([&](int signal) {
    if (stopping) return loop.stop();
    stopping = true;
    log_info("signal {}: stopping", signal);
    node->stop("it was stopped");
    goodbye.arm(loop.now() + kGoodbye);
  });
  loop.run();
  return {};
}

}  // namespace weightcast
