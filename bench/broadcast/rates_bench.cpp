#include "bench/broadcast/rates_bench.h"

#include <fmt/format.h>

#include <charconv>
#include <memory>

#include "base/json_of.h"
#include "bench/fleet/interrupt.h"

namespace weightcast::bench {
namespace {

/// A link that becomes another one before the third publication.
struct LinkChange {
  NodeIndex node = 0;
  LinkRates rates{};
};

/// What a publication took, with all rates configured as they are, and with none.
struct RatesCase {
  BroadcastCase wanted;
  bool changed = false;                           ///< after the changes
  std::uint32_t publication = 1;                  ///< since the start, or since the changes
  std::optional<double> configured_s, unknown_s;  ///< t100

  [[nodiscard]] std::optional<double> ratio() const {
    if (!configured_s || !unknown_s || *configured_s <= 0) return std::nullopt;
    return *unknown_s / *configured_s;
  }
};

/// Publishes to one fleet, one version after the other.
class Publisher {
 public:
  static Result<std::unique_ptr<Publisher>> start(Network& network, const RatesBenchOptions& bench,
                                                  const BroadcastCase& wanted, bool configured) {
    WC_ASSIGN(Scratch scratch, Scratch::make());
    FleetOptions options = bench.flags.options(scratch.path());
    options.topology = wanted.topology;
    options.configures_rates = configured;
    options.port_shift = configured ? 0 : 1;
    WC_ASSIGN(std::unique_ptr<Fleet> fleet, Fleet::start(network, wanted.peers.size(), options));
    return std::unique_ptr<Publisher>(new Publisher(bench, wanted, std::move(scratch), std::move(fleet)));
  }

  /// Seconds until everybody had the next version.
  Result<std::optional<double>> publish() {
    WC_TRY(sleep_for(bench_.pause));
    ++version_;
    WC_ASSIGN(const Payload payload,
              make_payload(scratch_.path() / "model.safetensors", wanted_.payload_bytes, version_, Content::kRandom));
    WC_ASSIGN(const Broadcast broadcast, fleet_->broadcast(Version{version_}, payload, {}));
    return broadcast.t100_s;
  }

 private:
  Publisher(const RatesBenchOptions& bench, const BroadcastCase& wanted, Scratch scratch, std::unique_ptr<Fleet> fleet)
      : bench_(bench), wanted_(wanted), scratch_(std::move(scratch)), fleet_(std::move(fleet)) {}

  const RatesBenchOptions& bench_;
  const BroadcastCase& wanted_;
  Scratch scratch_;
  std::unique_ptr<Fleet> fleet_;
  std::uint64_t version_ = 0;
};

/// Errors: kInvalidArgument.
Result<LinkChange> parse_link_change(std::string_view text) {
  const std::size_t equals = text.find('=');
  LinkChange change;
  const auto [end, error] = std::from_chars(text.data(), text.data() + std::min(equals, text.size()), change.node);
  if (equals == std::string_view::npos || error != std::errc() || end != text.data() + equals) {
    return fail(Errc::kInvalidArgument, Op::kParse,
                fmt::format("change '{}': say NODE=RATE or NODE=UP:DOWN, where node 0 is the origin", text));
  }
  WC_ASSIGN(change.rates, parse_link(text.substr(equals + 1)));
  return change;
}

nlohmann::json to_json(const std::vector<RatesCase>& cases) {
  nlohmann::json list = nlohmann::json::array();
  for (const RatesCase& c : cases) {
    list.push_back(
        merged(WC_JSON_OF(c.wanted.payload_bytes, c.changed, c.publication, c.configured_s, c.unknown_s, c.ratio()),
               {{"topology", to_string(c.wanted.topology)},
                {"workers", c.wanted.peers.size()},
                {"uplink_bps", c.wanted.uplink.bits_per_s()}}));
  }
  return {{"cases", std::move(list)}};
}

std::string rates_heading() {
  return fmt::format("{:<8} {:>3} {:>12} {:>9} {:>8} {:>5} {:>13} {:>10} {:>7}", "topology", "n", "uplink", "payload",
                     "links", "publ.", "configured_s", "unknown_s", "ratio");
}

std::string rates_line(const RatesCase& c) {
  return fmt::format("{:<8} {:>3} {:>12} {:>9} {:>8} {:>5} {:>13} {:>10} {:>7}", to_string(c.wanted.topology),
                     c.wanted.peers.size(), format_rate(c.wanted.uplink), format_bytes(c.wanted.payload_bytes),
                     c.changed ? "changed" : "first", c.publication, seconds_or_dash(c.configured_s),
                     seconds_or_dash(c.unknown_s), seconds_or_dash(c.ratio()));
}

}  // namespace

Status run_rates_bench(const RatesBenchOptions& options) {
  if (!options.flags.netns) {
    return fail(Errc::kInvalidArgument, Op::kConfigure, "--rates unknown: needs links that keep rates; use --netns");
  }
  std::vector<LinkChange> changes;
  for (const std::string& change : options.changes) {
    WC_ASSIGN(changes.emplace_back(), parse_link_change(change));
  }
  print_now(rates_heading());
  std::vector<RatesCase> results;
  for (const BroadcastCase& wanted : options.cases) {
    for (const LinkChange& change : changes) {
      if (change.node <= wanted.peers.size()) continue;
      return fail(Errc::kInvalidArgument, Op::kConfigure,
                  fmt::format("--change: there is no node {} among {} workers", change.node, wanted.peers.size()));
    }
    // One fleet of each kind on the same links. They publish in turn, so that what else this machine does slows both.
    WC_ASSIGN(const std::unique_ptr<Network> network, options.flags.make_network(wanted.rates()));
    WC_ASSIGN(std::unique_ptr<Publisher> configured, Publisher::start(*network, options, wanted, true));
    WC_ASSIGN(const std::unique_ptr<Publisher> unknown, Publisher::start(*network, options, wanted, false));
    for (const bool changed : {false, true}) {
      if (changed && changes.empty()) break;
      if (changed) {
        for (const LinkChange& change : changes) {
          LinkRates rates = change.rates;
          if (change.node == 0) rates.downlink = Rate{};
          WC_TRY(network->set_rates(change.node, rates));
        }
        configured.reset();  // before the next one takes its ports
        WC_ASSIGN(configured, Publisher::start(*network, options, wanted, true));
      }
      for (std::uint32_t i = 1; i <= options.publications; ++i) {
        RatesCase& result = results.emplace_back(RatesCase{wanted, changed, i, {}, {}});
        WC_ASSIGN(result.configured_s, configured->publish());
        WC_ASSIGN(result.unknown_s, unknown->publish());
        print_now(rates_line(result));
      }
    }
  }
  WC_TRY(write_json(options.flags.json_path, to_json(results)));
  for (const RatesCase& c : results) {
    // The first one is where links are found, or found to be others.
    if (options.ratio_max <= 0 || c.publication == 1 || c.ratio().value_or(options.ratio_max) <= options.ratio_max) {
      continue;
    }
    return fail(Errc::kTimedOut, Op::kVerify,
                fmt::format("publication {} takes {:.2f} times as long as with configured rates, more than --ratio-max",
                            c.publication, *c.ratio()));
  }
  return {};
}

}  // namespace weightcast::bench
