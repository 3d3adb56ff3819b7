#include "bench/joins/joins_bench.h"

#include <algorithm>

#include "base/json_of.h"
#include "bench/joins/crowd.h"

namespace weightcast::bench {

Result<JoinsResult> run_joins_bench(const JoinsBenchOptions& options) {
  const auto network = make_loopback_network(std::vector<LinkRates>(1));
  WC_ASSIGN(const Scratch scratch, Scratch::make());
  FleetOptions fleet_options = options.flags.options(scratch.path());
  fleet_options.encrypted = true;
  WC_ASSIGN(const std::unique_ptr<Fleet> fleet, Fleet::start(*network, 0, fleet_options));
  WC_ASSIGN(const std::unique_ptr<Crowd> crowd, Crowd::make(scratch.path() / "keys", options.workers));
  WC_ASSIGN(const nlohmann::json status, fleet->status());
  WC_ASSIGN(const Endpoint origin, Endpoint::parse(status.at("nodes")[0].at("address").get<std::string>()));
  const auto usage = [&] { return fleet->process(0).usage().value_or(ProcessUsage{}); };

  JoinsResult result;
  result.workers = options.workers;
  const ProcessUsage before = usage();
  WC_ASSIGN(const Crowd::Joined first, crowd->join(origin));
  result.first_s = first.seconds;
  result.first_cpu_s = first.cpu_s + usage().cpu_s - before.cpu_s;
  WC_TRY(crowd->idle(options.settling));
  const std::uint64_t idle_bytes = usage().rss_anon_bytes;
  result.origin_bytes_per_worker =
      double(idle_bytes - std::min(idle_bytes, before.rss_anon_bytes)) / double(options.workers);
  crowd->leave();
  const double cpu_before_s = usage().cpu_s;
  WC_ASSIGN(const Crowd::Joined again, crowd->join(origin));
  result.again_s = again.seconds;
  result.again_cpu_s = again.cpu_s + usage().cpu_s - cpu_before_s;
  return result;
}

nlohmann::json to_json(const JoinsResult& result) {
  return WC_JSON_OF(result.workers, result.first_s, result.again_s, result.first_cpu_s, result.again_cpu_s,
                    result.origin_bytes_per_worker);
}

}  // namespace weightcast::bench
