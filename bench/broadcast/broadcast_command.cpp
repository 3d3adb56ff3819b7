#include "bench/commands.h"

#include <fmt/format.h>

#include "bench/add_bench.h"
#include "bench/broadcast/broadcast_bench.h"
#include "bench/broadcast/rates_bench.h"
#include "tools/command.h"

namespace weightcast::bench {
namespace {

struct BroadcastArguments {
  std::vector<std::size_t> workers;
  std::vector<std::string> uplinks{"300mbit"};
  std::string peer = "100mbit";
  std::vector<std::string> peers;
  std::string size = "64MiB";
  std::vector<std::string> topologies{"star", "chain"};
  std::string figure;
  std::uint32_t versions = 1;
  std::string content = "random";
  std::string rates = "configured";
  std::vector<std::string> changes;
  double pause_s = 3;
  double ratio_max = 0;
  FleetFlags flags;
};

Result<std::vector<BroadcastCase>> cases_of(const BroadcastArguments& arguments) {
  WC_ASSIGN(const std::uint64_t payload_bytes, parse_bytes(arguments.size));
  std::vector<std::size_t> workers = arguments.workers;
  if (arguments.figure == "echo2") {
    if (workers.empty()) workers = {1, 2, 3, 6, 9, 12, 18, 24};
    return echo2_cases(workers, payload_bytes);
  }
  std::vector<LinkRates> given;
  for (const std::string& peer : arguments.peers) {
    WC_ASSIGN(given.emplace_back(), parse_link(peer));
  }
  if (workers.empty()) workers = given.empty() ? std::vector<std::size_t>{3, 6, 12, 24} : std::vector{given.size()};
  WC_ASSIGN(const LinkRates peer, parse_link(arguments.peer));

  std::vector<BroadcastCase> cases;
  for (const std::string& topology : arguments.topologies) {
    for (const std::string& uplink : arguments.uplinks) {
      for (const std::size_t n : workers) {
        BroadcastCase& c = cases.emplace_back();
        WC_ASSIGN(c.topology, parse_topology(topology));
        WC_ASSIGN(c.uplink, parse_rate(uplink));
        c.peers = given;
        c.peers.resize(n, peer);
        c.payload_bytes = payload_bytes;
      }
    }
  }
  return cases;
}

Status run(const BroadcastArguments& arguments) {
  WC_ASSIGN(auto wanted, cases_of(arguments));
  if (arguments.rates == "unknown") {
    return run_rates_bench({std::move(wanted), arguments.changes, std::max(arguments.versions, 2u),
                            from_seconds(arguments.pause_s), arguments.ratio_max, arguments.flags});
  }
  WC_ASSIGN(const Content content, parse_content(arguments.content));
  print_now(broadcast_heading());
  std::vector<BroadcastCase> cases;
  for (const BroadcastCase& c : wanted) {
    WC_ASSIGN(cases.emplace_back(), measure_broadcast(c, {arguments.versions, content, arguments.flags}));
    print_now(broadcast_line(cases.back()));
  }
  WC_TRY(write_json(arguments.flags.json_path, to_json(cases)));
  return write_result(arguments.flags.svg_path, to_svg(broadcast_figure(cases)));
}

}  // namespace

void add_broadcast_command(CLI::App& app) {
  const auto [command, arguments] = add_bench<const BroadcastArguments>(
      app, "broadcast", "Time until every worker of a fleet has installed a snapshot", run);
  command->add_option("--workers", arguments->workers, "Numbers of workers, e.g. 3,6,12,24")
      ->delimiter(',')
      ->check(CLI::Range(std::size_t{1}, std::size_t{1000}));
  command->add_option("--uplink", arguments->uplinks, "What the origin may send; several for several cases")
      ->delimiter(',')
      ->check(rate_validator());
  command->add_option("--peer", arguments->peer, "What each worker may send and receive; UP:DOWN where they differ");
  command->add_option("--peers", arguments->peers, "The same, worker by worker; --peer for those not given")
      ->delimiter(',');
  command->add_option("--size", arguments->size, "Payload")->check(bytes_validator());
  command
      ->add_option("--content", arguments->content,
                   "Of the snapshot: random bits, which nothing makes smaller, or weights, which are packed where that "
                   "is faster (--daemon-flags \"--pack never\" sends them as they are); line_s and ratio are over the "
                   "snapshot's bytes, however they travel")
      ->check(CLI::IsMember({"random", "weights"}));
  command
      ->add_option("--topology", arguments->topologies, "star, chain, tree, striped or auto; several for several cases")
      ->delimiter(',')
      ->check(topology_validator());
  command->add_option("--figure", arguments->figure, "The cases of a published figure, in place of those above: echo2")
      ->check(CLI::IsMember({"echo2"}));
  command
      ->add_option("--versions", arguments->versions,
                   "Versions that one fleet gets in turn, of which the last counts; from the third on, nodes write to "
                   "the files of a version that they have forgotten")
      ->check(CLI::Range(1u, 1000u));
  command
      ->add_option("--rates", arguments->rates,
                   "configured: nodes are told their links' rates; unknown: how long each of --versions publications "
                   "(at least 2) takes a fleet that finds them, beside a fleet that is told them")
      ->check(CLI::IsMember({"configured", "unknown"}));
  command
      ->add_option(
          "--change", arguments->changes,
          "With --rates unknown: links that are others afterwards, as NODE=RATE or NODE=UP:DOWN (node 0 is the "
          "origin); then as many publications again")
      ->delimiter(',');
  command->add_option("--pause", arguments->pause_s, "With --rates unknown: seconds before each publication")
      ->check(CLI::Range(0.0, 3600.0));
  command
      ->add_option("--ratio-max", arguments->ratio_max,
                   "With --rates unknown: fail if a publication but the first takes so many times as long as with "
                   "configured rates")
      ->check(CLI::Range(0.0, 100.0))
      ->default_str("");
  arguments->flags.add_to(*command);
  command->add_option("--svg", arguments->flags.svg_path, "Also draw time against the number of workers");
}

}  // namespace weightcast::bench
