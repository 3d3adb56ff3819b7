#include "client/status_json.h"

#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace weightcast::local {

namespace {

nlohmann::json or_null(const std::optional<double>& number) {
  return number ? nlohmann::json(*number) : nlohmann::json(nullptr);
}

}  // namespace

nlohmann::json json_of(const NodeStatus& node) {
  nlohmann::json refused = nlohmann::json::object();
  for (const Refusals& one : node.refused) refused[one.reason] = one.count;
  nlohmann::json cannot_reach = nlohmann::json::array();
  for (const UnreachedNode& one : node.cannot_reach) {
    cannot_reach.push_back({{"name", one.name}, {"address", one.address}, {"why", one.why}});
  }
  return {{"name", node.name},
          {"role", node.role},
          {"peer_id", node.peer_id},
          {"version", node.version},
          {"parent", node.parent},
          {"children", node.children},
          {"score", node.score},
          {"standing", node.standing},
          {"state", node.state},
          {"address", node.address},
          {"receiving_version", node.receiving_version},
          {"chunks_verified", node.chunks_verified},
          {"chunks_total", node.chunks_total},
          {"receive_bytes_per_s", node.receive_bytes_per_s},
          {"uplink_bytes_per_s", node.uplink_bytes_per_s},
          {"downlink_bytes_per_s", node.downlink_bytes_per_s},
          {"bytes_received", node.bytes_received},
          {"bytes_sent", node.bytes_sent},
          {"payload", node.payload},
          {"payload_bytes", node.payload_bytes},
          {"transfer_s", node.transfer_s},
          {"finish_s", node.finish_s},
          {"switch_s", node.switch_s},
          {"encode_s", node.encode_s},
          {"first_sent_s", node.first_sent_s},
          {"keys_expire_unix_s", node.keys_expire_unix_s},
          {"earlier_run", node.earlier_run},
          {"refused", std::move(refused)},
          {"manifests_refused", node.manifests_refused},
          {"offence", node.offence},
          {"complaints", node.complaints},
          {"complains", node.complains},
          {"versions_in", node.versions_in},
          {"versions_in_why", node.versions_in_why},
          {"disk_bytes_written", node.disk_bytes_written},
          {"archive_bytes", node.archive_bytes},
          {"archive_trouble", node.archive_trouble},
          {"protocol", node.protocol},
          {"cannot_reach", std::move(cannot_reach)},
          {"last_error", node.last_error}};
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
    versions.push_back({{"version", entry.version},
                        {"kind", entry.kind},
                        {"snapshot_bytes", entry.snapshot_bytes},
                        {"payload_bytes", entry.payload_bytes},
                        {"digest", entry.digest},
                        {"path", entry.path},
                        {"current", entry.current},
                        {"durable", entry.durable},
                        {"published_unix_ms", entry.published_unix_ms}});
  }
  return {{"versions", std::move(versions)}};
}

namespace {

nlohmann::json phases_of(const WorkerCourse& course) {
  if (!course.has_phases) return nullptr;
  return {{"waiting_s", course.waiting_s},
          {"asking_s", course.asking_s},
          {"receiving_s", course.receiving_s},
          {"storing_s", course.storing_s},
          {"applying_s", course.applying_s},
          {"switching_s", course.switching_s},
          {"engine_s", or_null(course.engine_s)},
          {"disk_behind_s", course.disk_behind_s},
          {"interrupted_s", course.interrupted_s},
          {"parents_left", course.parents_left},
          {"bytes", course.bytes},
          {"fed_by", course.fed_by},
          {"fed_bytes", course.fed_bytes},
          {"given_up_s", course.given_up_s}};
}

}  // namespace

nlohmann::json json_of(const PublicationEntry& entry) {
  return {{"version", entry.version},
          {"published_unix_ms", entry.published_unix_ms},
          {"state", entry.state},
          {"kind", entry.kind},
          {"snapshot_bytes", entry.snapshot_bytes},
          {"payload_bytes", entry.payload_bytes},
          {"sent_bytes", entry.sent_bytes},
          {"t50_s", or_null(entry.t50_s)},
          {"t90_s", or_null(entry.t90_s)},
          {"t100_s", or_null(entry.t100_s)},
          {"predicted_s", entry.predicted_s},
          {"topology", entry.topology},
          {"workers", entry.workers},
          {"installed", entry.installed},
          {"take_over_s", entry.take_over_s},
          {"encode_s", entry.encode_s},
          {"pack_s", entry.pack_s},
          {"take_over_at_s", or_null(entry.take_over_at_s)},
          {"encode_at_s", or_null(entry.encode_at_s)},
          {"pack_at_s", or_null(entry.pack_at_s)},
          {"elapsed_s", entry.elapsed_s},
          {"slowest", entry.slowest},
          {"cause", entry.cause},
          {"why", entry.why}};
}

nlohmann::json json_of(const HistoryReply& history) {
  nlohmann::json publications = nlohmann::json::array(), workers = nlohmann::json::array();
  for (const PublicationEntry& entry : history.publications) publications.push_back(json_of(entry));
  for (const WorkerCourse& course : history.workers) {
    workers.push_back({{"name", course.name},
                       {"payload", course.payload},
                       {"joined_s", or_null(course.joined_s)},
                       {"told_s", or_null(course.told_s)},
                       {"installed_s", or_null(course.installed_s)},
                       {"failure", course.failure},
                       {"phases", phases_of(course)}});
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
