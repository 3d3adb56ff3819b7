#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "base/text.h"
#include "base/units.h"
#include "client/client.h"
#include "tools/command.h"

namespace weightcast {
namespace {

struct StatusFlags {
  std::string state;
  bool json = false;
  bool watch = false;
};

nlohmann::json to_json(const local::StatusReply& reply) {
  nlohmann::json nodes = nlohmann::json::array();
  for (const local::NodeStatus& n : reply.nodes()) {
    nodes.push_back({{"name", n.name()},
                     {"role", n.role()},
                     {"peer_id", n.peer_id()},
                     {"version", n.version()},
                     {"parent", n.parent()},
                     {"children", std::vector<std::string>(n.children().begin(), n.children().end())},
                     {"score", n.score()},
                     {"standing", n.standing()},
                     {"state", n.state()},
                     {"address", n.address()},
                     {"receiving_version", n.receiving_version()},
                     {"chunks_verified", n.chunks_verified()},
                     {"chunks_total", n.chunks_total()},
                     {"receive_bytes_per_s", n.receive_bytes_per_s()},
                     {"uplink_bytes_per_s", n.uplink_bytes_per_s()},
                     {"downlink_bytes_per_s", n.downlink_bytes_per_s()},
                     {"bytes_received", n.bytes_received()},
                     {"bytes_sent", n.bytes_sent()},
                     {"payload", n.payload()},
                     {"payload_bytes", n.payload_bytes()},
                     {"last_error", n.last_error()}});
  }
  return {{"latest_version", reply.latest_version()},
          {"model", reply.model_id()},
          {"topology", reply.topology()},
          {"predicted_s", reply.predicted_s()},
          {"nodes", std::move(nodes)}};
}

std::string describe(const local::NodeStatus& n) {
  std::string line = fmt::format("version {:<6} {:<10}", n.version(), n.state());
  if (n.chunks_total() > 0) {
    line += fmt::format(" {:>3.0f} % of {}", 100.0 * n.chunks_verified() / n.chunks_total(), n.receiving_version());
    if (n.receive_bytes_per_s() > 0) line += fmt::format(" at {}", format_rate(Rate{n.receive_bytes_per_s()}));
  }
  if (!n.payload().empty()) line += fmt::format("  {} {}", n.payload(), format_bytes(n.payload_bytes()));
  if (n.role() == "worker" && n.score() > 0) line += fmt::format("  score {:.2f} {}", n.score(), n.standing());
  if (!n.last_error().empty()) line += "  ! " + printable(n.last_error());
  return line;
}

/// The plan as a tree, each node below its parent. What belongs to no tree (its parent is unknown, or by two reports of
/// different moments they are each other's) stands at the end.
class Tree {
 public:
  explicit Tree(const local::StatusReply& reply) : reply_(reply), printed_(std::size_t(reply.nodes_size())) {
    for (int i = 0; i < reply.nodes_size(); ++i) index_of_.emplace(reply.nodes(i).name(), i);
  }

  std::string render() {
    std::set<std::string> children;
    for (const local::NodeStatus& n : reply_.nodes()) children.insert(n.children().begin(), n.children().end());
    for (int i = 0; i < reply_.nodes_size(); ++i) {
      if (!children.contains(reply_.nodes(i).name())) append(i);
    }
    for (int i = 0; i < reply_.nodes_size(); ++i) append(i);
    return std::move(out_);
  }

 private:
  /// A node and all below it. Not by recursion: a chain may have thousands.
  void append(int root) {
    std::vector<std::pair<int, int>> waiting = {{root, 0}};  // node, depth
    while (!waiting.empty()) {
      const auto [index, depth] = waiting.back();
      waiting.pop_back();
      if (printed_[std::size_t(index)]) continue;
      printed_[std::size_t(index)] = true;
      const local::NodeStatus& node = reply_.nodes(index);
      const std::string label =
          std::string(std::size_t(2 * std::min(depth, 12)), ' ') + (depth > 0 ? "> " : "") + printable(node.name());
      out_ += fmt::format("{:<36} {:<22} {}\n", label, printable(node.address()), describe(node));
      for (int i = node.children_size(); i-- > 0;) {
        const auto child = index_of_.find(node.children(i));
        if (child != index_of_.end()) waiting.emplace_back(child->second, depth + 1);
      }
    }
  }

  const local::StatusReply& reply_;
  std::unordered_map<std::string, int> index_of_;
  std::vector<bool> printed_;
  std::string out_;
};

std::string render(const local::StatusReply& reply) {
  std::string out = fmt::format("latest version {}", reply.latest_version());
  if (!reply.topology().empty()) out += fmt::format(", {} (predicted {:.2f} s)", reply.topology(), reply.predicted_s());
  return out + '\n' + Tree(reply).render();
}

Status run(const StatusFlags& flags) {
  WC_ASSIGN(Client client, Client::open(flags.state));
  for (;;) {
    WC_ASSIGN(const local::StatusReply reply, client.status());
    const std::string text = flags.json ? json_text(to_json(reply)) + "\n" : render(reply);
    if (flags.watch && !flags.json && ::isatty(STDOUT_FILENO) == 1) std::fputs("\x1b[H\x1b[2J", stdout);
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
    if (!flags.watch) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
  }
}

}  // namespace

void add_status_command(const Commands& commands) {
  auto flags = std::make_shared<StatusFlags>();
  CLI::App* app = commands.app.add_subcommand("status", "Show the nodes: chains, progress, rates, versions");
  app->add_option("--state", flags->state, "The daemon's state directory")->required();
  app->add_flag("--json", flags->json, "JSON; with --watch one object a line");
  app->add_flag("--watch", flags->watch, "Again four times a second, until interrupted");
  app->callback([flags, selected = &commands.selected] { *selected = [flags] { return run(*flags); }; });
}

void add_versions_command(const Commands& commands) {
  auto flags = std::make_shared<StatusFlags>();
  CLI::App* app = commands.app.add_subcommand("versions", "List the versions on this host");
  app->add_option("--state", flags->state, "The daemon's state directory")->required();
  app->add_flag("--json", flags->json, "JSON");
  app->callback([flags, selected = &commands.selected] {
    *selected = [flags]() -> Status {
      WC_ASSIGN(Client client, Client::open(flags->state));
      WC_ASSIGN(const local::VersionsReply reply, client.versions());
      nlohmann::json list = nlohmann::json::array();
      for (const local::VersionEntry& v : reply.versions()) {
        if (!flags->json) {
          fmt::print("{} version {:<8} {:<6} {:>12} {} {}{}\n", v.current() ? '*' : ' ', v.version(), v.kind(),
                     format_bytes(v.snapshot_bytes()), v.digest(), printable(v.path()),
                     v.durable() ? "" : " (syncing)");
        }
        list.push_back({{"version", v.version()},
                        {"kind", v.kind()},
                        {"snapshot_bytes", v.snapshot_bytes()},
                        {"payload_bytes", v.payload_bytes()},
                        {"digest", v.digest()},
                        {"path", v.path()},
                        {"current", v.current()},
                        {"durable", v.durable()},
                        {"published_unix_ms", v.published_unix_ms()}});
      }
      if (flags->json) fmt::print("{}\n", json_text({{"versions", list}}));
      return {};
    };
  });
}

}  // namespace weightcast
