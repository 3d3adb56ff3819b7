#include "client/status_json.h"

#include <nlohmann/json.hpp>

#include "base/json_of.h"
#include "base/json_text.h"

namespace weightcast::local {

nlohmann::json json_of(const NodeStatus& node) {
  nlohmann::json refused = nlohmann::json::object();
  for (const Refusals& one : node.refused) refused[one.reason] = one.count;
  nlohmann::json cannot_reach = nlohmann::json::array();
  for (const UnreachedNode& one : node.cannot_reach) {
    cannot_reach.push_back({{"name", one.name}, {"address", one.address}, {"why", one.why}});
  }
  return merged(
      WC_JSON_OF(node.name, node.role, node.peer_id, node.version, node.parent, node.children, node.score,
                 node.standing, node.state, node.address, node.receiving_version, node.chunks_verified,
                 node.chunks_total, node.receive_bytes_per_s, node.uplink_bytes_per_s, node.downlink_bytes_per_s,
                 node.bytes_received, node.bytes_sent, node.payload, node.payload_bytes, node.transfer_s, node.finish_s,
                 node.switch_s, node.encode_s, node.first_sent_s, node.keys_expire_unix_s, node.earlier_run,
                 node.manifests_refused, node.offence, node.complaints, node.complains, node.versions_in,
                 node.versions_in_why, node.disk_bytes_written, node.archive_bytes, node.archive_trouble, node.protocol,
                 node.last_error, node.lost_unix_ms),
      {{"refused", std::move(refused)}, {"cannot_reach", std::move(cannot_reach)}});
}

nlohmann::json json_of(const StatusReply& status) {
  nlohmann::json nodes = nlohmann::json::array();
  for (const NodeStatus& node : status.nodes) nodes.push_back(json_of(node));
  return {{"run", status.run_id},        {"latest_version", status.latest_version}, {"model", status.model_id},
          {"topology", status.topology}, {"predicted_s", status.predicted_s},       {"nodes", std::move(nodes)}};
}

nlohmann::json json_of(const VersionsReply& reply) {
  nlohmann::json versions = nlohmann::json::array();
  for (const VersionEntry& entry : reply.versions) {
    versions.push_back(WC_JSON_OF(entry.version, entry.kind, entry.snapshot_bytes, entry.payload_bytes, entry.digest,
                                  entry.path, entry.current, entry.durable, entry.published_unix_ms));
  }
  return {{"versions", std::move(versions)}};
}

namespace {

nlohmann::json phases_of(const WorkerCourse& course) {
  if (!course.has_phases) return nullptr;
  return WC_JSON_OF(course.waiting_s, course.asking_s, course.receiving_s, course.storing_s, course.applying_s,
                    course.switching_s, course.engine_s, course.disk_behind_s, course.interrupted_s,
                    course.parents_left, course.bytes, course.fed_by, course.fed_bytes, course.given_up_s);
}

}  // namespace

nlohmann::json json_of(const PublicationEntry& entry) {
  return WC_JSON_OF(entry.version, entry.published_unix_ms, entry.state, entry.kind, entry.snapshot_bytes,
                    entry.payload_bytes, entry.sent_bytes, entry.t50_s, entry.t90_s, entry.t100_s, entry.predicted_s,
                    entry.topology, entry.workers, entry.installed, entry.take_over_s, entry.encode_s, entry.pack_s,
                    entry.take_over_at_s, entry.encode_at_s, entry.pack_at_s, entry.elapsed_s, entry.slowest,
                    entry.cause, entry.why);
}

nlohmann::json json_of(const HistoryReply& history) {
  nlohmann::json publications = nlohmann::json::array(), workers = nlohmann::json::array();
  for (const PublicationEntry& entry : history.publications) publications.push_back(json_of(entry));
  for (const WorkerCourse& course : history.workers) {
    workers.push_back(merged(
        WC_JSON_OF(course.name, course.payload, course.joined_s, course.told_s, course.installed_s, course.failure),
        {{"phases", phases_of(course)}}));
  }
  return {{"publications", std::move(publications)},
          {"workers", std::move(workers)},
          {"workers_total", history.workers_total}};
}

template <typename Reply>
std::string to_json(const Reply& reply) {
  return json_text(json_of(reply));
}
template std::string to_json(const StatusReply& reply);
template std::string to_json(const VersionsReply& reply);
template std::string to_json(const HistoryReply& reply);

}  // namespace weightcast::local
