#include "bench/fleet/network.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "base/files/unique_fd.h"
#include "bench/fleet/process.h"

namespace weightcast::bench {
namespace {

constexpr std::uint16_t kPort = 7070;
// More than one train of segments (64 KiB), which a smaller bucket would have to cut up, at a cost that no network
// card asks for.
constexpr std::uint64_t kBucketBytes = 96 * kKiB;
// How long a packet may wait in the bucket's queue: what a home router has, and enough for one TCP window.
constexpr int kQueueMs = 50;

class LoopbackNetwork final : public Network {
 public:
  explicit LoopbackNetwork(std::vector<LinkRates> rates) : rates_(std::move(rates)) {}

  bool keeps_rates() const override { return false; }
  Endpoint endpoint(NodeIndex) const override { return {"127.0.0.1", 0}; }
  int namespace_fd(NodeIndex) const override { return -1; }
  LinkRates rates(NodeIndex node) const override { return rates_.at(node); }
  Result<std::uint64_t> bytes_sent(NodeIndex) override { return unsupported("interface counters"); }
  Status set_rates(NodeIndex, const LinkRates&) override { return unsupported("changing a host's rate"); }
  Status set_connected(NodeIndex, bool) override { return unsupported("cutting a host off"); }

 private:
  static Error unsupported(std::string_view what) {
    return fail(Errc::kUnsupported, Op::kConfigure, fmt::format("{}: needs hosts of their own; use --netns", what));
  }
  std::vector<LinkRates> rates_;
};

/// A thread's network namespace is the thread's alone, so what enters one is a thread that ends.
Status in_thread(const std::function<Status()>& body) {
  Status status;
  std::thread([&] { status = body(); }).join();
  return status;
}

Result<UniqueFd> make_namespace() {
  UniqueFd made;
  WC_TRY(in_thread([&]() -> Status {
    if (::unshare(CLONE_NEWNET) != 0) {
      if (errno != EPERM) return fail_errno(errno, Op::kConfigure, "a network namespace");
      return fail(Errc::kNotAllowed, Op::kConfigure, "--netns: network namespaces need root; run it with sudo");
    }
    made = UniqueFd(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    return made.get() >= 0 ? Status{} : Status{fail_errno(errno, Op::kOpen, "/proc/thread-self/ns/net")};
  }));
  return made;
}

class NamespaceNetwork final : public Network {
 public:
  explicit NamespaceNetwork(std::vector<LinkRates> rates) : rates_(std::move(rates)) {}

  Status build() {
    WC_ASSIGN(bridge_, make_namespace());
    std::string links = "link set lo up\nlink add bridge0 type bridge stp_state 0\nlink set bridge0 up\n";
    for (NodeIndex node = 0; node < rates_.size(); ++node) {
      WC_ASSIGN(UniqueFd host, make_namespace());
      links += fmt::format("link add port{0} type veth peer name eth0 netns /proc/{1}/fd/{2}\n", node, ::getpid(),
                           host.get());
      links += fmt::format("link set port{0} master bridge0\nlink set port{0} up\n", node);
      hosts_.push_back(std::move(host));
    }
    WC_TRY(run_tool({"ip", "-batch", "-"}, links, bridge_.get()));
    for (NodeIndex node = 0; node < rates_.size(); ++node) {
      WC_TRY(run_tool({"ip", "-batch", "-"},
                      fmt::format("link set lo up\naddr add {}/16 dev eth0\nlink set eth0 up\n", endpoint(node).host),
                      hosts_[node].get()));
      WC_TRY(set_rates(node, rates_[node]));
    }
    return {};
  }

  bool keeps_rates() const override { return true; }
  Endpoint endpoint(NodeIndex node) const override {
    return {fmt::format("10.77.{}.{}", (node + 1) / 250, (node + 1) % 250 + 1), kPort};
  }
  int namespace_fd(NodeIndex node) const override { return hosts_.at(node).get(); }
  LinkRates rates(NodeIndex node) const override { return rates_.at(node); }

  Result<std::uint64_t> bytes_sent(NodeIndex node) override {
    std::optional<std::uint64_t> sent;
    WC_TRY(on_host(node, [&]() -> Status {
      std::ifstream table("/proc/thread-self/net/dev");
      for (std::string line; std::getline(table, line);) {
        const std::size_t colon = line.find("eth0:");
        if (colon == std::string::npos) continue;
        std::istringstream fields(line.substr(colon + 5));
        std::uint64_t value = 0;
        for (int field = 0; field < 9; ++field) fields >> value;  // eight of receiving, then bytes sent
        sent = value;
      }
      return {};
    }));
    if (!sent) return fail(Errc::kIo, Op::kRead, "/proc/net/dev: no eth0");
    return *sent;
  }

  Status set_rates(NodeIndex node, const LinkRates& rates) override {
    WC_TRY(set_bucket(hosts_.at(node).get(), "eth0", rates.uplink));
    WC_TRY(set_bucket(bridge_.get(), fmt::format("port{}", node), rates.downlink));
    rates_.at(node) = rates;
    return {};
  }

  Status set_connected(NodeIndex node, bool connected) override {
    return run_tool({"ip", "link", "set", fmt::format("port{}", node), connected ? "up" : "down"}, "", bridge_.get());
  }

 private:
  static Status set_bucket(int namespace_fd, const std::string& device, Rate rate) {
    if (!rate.limited()) {
      // There is none to delete on a new device; noqueue is what it has then.
      return run_tool({"tc", "qdisc", "replace", "dev", device, "root", "noqueue"}, "", namespace_fd);
    }
    return run_tool(
        {"tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", fmt::format("{:.0f}bit", rate.bits_per_s()),
         "burst", std::to_string(kBucketBytes), "latency", fmt::format("{}ms", kQueueMs)},
        "", namespace_fd);
  }

  std::vector<LinkRates> rates_;
  UniqueFd bridge_;
  std::vector<UniqueFd> hosts_;
};

}  // namespace

Status Network::on_host(NodeIndex node, const std::function<Status()>& body) const {
  const int fd = namespace_fd(node);
  if (fd < 0) return body();
  return in_thread([&]() -> Status {
    if (::setns(fd, CLONE_NEWNET) != 0) return fail_errno(errno, Op::kConfigure, "a host's network namespace");
    return body();
  });
}

std::unique_ptr<Network> make_loopback_network(std::vector<LinkRates> rates) {
  return std::make_unique<LoopbackNetwork>(std::move(rates));
}

Result<std::unique_ptr<Network>> make_namespace_network(std::vector<LinkRates> rates) {
  auto network = std::make_unique<NamespaceNetwork>(std::move(rates));
  WC_TRY(network->build());
  return Result<std::unique_ptr<Network>>(std::move(network));
}

}  // namespace weightcast::bench
