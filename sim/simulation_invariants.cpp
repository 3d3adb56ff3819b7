// What has to hold in every simulation, whatever goes wrong.
#include <fmt/format.h>

#include <algorithm>

#include "sim/simulation.h"
#include "sim/stand_ins.h"
#include "transport/core/manifest/payload_wire.h"
#include "transport/core/plan/stripes.h"

namespace weightcast::sim {
namespace {

// Reports travel, and the origin looks at paces twice a second.
constexpr Duration kJudgedAfter = std::chrono::seconds(2);

}  // namespace

const LiarOptions* Simulation::liar_options(NodeIndex node) const {
  const auto found = std::ranges::find(options_.liars, node, &LiarOptions::node);
  return found == options_.liars.end() ? nullptr : &*found;
}

void Simulation::note_named() {
  if (nodes_[0].origin == nullptr) return;
  const OriginCore& origin = *nodes_[0].origin;
  for (const auto& [id, member] : origin.members().all()) {
    if (const NodeIndex node = node_named(member.name); node < nodes_.size() && !member.offence.empty())
      nodes_[node].suspected = true;
  }
  for (const LiarOptions& liar : options_.liars) {
    const auto id = origin.members().id_of(member_name(liar.node));
    if (!id) continue;
    nodes_[liar.node].named = nodes_[liar.node].named || !origin.members().find(*id)->offence.empty() ||
                              origin.faults().complaints_of(*id) > 0 || origin.faults().complaints_by(*id) > 0;
  }
}

std::string Simulation::proof_against(NodeIndex node) const {
  const Node& liar = nodes_[node];
  const std::set<NodeIndex>& witnesses = liar.damage_reported_by;
  // A child that alone complains of two parents is the suspect, and its word convicts nobody. On slow links of rates
  // that nobody knows all honest children may be suspects.
  const auto trusted = std::ranges::count_if(witnesses, [&](NodeIndex witness) { return !nodes_[witness].suspected; });
  // Where other things go wrong, too, a single witness may be the suspect itself.
  if (trusted > 0 && witnesses.size() >= (only_liars() ? 1 : 2)) {
    return fmt::format("has sent damaged chunks, as {} workers say", witnesses.size());
  }
  // And the origin may not hear of the rest.
  if (!only_liars() || liar.liar == nullptr) return "";
  const Instant long_ago = local(node) - kJudgedAfter;
  const LiarEvidence& evidence = liar.liar->evidence();
  for (const auto& [child, since] : evidence.withheld_from) {
    const bool is_witness = liar_options(child) == nullptr && !nodes_[child].suspected;
    if (is_witness && since < long_ago) return "has held chunks back from " + name_of(child);
  }
  if (evidence.accused && *evidence.accused < long_ago) return "has accused its parents again and again";
  if (evidence.impersonated && *evidence.impersonated < long_ago) return "has joined as another";
  if (evidence.flooded && *evidence.flooded < long_ago) return "has flooded the origin";
  return "";
}

bool Simulation::only_liars() const {
  return std::ranges::all_of(options_.faults, [](const Fault& fault) { return fault.kind == FaultKind::kPublish; });
}

bool Simulation::may_starve_of_turns() const {
  if (options_.nodes.rates_configured) return false;
  const double turns = double(options_.workers) * options_.nodes.streams;
  const double round_s = turns * options_.chunk_bytes.value_or(0) / options_.network.worker_uplink.bytes_per_s;
  return round_s > to_seconds(options_.timeouts.parent_silence);
}

void Simulation::check_accounting() {
  if (options_.liars.empty() || nodes_[0].origin == nullptr) return;
  note_named();
  for (const LiarOptions& liar : options_.liars) {
    const bool named = nodes_[liar.node].named;
    const std::string proof = proof_against(liar.node);
    ++(named ? result_.liars_named : result_.liars_unnamed);
    if (!proof.empty()) ++result_.liars_proven;
    if (!proof.empty() && !named) violate(fmt::format("{} {}, and status never named it", name_of(liar.node), proof));
  }
  for (const auto& [id, member] : nodes_[0].origin->members().all()) {
    if (liar_options(node_named(member.name)) != nullptr || member.standing.standing() == Standing::kSeed) continue;
    ++result_.honest_displaced;
  }
  if (!only_liars() || may_starve_of_turns()) return;
  std::vector<std::string> barred;
  for (const auto& [id, member] : nodes_[0].origin->members().all()) {
    const bool honest = liar_options(node_named(member.name)) == nullptr;
    if (honest && member.standing.standing() == Standing::kRolloutOnly) {
      barred.push_back(fmt::format("{} ({})", member.name, member.offence));
    }
  }
  // Two who conspire can have an honest member barred, for two complaints of each (complaints.h).
  const auto blaming = std::ranges::count_if(options_.liars, [](const LiarOptions& liar) {
    return liar.lies.contains(Lie::kBlames) || liar.lies.contains(Lie::kFloods);
  });
  const std::uint64_t voices =
      static_cast<std::uint64_t>(blaming) * (Complaints::kVoiceMax + latest_.value / Complaints::kRemembered);
  if (barred.size() > (blaming < 2 ? 0 : voices / 4)) {
    violate(fmt::format("honest members may not relay: {}", fmt::join(barred, ", ")));
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
      link != kNoIndex && nodes_[network_.other_end(link, node)].liar != nullptr) {
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
