#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/units.h"
#include "client/attempt.h"
#include "security/node_keys.h"
#include "tools/command.h"

namespace weightcast {
namespace {

struct StatusFlags {
  std::string state;
  bool json = false;
  bool watch = false;
};

using nlohmann::json;

std::string text_of(const json& node, const char* key) { return node.at(key).get<std::string>(); }
double number_of(const json& node, const char* key) { return node.at(key).get<double>(); }
std::uint64_t count_of(const json& node, const char* key) { return node.at(key).get<std::uint64_t>(); }

std::string describe(const json& n) {
  std::string line = fmt::format("version {:<6} {:<10}", count_of(n, "version"), text_of(n, "state"));
  if (n.at("earlier_run").get<bool>()) line += " (of the run before)";
  if (const double total = number_of(n, "chunks_total"); total > 0) {
    line += fmt::format(" {:>3.0f} % of {}", 100.0 * number_of(n, "chunks_verified") / total,
                        count_of(n, "receiving_version"));
    const double rate = number_of(n, "receive_bytes_per_s");
    if (rate > 0) line += fmt::format(" at {}", format_rate(Rate{rate}));
  }
  if (const std::string payload = text_of(n, "payload"); !payload.empty()) {
    line += fmt::format("  {} {}", payload, format_bytes(count_of(n, "payload_bytes")));
  }
  if (const double score = number_of(n, "score"); text_of(n, "role") == "worker" && score > 0) {
    line += fmt::format("  score {:.2f} {}", score, text_of(n, "standing"));
  }
  const auto expires = static_cast<std::int64_t>(count_of(n, "keys_expire_unix_s"));
  if (expires != 0 && expires - unix_now_s() <= kExpiryWarning_s) line += "  ! its keys expire on " + date_of(expires);
  if (const std::string offence = text_of(n, "offence"); !offence.empty()) line += "  !! " + printable(offence);
  const auto complaints = count_of(n, "complaints"), complains = count_of(n, "complains");
  if (complaints > 0) line += fmt::format("  ! {} complain of it", complaints);
  if (complains > 0) line += fmt::format("  ! it complains of {}", complains);
  if (const std::string error = text_of(n, "last_error"); !error.empty()) line += "  ! " + printable(error);
  return line;
}

/// The plan as a tree, each node below its parent. What belongs to no tree (its parent is unknown, or by two reports of
/// different moments they are each other's) stands at the end.
class Tree {
 public:
  explicit Tree(const json& nodes) : nodes_(nodes), printed_(nodes.size()) {
    for (std::size_t i = 0; i < nodes.size(); ++i) index_of_.emplace(text_of(nodes[i], "name"), i);
  }

  std::string render() {
    std::set<std::string> children;
    for (const json& n : nodes_) {
      for (const json& child : n.at("children")) children.insert(child.get<std::string>());
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (!children.contains(text_of(nodes_[i], "name"))) append(i);
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i) append(i);
    return std::move(out_);
  }

 private:
  /// A node and all below it. Not by recursion: a chain may have thousands.
  void append(std::size_t root) {
    std::vector<std::pair<std::size_t, int>> waiting = {{root, 0}};  // node, depth
    while (!waiting.empty()) {
      const auto [index, depth] = waiting.back();
      waiting.pop_back();
      if (printed_[index]) continue;
      printed_[index] = true;
      const json& node = nodes_[index];
      const std::string label = std::string(std::size_t(2 * std::min(depth, 12)), ' ') + (depth > 0 ? "> " : "") +
                                printable(text_of(node, "name"));
      out_ += fmt::format("{:<36} {:<22} {}\n", label, printable(text_of(node, "address")), describe(node));
      const json& children = node.at("children");
      for (auto name = children.rbegin(); name != children.rend(); ++name) {
        const auto child = index_of_.find(name->get<std::string>());
        if (child != index_of_.end()) waiting.emplace_back(child->second, depth + 1);
      }
    }
  }

