#include "bench/broadcast/rates_bench.h"

#include <fmt/format.h>

#include <charconv>
#include <memory>

#include "base/json_of.h"
#include "bench/fleet/interrupt.h"

namespace weightcast::bench {
namespace {

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
    return broadcast.t_s(1.0);
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

/// One fleet of each kind on the same links. They publish in turn, so that what else this machine does slows both.
class Pair {
 public:
  static Result<std::unique_ptr<Pair>> start(const RatesBenchOptions& bench, const BroadcastCase& wanted) {
    std::vector<LinkRates> rates{{wanted.uplink, Rate{}}};
    rates.insert(rates.end(), wanted.peers.begin(), wanted.peers.end());
    auto pair = std::unique_ptr<Pair>(new Pair(bench, wanted));
    WC_ASSIGN(pair->network_, bench.flags.make_network(rates));
    WC_ASSIGN(pair->configured_, Publisher::start(*pair->network_, bench, wanted, true));
    WC_ASSIGN(pair->unknown_, Publisher::start(*pair->network_, bench, wanted, false));
    return pair;
  }

  /// What one publication of each takes.
  Status publish(RatesCase& result) {
    WC_ASSIGN(result.configured_s, configured_->publish());
    WC_ASSIGN(result.unknown_s, unknown_->publish());
    return {};
  }

  Status change_links() {
    for (const LinkChange& change : bench_.changes) {
      LinkRates changed = change.rates;
      if (change.node == 0) changed.downlink = Rate{};
      WC_TRY(network_->set_rates(change.node, changed));
    }
    configured_.reset();  // before the next one takes its ports
    WC_ASSIGN(configured_, Publisher::start(*network_, bench_, wanted_, true));
    return {};
  }

 private:
  Pair(const RatesBenchOptions& bench, const BroadcastCase& wanted) : bench_(bench), wanted_(wanted) {}

  const RatesBenchOptions& bench_;
  const BroadcastCase& wanted_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Publisher> configured_, unknown_;
};

}  // namespace

std::optional<double> RatesCase::ratio() const {
  if (!configured_s || !unknown_s || *configured_s <= 0) return std::nullopt;
  return *unknown_s / *configured_s;
}

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

Result<std::vector<RatesCase>> run_rates_bench(const RatesBenchOptions& options,
                                               const std::function<void(const RatesCase&)>& on_case) {
  if (!options.flags.netns) {
    return fail(Errc::kInvalidArgument, Op::kConfigure, "--rates unknown: needs links that keep rates; use --netns");
  }
  std::vector<RatesCase> results;
  for (const BroadcastCase& wanted : options.cases) {
    for (const LinkChange& change : options.changes) {
      if (change.node <= wanted.peers.size()) continue;
      return fail(Errc::kInvalidArgument, Op::kConfigure,
                  fmt::format("--change: there is no node {} among {} workers", change.node, wanted.peers.size()));
    }
    WC_ASSIGN(const auto pair, Pair::start(options, wanted));
    for (const bool changed : {false, true}) {
      if (changed && options.changes.empty()) break;
      if (changed) WC_TRY(pair->change_links());
      for (std::uint32_t i = 1; i <= options.publications; ++i) {
        RatesCase& result = results.emplace_back(RatesCase{wanted, changed, i, {}, {}});
        WC_TRY(pair->publish(result));
        on_case(result);
      }
    }
  }
  return results;
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

}  // namespace weightcast::bench
