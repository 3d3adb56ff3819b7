#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/json_text.h"
#include "base/text.h"
#include "base/units.h"
#include "client/client.h"
#include "tools/command.h"
#include "tools/doctor/host.h"
#include "tools/doctor/ports.h"
#include "tools/doctor/storage.h"
#include "tools/shell/terminal.h"

namespace weightcast {
namespace {

constexpr Duration kDialLimit = std::chrono::seconds(5);

struct DoctorFlags {
  std::string state, origin, listen, keys, snapshot, versions_in = "auto", memory = "/dev/shm", memory_max;
  std::vector<std::string> peers;
  std::uint32_t keep = 2;
  bool single_copy = false, mend = false, json = false;
};

std::string_view name_of(Finding::Level level) {
  switch (level) {
    case Finding::Level::kOk: return "ok";
    case Finding::Level::kWarning: return "warning";
    case Finding::Level::kFault: return "fault";
  }
  return "";
}

/// What a daemon that runs there has found out itself; nothing where none runs.
std::optional<local::StatusReply> running(const std::string& state) {
  const auto deadline = client::deadline_after(5000);
  const auto client = client::Client::open(state, deadline);
  if (!client.has_value()) return std::nullopt;
  auto status = (*client)->status(deadline);
  if (!status.has_value()) return std::nullopt;
  return *std::move(status);
}

void add_seen(const local::StatusReply& status, Findings& findings) {
  if (status.nodes.empty()) return;
  const local::NodeStatus& self = status.nodes.front();
  findings.push_back(ok(
      "rates", fmt::format("uplink {}, downlink {}, as plans reckon with them",
                           format_rate(Rate{self.uplink_bytes_per_s}), format_rate(Rate{self.downlink_bytes_per_s}))));
  for (const local::NodeStatus& node : status.nodes) {
    for (const local::UnreachedNode& other : node.cannot_reach) {
      findings.push_back(
          fault("reached", fmt::format("{} cannot dial {} at {}: {}", node.name, other.name, other.address, other.why),
                fmt::format("on the host of {}: let that port through its firewall, or --listen 0.0.0.0 in place of "
                            "loopback",
                            other.name)));
    }
  }
}

Result<Findings> examine(const DoctorFlags& flags) {
  Findings findings{check_descriptors(), check_clock(), check_io_uring(), check_bbr()};
  const auto add = [&](Findings more) {
    for (Finding& one : more) findings.push_back(std::move(one));
  };
  add(check_keys(flags.keys));
  std::optional<local::StatusReply> daemon;
  if (!flags.state.empty()) {
    StorageNeeds needs{.state = flags.state,
                       .versions_in = *find_word<VersionsIn>(flags.versions_in),
                       .memory = flags.memory,
                       .versions_kept = flags.keep,
                       .single_copy = flags.single_copy};
    if (!flags.snapshot.empty()) {
      WC_ASSIGN(needs.snapshot_bytes, parse_bytes(flags.snapshot));
    }
    if (!flags.memory_max.empty()) {
      WC_ASSIGN(needs.memory_bytes_max, parse_bytes(flags.memory_max));
    }
    add(check_storage(needs));
    daemon = running(flags.state);
  }
  findings.push_back(check_left_in_memory(flags.memory, flags.mend));
  std::optional<Endpoint> listen, origin;
  if (!flags.listen.empty()) {
    WC_ASSIGN(listen, Endpoint::parse(flags.listen));
    findings.push_back(check_listen(*listen, daemon.has_value()));
  }
  if (!flags.origin.empty()) {
    WC_ASSIGN(origin, Endpoint::parse(flags.origin));
    add(check_dial("origin", *origin, kDialLimit));
  }
  if (listen && origin) findings.push_back(check_reachable(*listen, *origin));
  for (const std::string& peer : flags.peers) {
    WC_ASSIGN(const Endpoint endpoint, Endpoint::parse(peer));
    add(check_dial("peer", endpoint, kDialLimit));
  }
  if (daemon) add_seen(*daemon, findings);
  return findings;
}

Status run(const DoctorFlags& flags) {
  WC_ASSIGN(const Findings findings, examine(flags));
  std::size_t faults = 0, warnings = 0;
  nlohmann::json list = nlohmann::json::array();
  for (const Finding& one : findings) {
    faults += one.level == Finding::Level::kFault ? 1 : 0;
    warnings += one.level == Finding::Level::kWarning ? 1 : 0;
    if (flags.json) {
      list.push_back({{"check", one.check}, {"level", name_of(one.level)}, {"what", one.what}, {"remedy", one.remedy}});
      continue;
    }
    const std::string level = fmt::format("{:8}", name_of(one.level));
    const bool is_fault = one.level == Finding::Level::kFault, is_warning = one.level == Finding::Level::kWarning;
    fmt::print("{} {:17} {}\n",
               is_fault     ? coloured_for(stdout, Colour::kRed, level)
               : is_warning ? coloured_for(stdout, Colour::kYellow, level)
                            : level,
               one.check, printable(one.what));
    if (!one.remedy.empty()) fmt::print("{:26} -> {}\n", "", printable(one.remedy));
  }
  if (flags.json) fmt::print("{}\n", json_text(list));
  std::fflush(stdout);
  if (faults == 0) return {};
  // No error of this command, which has done what it was asked.
  fmt::print(stderr, "weightcast: {} {}, {} {}; the remedy of each stands with it\n", faults,
             faults == 1 ? "fault" : "faults", warnings, warnings == 1 ? "warning" : "warnings");
  std::_Exit(1);
}

}  // namespace

void add_doctor_command(const Commands& commands) {
  const auto [app, flags] = add_command<DoctorFlags>(
      commands, "doctor", "Look whether a node can run on this host, and say which command mends what is wrong", run);
  app->add_option("--state", flags->state, "The daemon's state directory, running or not");
  app->add_option("--origin", flags->origin, "The origin's address, to dial from here")->check(endpoint_validator());
  app->add_option("--listen", flags->listen, "Where the daemon is to listen")->check(endpoint_validator());
  app->add_option("--peer", flags->peers, "Another node's address, to dial from here; may be given several times")
      ->check(endpoint_validator());
  app->add_option("--keys", flags->keys, "File of the node's keys");
  app->add_option("--snapshot", flags->snapshot, "Size of a version, e.g. 140GB")->check(bytes_validator());
  app->add_option("--keep", flags->keep, "Versions kept, as the daemon's")->check(CLI::Range(1, 1000));
  app->add_flag("--single-copy", flags->single_copy, "As the daemon's");
  app->add_option("--versions-in", flags->versions_in, "As the daemon's")
      ->check(CLI::IsMember(std::vector<std::string>(kWords<VersionsIn>.begin(), kWords<VersionsIn>.end())))
      ->capture_default_str();
  app->add_option("--memory-dir", flags->memory, "As the daemon's")->capture_default_str();
  app->add_option("--memory-max", flags->memory_max, "As the daemon's, e.g. 100GiB")->check(bytes_validator());
  app->add_flag("--mend", flags->mend,
                "Remove what nodes of this user whose state directories are gone have left in memory");
  app->add_flag("--json", flags->json, "A list of check, level (ok, warning, fault), what and remedy");
  app->footer("The exit status is 1 where there is a fault; warnings are no faults.");
}

}  // namespace weightcast
