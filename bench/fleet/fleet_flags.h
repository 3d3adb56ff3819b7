#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/fleet/fleet.h"
#include "bench/fleet/warm_memory.h"

namespace CLI {
class App;
}

namespace weightcast::bench {

/// What every bench on real processes can be told.
struct FleetFlags {
  bool netns = false;
  bool warm = false;
  bool encrypted = false;
  std::string json_path;
  std::string svg_path;
  std::string daemon_flags;  ///< separated by spaces
  std::string worker_flags;
  std::optional<double> paced_share;

  /// --netns, --pace, --tls, --warm-memory, --daemon-flags, --worker-flags, --json. Interrupts are held while the
  /// command runs (interrupt.h).
  void add_to(CLI::App& command);

  [[nodiscard]] Result<std::unique_ptr<Network>> make_network(std::vector<LinkRates> rates) const;
  /// Options for a fleet of the weightcast beside this program, whose state is under `scratch`.
  [[nodiscard]] FleetOptions options(const std::filesystem::path& scratch) const;
  /// Warm memory for `bytes` of files, or none if that was not asked for.
  [[nodiscard]] Result<WarmMemory> warm_memory(std::uint64_t bytes) const;
};

/// What is sent and over which links, where one case is measured.
struct LinkSpec {
  Rate uplink{};     ///< of the origin
  LinkRates peer{};  ///< of each worker
  std::uint64_t payload_bytes = 0;

  /// Of the origin and so many workers.
  [[nodiscard]] std::vector<LinkRates> rates(std::size_t workers) const;
};

/// --uplink, --peer, --size.
struct LinkFlags {
  std::string uplink = "300mbit";
  std::string peer = "100mbit";
  std::string size = "64MiB";

  void add_to(CLI::App& command);
  /// Errors: kInvalidArgument, which names the text.
  [[nodiscard]] Result<LinkSpec> parse() const;
};

/// Ends the callback of a command: an error becomes one line on stderr and exit status 1.
void finish_bench(const Status& status);

/// Prints one line at once: somebody may watch how cases are measured.
void print_now(std::string_view line);

/// Writes `text` to `path`; "" is nowhere, "-" is stdout. Errors: fail_errno().
[[nodiscard]] Status write_result(const std::string& path, const std::string& text);
/// The same of JSON, indented.
[[nodiscard]] Status write_json(const std::string& path, const nlohmann::json& json);

/// "12.345", or "-".
[[nodiscard]] std::string seconds_or_dash(const std::optional<double>& seconds);

/// "100mbit": both directions; "20mbit:100mbit": up and down. Errors: kInvalidArgument.
[[nodiscard]] Result<LinkRates> parse_link(std::string_view text);

}  // namespace weightcast::bench
