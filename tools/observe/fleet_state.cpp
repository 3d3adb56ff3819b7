#include "tools/observe/fleet_state.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "client/status_json.h"

namespace weightcast {
namespace {

using local::NodeStatus;
using local::PublicationEntry;
using Json = nlohmann::json;

constexpr double kScoreMoved = 0.01;

/// A worker may have the origin's name.
using NodeKey = std::pair<std::string_view, std::string_view>;
NodeKey key_of(const NodeStatus& node) { return {node.role, node.name}; }

bool differ(const NodeStatus& before, const NodeStatus& after) {
  if (before == after) return false;
  if (before.score == after.score || std::abs(before.score - after.score) >= kScoreMoved) return true;
  NodeStatus aged = before;
  aged.score = after.score;
  return aged != after;
}

Json difference(const Json& before, const Json& after) {
  Json changed = Json::object();
  for (const auto& [name, value] : after.items()) {
    const auto found = before.find(name);
    if (found == before.end() || *found != value) changed[name] = value;
  }
  return changed;
}

void add_nodes(const FleetState& before, const FleetState& after, Json& change) {
  std::map<NodeKey, const NodeStatus*> known;
  for (const NodeStatus& node : before.status.nodes) known.emplace(key_of(node), &node);
  Json nodes = Json::array(), gone = Json::array();
  for (const NodeStatus& node : after.status.nodes) {
    const auto found = known.find(key_of(node));
    if (found == known.end()) {
      nodes.push_back(json_of(node));
      continue;
    }
    if (differ(*found->second, node)) {
      Json changed = difference(json_of(*found->second), json_of(node));
      changed["name"] = node.name;
      changed["role"] = node.role;
      nodes.push_back(std::move(changed));
    }
    known.erase(found);
  }
  for (const auto& [key, _] : known) gone.push_back({{"name", key.second}, {"role", key.first}});
  if (!nodes.empty()) change["nodes"] = std::move(nodes);
  if (!gone.empty()) change["nodes_gone"] = std::move(gone);
}

void add_publications(const FleetState& before, const FleetState& after, Json& change) {
  std::map<std::uint64_t, const PublicationEntry*> known;
  for (const PublicationEntry& entry : before.history.publications) known.emplace(entry.version, &entry);
  Json publications = Json::array(), gone = Json::array();
  for (const PublicationEntry& entry : after.history.publications) {
    const auto found = known.find(entry.version);
    if (found == known.end() || *found->second != entry) publications.push_back(json_of(entry));
    if (found != known.end()) known.erase(found);
  }
  for (const auto& [version, _] : known) gone.push_back(version);
  if (!publications.empty()) change["publications"] = std::move(publications);
  if (!gone.empty()) change["publications_gone"] = std::move(gone);
}

/// What the status says beside the nodes.
local::StatusReply head_of(const local::StatusReply& status) {
  local::StatusReply head;
  head.latest_version = status.latest_version;
  head.topology = status.topology;
  head.model_id = status.model_id;
  head.predicted_s = status.predicted_s;
  head.run_id = status.run_id;
  return head;
}

}  // namespace

Json whole_json(const FleetState& state) {
  Json json = json_of(state.status);
  json["unix_ms"] = state.unix_ms;
  json["versions"] = std::move(json_of(state.versions)["versions"]);
  json["publications"] = std::move(json_of(state.history)["publications"]);
  return json;
}

std::optional<Json> change_json(const FleetState& before, const FleetState& after) {
  Json head_before = json_of(head_of(before.status)), head_after = json_of(head_of(after.status));
  Json change = difference(head_before, head_after);
  add_nodes(before, after, change);
  add_publications(before, after, change);
  if (before.versions.versions != after.versions.versions) {
    change["versions"] = std::move(json_of(after.versions)["versions"]);
  }
  if (change.empty()) return std::nullopt;
  change["unix_ms"] = after.unix_ms;
  return change;
}

}  // namespace weightcast
