#pragma once

#include "bench/broadcast/broadcast_bench.h"

namespace weightcast::bench {

/// A link that becomes another one before the third publication. Node 0 is the origin.
struct LinkChange {
  NodeIndex node = 0;
  LinkRates rates{};
};

/// "2=20mbit", "0=60mbit", "3=20mbit:100mbit". Errors: kInvalidArgument.
[[nodiscard]] Result<LinkChange> parse_link_change(std::string_view text);

struct RatesBenchOptions {
  std::vector<BroadcastCase> cases;          ///< their first four fields
  std::vector<LinkChange> changes;           ///< in each of them
  std::uint32_t publications = 3;            ///< after the start, and as many after the changes
  Duration pause = std::chrono::seconds(3);  ///< before each publication, as long as a trainer's step: links are free
  FleetFlags flags;
};

/// What a publication took, with all rates configured as they are, and with none.
struct RatesCase {
  BroadcastCase wanted;
  bool changed = false;                           ///< after the changes
  std::uint32_t publication = 1;                  ///< since the start, or since the changes
  std::optional<double> configured_s, unknown_s;  ///< t100

  [[nodiscard]] std::optional<double> ratio() const;
};

/// Measures each publication of each case with one fleet whose rates are configured, and with one that nobody has told
/// its rates. Both are on the same hosts and publish in turn. The first fleet is started anew with the rates after the
/// changes; the second finds them. Hosts need links of their own (--netns). Errors: those of run_broadcast_bench();
/// kInvalidArgument (no --netns, no such node).
[[nodiscard]] Result<std::vector<RatesCase>> run_rates_bench(const RatesBenchOptions& options,
                                                             const std::function<void(const RatesCase&)>& on_case);

[[nodiscard]] nlohmann::json to_json(const std::vector<RatesCase>& cases);
[[nodiscard]] std::string rates_heading();
[[nodiscard]] std::string rates_line(const RatesCase& rates_case);

}  // namespace weightcast::bench
