#include "transport/core/origin/reachability.h"

#include <fmt/format.h>

namespace weightcast {
namespace {

// How many of those whom the origin cannot dial a new worker is asked to try.
constexpr std::size_t kProbesAsked = 16;

}  // namespace

void Reachability::handle_joined(Member& member) {
  member.unreachable = false;
  unreachable_.erase(member.id);
  if (!member.leaf_only) {
    const ConnId conn = conn_ids_.next();
    probes_[conn] = member.id;
    actions_.push(action::Connect{conn, member.host, member.port});
  }
  std::size_t asked = 0;
  for (const PeerId id : unreachable_) {
    const Member* other = members_.find(id);
    if (other == nullptr || !other->connected()) continue;
    ask_to_probe(member, *other);
    if (++asked == kProbesAsked) break;
  }
}

void Reachability::handle_connected(ConnId conn) {
  if (probes_.erase(conn) > 0) actions_.push(action::Close{conn});
}

bool Reachability::handle_closed(ConnId conn, std::string_view why) {
  const auto probe = probes_.extract(conn);
  Member* member = members_.find(probe.mapped());
  if (member == nullptr || !member->connected()) return false;
  member->unreachable = true;
  unreachable_.insert(member->id);
  actions_.push(action::warning(
      fmt::format("worker {} cannot be dialled at {}:{} ({}); unless others can, it receives and does not forward",
                  member->name, member->host, member->port, why)));
  for (const auto& [id, other] : members_.all()) {
    if (!other.connected() || id == member->id) continue;
    ask_to_probe(other, *member);
    break;
  }
  return true;
}

bool Reachability::handle_probed(const wire::Probed& probed) {
  Member* member = members_.find(PeerId{probed.peer_id()});
  if (member == nullptr || !probed.reached() || !member->unreachable) return false;
  member->unreachable = false;
  unreachable_.erase(member->id);
  actions_.push(action::info(fmt::format("worker {} can be dialled by others, though not from here", member->name)));
  return true;
}

void Reachability::forget_lost() {
  std::erase_if(unreachable_, [&](PeerId id) {
    const Member* member = members_.find(id);
    return member == nullptr || !member->connected();
  });
}

void Reachability::ask_to_probe(const Member& prober, const Member& member) {
  wire::Message message;
  message.mutable_probe()->set_peer_id(member.id.value);
  message.mutable_probe()->mutable_address()->set_host(member.host);
  message.mutable_probe()->mutable_address()->set_port(member.port);
  actions_.push(action::Send{prober.conn, std::move(message)});
}

}  // namespace weightcast
