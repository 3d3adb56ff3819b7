// What has to hold in every simulation, whatever goes wrong.
#include <fmt/format.h>

#include <algorithm>

#include "sim/simulation.h"
#include "sim/stand_ins.h"
#include "transport/core/payload_wire.h"
#include "transport/core/plan/stripes.h"

namespace weightcast::sim {
namespace {

constexpr std::size_t kTraceMax = 60;

}  // namespace

void Simulation::remember(NodeIndex node, std::string text) {
  if (trace_.size() == kTraceMax) trace_.pop_front();
  trace_.push_back({now_, node == kNone ? std::move(text) : name_of(node) + " says: " + text});
}

void Simulation::violate(std::string what) {
  if (result_.violation) return;
  std::string text = fmt::format("seed {}, {:.6f} s: {}\n", options_.seed, to_seconds(now_ - Instant{}), what);
  for (const Fault& fault : options_.faults) text += "  with: " + to_text(fault) + "\n";
  for (const LiarOptions& liar : options_.liars) text += "  with: " + to_text(liar) + "\n";
  for (const Trace& t : trace_) text += fmt::format("  {:.6f} {}\n", to_seconds(t.at - Instant{}), t.text);
  result_.violation = std::move(text);
}

const LiarOptions* Simulation::liar_options(NodeIndex node) const {
  const auto found = std::ranges::find(options_.liars, node, &LiarOptions::node);
  return found == options_.liars.end() ? nullptr : &*found;
}

void Simulation::check_accounting() {
  if (options_.liars.empty() || !nodes_[0].origin) return;
  const bool only_liars =
      std::ranges::all_of(options_.faults, [](const Fault& fault) { return fault.kind == FaultKind::kPublish; });
  for (const auto& [id, member] : nodes_[0].origin->members().all()) {
    const NodeIndex node = node_named(member.name);
    const bool named = !member.offence.empty() || nodes_[0].origin->complaints_of(id) > 0;
    if (liar_options(node) != nullptr) {
      ++(named ? result_.liars_named : result_.liars_unnamed);
      if (!named && nodes_[node].damage_reported_by.size() >= 2) {
        violate(fmt::format("{} has sent damaged chunks, as {} workers say, and no account names it", member.name,
                            nodes_[node].damage_reported_by.size()));
      }
    } else if (only_liars && member.standing.standing() == Standing::kRolloutOnly) {
      violate(fmt::format("{} is honest, and may not relay: {}", member.name, member.offence));
    }
  }
}

bool Simulation::has_intact(const Node& node, PayloadId id, ChunkIndex chunk) const {
  const ChunkSet* handed = node.handed.find(id);
  return handed != nullptr && handed->contains(chunk);
}

void Simulation::check_asks_for_missing(NodeIndex node, const wire::Subscribe& subscribe) {
  const PayloadId id = payload_of(subscribe);
  const ChunkSet* handed = nodes_[node].handed.find(id);
  if (handed == nullptr) return;
  const ChunkSet told = ChunkSet::from_bytes(handed->size(), subscribe.chunks_held());
  if (const auto again = handed->next_in_without(told, ChunkIndex{0})) {
    violate(
        fmt::format("{} asks for version {} chunk {}, which it has", name_of(node), id.version.value, again->value));
  }
}

void Simulation::check_sent_is_wanted(NodeIndex node, const action::SendChunk& send) {
  if (const LinkIndex link = link_of(node, send.conn);
      link != kNone && nodes_[network_.other_end(link, node)].liar != nullptr) {
    return;  // it may have asked for what did not exist yet
  }
  const auto found = nodes_[node].asked.find({link_of(node, send.conn), send.payload});
  if (found == nodes_[node].asked.end()) {
    return violate(
        fmt::format("{} sends version {} to somebody who did not ask", name_of(node), send.payload.version.value));
  }
  for (const Asked& asked : found->second) {
    const StripeMap stripes(asked.weights.empty() ? std::vector<std::uint32_t>{1} : asked.weights);
    if (stripes.stripe_of(send.chunk) == asked.stripe && !asked.held.contains(send.chunk)) return;
  }
  violate(fmt::format("{} sends version {} chunk {} to somebody who has it", name_of(node), send.payload.version.value,
                      send.chunk.value));
}

void Simulation::note_told(NodeIndex index, const wire::Assignment& assignment) {
  const PayloadId id = payload_of(assignment);
  std::vector<NodeIndex>& parents = nodes_[index].told[id];
  parents.clear();
  for (const wire::StripeSource& source : assignment.stripes()) {
    const wire::NodeAddress& parent = source.ancestors(0);
    // A liar may have joined under the address of another.
    const NodeIndex node = options_.liars.empty() ? node_at(parent.address().host()) : node_named(parent.name());
    parents.push_back(parent.peer_id() == 0 ? 0 : node);
  }
  newly_told_.push_back({index, id});
}

void Simulation::check_told() {
  for (const auto& [told, id] : std::exchange(newly_told_, {})) {
    const std::size_t stripes = nodes_[told].told[id].size();
    for (std::size_t stripe = 0; stripe < stripes; ++stripe) {
      NodeIndex at = told;
      for (std::size_t steps = 0; at != 0; ++steps) {
        const Node& node = nodes_[at];
        const auto parents = node.told.find(id);
        // A liar that says that it has everything is thought to be an end.
        if (!node.core || node.liar != nullptr || node.installed >= id.version || parents == node.told.end() ||
            parents->second.size() != stripes) {
          break;
        }
        if (steps > nodes_.size()) {
          return violate(fmt::format("{} was told to take version {} stripe {} from a circle", name_of(told),
                                     id.version.value, stripe));
        }
        at = parents->second[stripe];
      }
    }
  }
}

}  // namespace weightcast::sim
