#include "client/status_json.h"

#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace weightcast::client {

std::string to_json(const StatusReply& status) {
  nlohmann::json nodes = nlohmann::json::array();
  for (const NodeStatus& node : status.nodes) {
    nlohmann::json refused = nlohmann::json::object();
    for (const Refusals& one : node.refused) refused[one.reason] = one.count;
    nlohmann::json cannot_reach = nlohmann::json::array();
    for (const UnreachedNode& one : node.cannot_reach) {
      cannot_reach.push_back({{"name", one.name}, {"address", one.address}, {"why", one.why}});
    }
    nodes.push_back({{"name", node.name},
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
                     {"cannot_reach", std::move(cannot_reach)},
                     {"last_error", node.last_error}});
  }
  return json_text({{"run", status.run_id},
                    {"latest_version", status.latest_version},
                    {"model", status.model_id},
                    {"topology", status.topology},
                    {"predicted_s", status.predicted_s},
                    {"nodes", std::move(nodes)}});
}

std::string to_json(const VersionsReply& reply) {
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
  return json_text({{"versions", std::move(versions)}});
}

}  // namespace weightcast::client
