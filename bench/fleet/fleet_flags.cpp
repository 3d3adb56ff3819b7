#include "bench/fleet/fleet_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/json_text.h"
#include "bench/fleet/interrupt.h"
#include "tools/command.h"

namespace weightcast::bench {
namespace {

std::vector<std::string> split(const std::string& flags) {
  std::istringstream words(flags);
  return {std::istream_iterator<std::string>(words), {}};
}

}  // namespace

void FleetFlags::add_to(CLI::App& command) {
  command.parse_complete_callback(hold_interrupts);
  command.add_flag("--netns", netns, "Give each node a host of its own: a network namespace with capped links (root)");
  command.add_flag("--warm-memory", warm,
                   "First touch the memory that files will take: where a virtual machine gives free memory back to its "
                   "host, first touches cost more than anything that is measured");
  command.add_flag("--tls", encrypted,
                   "Give every node keys, so that connections are encrypted; without it they are plain");
  command
      .add_option("--pace", paced_share,
                  "With --netns: nodes keep this share of their links' rates by themselves, e.g. 0.95 for what headers "
                  "leave; without it the links alone keep them")
      ->check(CLI::Range(0.1, 1.0));
  command.add_option("--daemon-flags", daemon_flags, "Further flags for every daemon, in one argument");
  command.add_option("--worker-flags", worker_flags, "The same for workers only");
  command.add_option("--json", json_path, "Also write the results to this file; - is stdout");
}

Result<std::unique_ptr<Network>> FleetFlags::make_network(std::vector<LinkRates> rates) const {
  if (netns) return make_namespace_network(std::move(rates));
  return make_loopback_network(std::move(rates));
}

FleetOptions FleetFlags::options(const std::filesystem::path& scratch) const {
  FleetOptions options;
  options.program = beside_this_program("weightcast");
  options.scratch = scratch;
  options.daemon_flags = split(daemon_flags);
  options.worker_flags = split(worker_flags);
  options.paced_share = paced_share;
  options.encrypted = encrypted;
  return options;
}

Result<WarmMemory> FleetFlags::warm_memory(std::uint64_t bytes) const { return WarmMemory::make(warm ? bytes : 0); }

void LinkFlags::add_to(CLI::App& command) {
  command.add_option("--uplink", uplink, "What the origin may send")->check(rate_validator());
  command.add_option("--peer", peer, "What each worker may send and receive; UP:DOWN where they differ");
  command.add_option("--size", size, "Payload")->check(bytes_validator());
}

std::vector<LinkRates> LinkSpec::rates(std::size_t workers) const {
  std::vector<LinkRates> rates{{uplink, Rate{}}};
  rates.resize(1 + workers, peer);
  return rates;
}

Result<LinkSpec> LinkFlags::parse() const {
  LinkSpec parsed;
  WC_ASSIGN(parsed.uplink, parse_rate(uplink));
  WC_ASSIGN(parsed.peer, parse_link(peer));
  WC_ASSIGN(parsed.payload_bytes, parse_bytes(size));
  return parsed;
}

void finish_bench(const Status& status) {
  if (status.has_value()) return;
  fmt::print(stderr, "weightcast-bench: {}\n", status.error().message());
  throw CLI::RuntimeError(1);
}

void print_now(std::string_view line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

Status write_result(const std::string& path, const std::string& text) {
  if (path.empty()) return {};
  if (path == "-") {
    fmt::print("{}", text);
    return {};
  }
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  if (!file.good()) return fail_errno(errno, Op::kWrite, path);
  return {};
}

Status write_json(const std::string& path, const nlohmann::json& json) {
  return write_result(path, json_text(json, 2) + "\n");
}

std::string seconds_or_dash(const std::optional<double>& seconds) {
  return seconds ? fmt::format("{:.3f}", *seconds) : std::string("-");
}

Result<LinkRates> parse_link(std::string_view text) {
  const std::size_t colon = text.find(':');
  LinkRates rates;
  WC_ASSIGN(rates.uplink, parse_rate(text.substr(0, colon)));
  rates.downlink = rates.uplink;
  if (colon != std::string_view::npos) {
    WC_ASSIGN(rates.downlink, parse_rate(text.substr(colon + 1)));
  }
  return rates;
}

}  // namespace weightcast::bench
