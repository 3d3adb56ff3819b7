#include "tools/observe/daemon_metrics.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "tools/observe/metrics_text.h"

namespace weightcast {
namespace {

using local::NodeStatus;
using local::PublicationEntry;
using enum MetricsText::Type;

// Each is told, so that one that nobody is in reads 0.
constexpr std::array<std::string_view, 8> kStates = {"idle",    "receiving", "stale", "failed",
                                                     "foreign", "standby",   "lost",  "awaited"};

void add_self(MetricsText& text, const NodeStatus& self) {
  text.add("version", kGauge, "Version in use on this node; at the origin the last one published.", self.version);
  text.family("bytes_total", kCounter, "Bytes of payloads that this node has sent to others and got from others.");
  for (const local::Traffic& traffic : self.traffic) {
    text.sample({{"direction", traffic.direction}, {"kind", traffic.kind}}, traffic.bytes);
  }
  text.family("phase_seconds", kHistogram,
              "Time of each publication in each of its phases: at the origin take and encode, at a worker "
              "transfer, apply, switch and engine.");
  for (const local::PhaseTimes& phase : self.phases) {
    std::vector<MetricsText::Bucket> buckets;
    for (const local::PhaseBucket& bucket : phase.buckets) buckets.push_back({bucket.at_most_s, bucket.count});
    text.histogram({{"phase", phase.phase}}, buckets, phase.count, phase.sum_s);
  }
  text.family("failures_total", kCounter, "What this node has refused or failed to do, by reason (docs/SECURITY.md).");
  for (const local::Refusals& refused : self.refused) text.sample({{"reason", refused.reason}}, refused.count);
  text.sample({{"reason", "manifest"}}, self.manifests_refused);
  text.add("disk_written_bytes_total", kCounter, "Bytes that this process has caused to be written to disks.",
           self.disk_bytes_written);
  text.add("uplink_bytes_per_second", kGauge, "What this node can send, as plans reckon with it; 0: not known.",
           self.uplink_bytes_per_s);
  text.add("downlink_bytes_per_second", kGauge, "What this node can receive; 0: not known.", self.downlink_bytes_per_s);
  text.add("receive_bytes_per_second", kGauge, "What this node receives now.", self.receive_bytes_per_s);
  text.add("unreachable_peers", kGauge, "Nodes that this one cannot dial.", std::uint64_t{self.cannot_reach.size()});
  if (self.keys_expire_unix_s > 0) {
    text.add("keys_expire_timestamp_seconds", kGauge, "When this node's certificate ends.", self.keys_expire_unix_s);
  }
}

void add_fleet(MetricsText& text, const FleetState& state) {
  std::map<std::string_view, std::uint64_t> workers;
  std::uint64_t behind = 0;
  for (const NodeStatus& node : state.status.nodes) {
    if (node.role != "worker") continue;
    ++workers[node.state];
    const bool counts = node.state != "lost" && node.state != "awaited" && node.state != "standby";
    if (counts && node.version < state.status.latest_version) ++behind;
  }
  text.family("peers", kGauge, "Workers of this origin, by state.");
  for (const std::string_view one : kStates) text.sample({{"state", one}}, workers[one]);
  text.add("peers_behind", kGauge, "Active workers without the latest version.", behind);
}

void add_publications(MetricsText& text, const std::vector<PublicationEntry>& publications) {
  if (publications.empty()) return;
  const PublicationEntry& newest = publications.back();
  text.add("publication_timestamp_seconds", kGauge, "When the newest version was published.",
           double(newest.published_unix_ms) / 1e3);
  text.add("publication_workers", kGauge, "Workers that count for the newest publication.",
           std::uint64_t{newest.workers});
  text.add("publication_installed", kGauge, "Of these, those that have installed it.", std::uint64_t{newest.installed});
  const auto complete = std::find_if(publications.rbegin(), publications.rend(),
                                     [](const PublicationEntry& one) { return one.state == "complete"; });
  if (complete == publications.rend()) return;
  text.family("broadcast_seconds", kGauge,
              "T_bcast of the newest complete publication: until that fraction of the workers had installed it.");
  if (complete->t50_s) text.sample({{"fraction", "0.5"}}, *complete->t50_s);
  if (complete->t90_s) text.sample({{"fraction", "0.9"}}, *complete->t90_s);
  if (complete->t100_s) text.sample({{"fraction", "1"}}, *complete->t100_s);
  text.add("broadcast_predicted_seconds", kGauge, "What its plan had said of all workers; 0: there was none.",
           complete->predicted_s);
  text.add("payload_bytes", kGauge, "What most workers got of it.", complete->payload_bytes);
}

}  // namespace

std::string daemon_metrics(const FleetState& state, const local::ReadyReply& ready, std::string_view release,
                           const std::optional<OtlpExporter::Counts>& exported, const PublicationMeters& meters) {
  MetricsText text;
  const std::vector<NodeStatus>& nodes = state.status.nodes;
  add_build_info(text, release, nodes.empty() ? "" : nodes.front().role);
  text.add("ready", kGauge, "1 if this node does what it is there for: /healthz says why not.",
           std::uint64_t{ready.ready ? 1u : 0u});
  if (!nodes.empty()) {
    add_self(text, nodes.front());
    if (nodes.front().role == "origin") {
      add_fleet(text, state);
      meters.add_to(text);
    }
  }
  add_publications(text, state.history.publications);
  if (exported) {
    text.family("otlp_publications_total", kCounter,
                "Publications whose spans the OpenTelemetry collector has taken, and those whose it never gets.");
    text.sample({{"outcome", "sent"}}, exported->sent);
    text.sample({{"outcome", "dropped"}}, exported->dropped);
  }
  add_process_metrics(text);
  return text.take();
}

}  // namespace weightcast
