#include "transport/core/worker/peer_dials.h"

#include <fmt/format.h>

#include <cctype>
#include <string_view>
#include <utility>

#include "base/settings/endpoint.h"
#include "base/text.h"
#include "proto/limits.h"
#include "transport/core/deadline.h"
#include "transport/core/dial_reason.h"

namespace weightcast {
namespace {

// The origin asks for a few at a time.
constexpr std::size_t kProbesMax = 64;
constexpr std::string_view kTimedOut = "timed out";

std::string address_of(const NodeAddress& peer) { return Endpoint{peer.host, peer.port}.to_string(); }

std::string reason_of(const Error& why, const NodeAddress& peer) {
  const std::string_view text = dial_reason(why.detail, address_of(peer));
  if (text.empty()) return std::string(why.code == Errc::kTimedOut ? kTimedOut : "failed");
  std::string reason(cut_text(text, kReasonBytesMax));
  // The system's words begin with a capital, and abbreviations with two.
  if (reason.size() > 1 && std::islower(static_cast<unsigned char>(reason[1])) != 0) {
    reason[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(reason[0])));
  }
  return reason;
}

}  // namespace

void PeerDials::handle_probe(Instant now, const wire::Probe& probe, Duration patience) {
  if (!is_port(probe.address().port()) || probes_.size() >= kProbesMax) return;
  const ConnId conn = ids_.next();
  const NodeAddress peer{PeerId{probe.peer_id()}, probe.name().substr(0, kNameBytesMax), probe.address().host(),
                         static_cast<std::uint16_t>(probe.address().port())};
  probes_[conn] = {peer, now + patience};
  actions_.push(action::Connect{conn, peer.host, peer.port});
}

std::string PeerDials::name_of(ConnId conn) const {
  const auto probe = probes_.find(conn);
  return probe == probes_.end() ? std::string() : probe->second.peer.name;
}

void PeerDials::handle_probe_made(ConnId conn) {
  const auto probe = probes_.extract(conn);
  unreached_.erase(probe.mapped().peer.id);
  send(probe.mapped().peer, true, "");
}

void PeerDials::handle_probe_failed(ConnId conn, const Error& why) {
  const auto probe = probes_.extract(conn);
  const NodeAddress& peer = probe.mapped().peer;
  note_failed(peer, reason_of(why, peer), probe.mapped().due.has_value());
}

void PeerDials::handle_made(PeerId peer) {
  const auto unreached = unreached_.extract(peer);
  if (!unreached.empty()) send(unreached.mapped().peer, true, "");
}

void PeerDials::handle_failed(const NodeAddress& peer, const Error& why) {
  note_failed(peer, reason_of(why, peer), false);
}

void PeerDials::handle_overdue(const NodeAddress& peer) { note_failed(peer, std::string(kTimedOut), false); }

void PeerDials::handle_undialled(std::string_view who) {
  std::string said;
  if (!who.empty()) {
    said = fmt::format(
        "{}; it receives from those whom it dials, and feeds fewer or none; let that port through this host's "
        "firewall, or "
        "--listen 0.0.0.0 in place of loopback",
        printable(cut_text(who, kReasonBytesMax)));
  }
  if (said == undialled_) return;
  // Who lies of it again and again fills no log.
  actions_.push(action::caused_by(
      "origin", said.empty() ? action::info("others can dial this worker again") : action::warning(said)));
  undialled_ = std::move(said);
}

void PeerDials::note_failed(const NodeAddress& peer, std::string why, bool was_asked) {
  const auto known = unreached_.find(peer.id);
  const bool is_news = known == unreached_.end() || known->second.peer != peer || known->second.why != why;
  if (was_asked || is_news) send(peer, false, why);
  if (!is_news || (known == unreached_.end() && unreached_.size() >= kUnreachedMax)) return;
  const std::string name = peer.name.empty() ? fmt::format("peer {}", peer.id.value) : peer.name;
  actions_.push(action::caused_by(name, action::warning(fmt::format("cannot reach {} at {}: {}", printable(name),
                                                                    address_of(peer), printable(why)))));
  unreached_.insert_or_assign(peer.id, Unreached{peer, std::move(why)});
}

void PeerDials::send(const NodeAddress& peer, bool reached, const std::string& why) {
  wire::Message message;
  wire::Probed* probed = message.mutable_probed();
  probed->set_peer_id(peer.id.value);
  probed->set_reached(reached);
  probed->mutable_address()->set_host(peer.host);
  probed->mutable_address()->set_port(peer.port);
  probed->set_reason(why);
  origin_.send(std::move(message));
}

void PeerDials::handle_timeout(Instant now) {
  for (auto& [conn, probe] : probes_) {
    if (!probe.due || now < *probe.due) continue;
    probe.due.reset();
    note_failed(probe.peer, std::string(kTimedOut), true);
  }
}

std::optional<Instant> PeerDials::poll_deadline() const {
  EarliestDeadline earliest;
  for (const auto& [conn, probe] : probes_) earliest.consider(probe.due);
  return earliest.first();
}

}  // namespace weightcast