  const json& nodes_;
  std::unordered_map<std::string, std::size_t> index_of_;
  std::vector<bool> printed_;
  std::string out_;
};

/// A line for each node that another one cannot dial.
std::string render_unreached(const json& nodes) {
  std::string out;
  for (const json& node : nodes) {
    for (const json& other : node.at("cannot_reach")) {
      out += fmt::format("! {} cannot reach {} at {}: {}\n", printable(text_of(node, "name")),
                         printable(text_of(other, "name")), printable(text_of(other, "address")),
                         printable(text_of(other, "why")));
    }
  }
  return out;
}

std::string render(const json& status) {
  std::string out = fmt::format("latest version {}", count_of(status, "latest_version"));
  if (const std::string run = text_of(status, "run"); !run.empty()) out += fmt::format(", run {}", run);
  if (const std::string topology = text_of(status, "topology"); !topology.empty()) {
    out += fmt::format(", {} (predicted {:.2f} s)", topology, number_of(status, "predicted_s"));
  }
  return out + '\n' + Tree(status.at("nodes")).render() + render_unreached(status.at("nodes"));
}

void run_status(const StatusFlags& flags) {
  wc::Client client(flags.state);
  for (;;) {
    const std::string status = client.status();
    const std::string text = flags.json ? status + "\n" : render(json::parse(status));
    if (flags.watch && !flags.json && ::isatty(STDOUT_FILENO) == 1) std::fputs("\x1b[H\x1b[2J", stdout);
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
    if (!flags.watch) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
  }
}

void run_versions(const StatusFlags& flags) {
  const std::string text = wc::Client(flags.state).versions();
  if (flags.json) {
    fmt::print("{}\n", text);
    return;
  }
  const json reply = json::parse(text);  // by name: what a loop takes from a temporary's inside dangles
  for (const json& v : reply.at("versions")) {
    fmt::print("{} version {:<8} {:<6} {:>12} {} {}{}\n", v.at("current").get<bool>() ? '*' : ' ',
               count_of(v, "version"), text_of(v, "kind"), format_bytes(count_of(v, "snapshot_bytes")),
               text_of(v, "digest"), printable(text_of(v, "path")), v.at("durable").get<bool>() ? "" : " (syncing)");
  }
}

struct ReadyFlags {
  std::string state;
  bool has_version = false;
  double timeout_s = 60;
};

void run_ready(const ReadyFlags& flags) {
  wc::wait_until_ready(flags.state, std::chrono::milliseconds(std::llround(flags.timeout_s * 1000)), flags.has_version);
}

/// A command's function; what the library throws becomes the error that the program ends with.
std::function<Status()> command_of(void (*run)(const StatusFlags&), std::shared_ptr<StatusFlags> flags) {
  return [run, flags = std::move(flags)] { return attempt([&] { run(*flags); }); };
}

}  // namespace

void add_status_command(const Commands& commands) {
  auto flags = std::make_shared<StatusFlags>();
  CLI::App* app = commands.app.add_subcommand("status", "Show the nodes: chains, progress, rates, versions");
  add_state_option(*app, flags->state, "The daemon's state directory");
  app->add_flag("--json", flags->json, "JSON; with --watch one object a line");
  app->add_flag("--watch", flags->watch, "Again four times a second, until interrupted");
  app->callback([flags, selected = &commands.selected] { *selected = command_of(run_status, flags); });
}

void add_versions_command(const Commands& commands) {
  auto flags = std::make_shared<StatusFlags>();
  CLI::App* app = commands.app.add_subcommand("versions", "List the versions on this host");
  add_state_option(*app, flags->state, "The daemon's state directory");
  app->add_flag("--json", flags->json, "JSON");
  app->callback([flags, selected = &commands.selected] { *selected = command_of(run_versions, flags); });
}

void add_ready_command(const Commands& commands) {
  auto flags = std::make_shared<ReadyFlags>();
  CLI::App* app = commands.app.add_subcommand("ready", "Wait until a daemon does what it is there for");
  add_state_option(*app, flags->state, "The daemon's state directory");
  app->add_flag("--with-version", flags->has_version, "And until a version is in use there");
  app->add_option("--timeout", flags->timeout_s, "Seconds")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 31'536'000.0));
  app->callback(
      [flags, selected = &commands.selected] { *selected = [flags] { return attempt([&] { run_ready(*flags); }); }; });
}

}  // namespace weightcast
