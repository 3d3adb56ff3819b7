// What a simulation's network says to its cores.
#include <fmt/format.h>

#include "sim/simulation.h"
#include "sim/stand_ins.h"
#include "transport/core/manifest/payload_wire.h"

namespace weightcast::sim {

ConnId Simulation::on_accept(NodeIndex node, NodeIndex dialler, LinkIndex link) {
  const ConnId conn = nodes_[node].core->next_conn();
  note_link(node, conn, link);
  nodes_[node].core->handle_accepted(local(node), conn, host_of(dialler), nodes_[dialler].identity);
  pump(node);
  return conn;
}

void Simulation::on_connected(NodeIndex node, ConnId conn) {
  if (!nodes_[node].core) return;
  nodes_[node].dialling.erase(conn);
  const NodeIndex other = network_.other_end(link_of(node, conn), node);
  nodes_[node].core->handle_connected(local(node), conn, nodes_[other].identity);
  pump(node);
}

void Simulation::on_closed(NodeIndex node, ConnId conn, const Error& why) {
  if (!nodes_[node].core) return;
  nodes_[node].dialling.erase(conn);
  nodes_[node].core->handle_closed(local(node), conn, why);
  pump(node);
}

void Simulation::on_control(NodeIndex node, ConnId conn, NodeIndex from, Cargo& cargo) {
  const wire::Message& message = static_cast<MessageCargo&>(cargo).message;
  if (!nodes_[node].core) return;
  // A liar says on some connections that it speaks the newest version, whatever its release.
  const bool is_honest = liar_options(from) == nullptr && liar_options(node) == nullptr;
  if (is_honest && first_protocol_of(message.kind_case()) > protocols_of(node).highest) {
    const auto* kind = wire::Message::descriptor()->FindFieldByNumber(message.kind_case());
    violate(fmt::format("{} has sent {} to {}, which is of the release before and does not know it", name_of(from),
                        kind->name(), name_of(node)));
  }
  if (node == 0 && liar_options(from) == nullptr && message.parent_fault().kind() == wire::FAULT_KIND_CORRUPT) {
    const Member* accused = nodes_[0].origin->members().find(PeerId{message.parent_fault().parent_id()});
    const NodeIndex liar = accused == nullptr ? kNoIndex : node_named(accused->name);
    // Nobody judges what was withdrawn.
    const bool judged = nodes_[0].origin->holdings().contains(payload_of(message.parent_fault()));
    if (liar < nodes_.size() && judged) nodes_[liar].damage_reported_by.insert(from);
  }
  if (options_.thorough && message.has_subscribe()) {
    const wire::Subscribe& subscribe = message.subscribe();
    const PayloadId id = payload_of(subscribe);
    // Only a liar asks for another one.
    if (const auto payload = payloads_.find(id); payload != payloads_.end()) {
      auto& asked = nodes_[node].asked[{link_of(node, conn), id}];
      std::erase_if(asked, [&](const Asked& a) { return a.stripe == subscribe.stripe(); });
      asked.push_back({subscribe.stripe(),
                       {subscribe.stripe_weights().begin(), subscribe.stripe_weights().end()},
                       ChunkSet::from_bytes(payload->second.manifest->chunk_count(), subscribe.chunks_held())});
    }
  }
  nodes_[node].core->handle_message(local(node), conn, message);
  pump(node);
}

void Simulation::on_chunk(NodeIndex node, ConnId conn, PayloadId id, ChunkIndex chunk, bool damaged, Cargo* /*cargo*/) {
  if (!nodes_[node].core) return;
  if (nodes_[node].reading_paused) network_.pause(link_of(node, conn), node);  // it had brought none before
  const Payload& payload = payloads_.at(id);
  ++result_.chunks_delivered;
  if (options_.on_delivery) {
    options_.on_delivery({network_.other_end(link_of(node, conn), node), node, id, chunk, damaged});
  }
  if (!damaged && has_intact(nodes_[node], id, chunk)) ++result_.chunks_delivered_twice;
  const ContentDigest& digest = payload.digests[chunk.value];
  nodes_[node].core->handle_chunk(
      local(node), conn,
      {id, chunk, payload.manifest->chunk_size(chunk), damaged ? wrong(digest) : digest, stand_in(damaged)});
  pump(node);
}

void Simulation::on_chunk_sent(NodeIndex node, ConnId conn) {
  if (!nodes_[node].core) return;
  nodes_[node].core->handle_chunk_sent(local(node), conn);
  pump(node);
}

}  // namespace weightcast::sim
