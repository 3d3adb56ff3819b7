#include "transport/core/core.h"

#include <fmt/format.h>

#include "proto/limits.h"
#include "proto/message_kind.h"
#include "transport/core/manifest/payload_wire.h"
#include "transport/core/peer_check.h"

namespace weightcast {

Core::Core(const Timeouts& timeouts, const ProtocolRange& protocols)
    : timeouts_(timeouts),
      protocols_spoken_(protocols),
      uploads_(timeouts_, holdings_, actions_),
      unidentified_(timeouts.greeting),
      self_check_(holdings_, actions_) {}

void Core::handle_accepted(Instant now, ConnId conn, std::string_view peer_host,
                           const std::optional<PeerIdentity>& peer) {
  unidentified_.add(now, conn, peer_host, peer);
  budgets_.emplace(conn, Budget(kPeerMessagesPerSecond, kPeerMessagesBurst));
}

Speaker Core::speaker_on(ConnId conn) const {
  if (unidentified_.contains(conn)) return Speaker::kStranger;
  return uploads_.is_child(conn) ? Speaker::kChild : Speaker::kNobody;
}

Status Core::handle_control(Instant now, ConnId conn, std::string_view body) {
  WC_ASSIGN(const std::uint32_t kind, message_kind_of(body));
  const Speaker speaker = speaker_on(conn);
  switch (fate_of(speaker, kind)) {
    case MessageFate::kIgnored:
      if (speaker != Speaker::kNobody) handle_message(now, conn, {});  // that something came does count
      return {};
    case MessageFate::kRefused: {
      const auto* known = wire::Message::descriptor()->FindFieldByNumber(static_cast<int>(kind));
      if (speaker == Speaker::kStranger) break;  // the role says what should have come first
      handle_refused(now, conn,
                     fail(Errc::kNotAllowed, Op::kReceive,
                          fmt::format("{}: no node sends that there", known == nullptr ? "" : known->name())));
      return {};
    }
    case MessageFate::kRead: break;
  }
  wire::Message message;
  if (!message.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    return fail(Errc::kCorrupt, Op::kParse, "control message: not what this protocol sends");
  }
  handle_message(now, conn, message);
  return {};
}

void Core::handle_refused(Instant /*now*/, ConnId conn, const Error& why) { refuse(conn, why); }

bool Core::admit_message(Instant now, ConnId conn) {
  const auto budget = budgets_.find(conn);
  if (budget == budgets_.end() || budget->second.spend(now)) return true;
  refuse(conn,
         fail(Errc::kTooLarge, Op::kReceive, fmt::format("more than {} messages a second", kPeerMessagesPerSecond)),
         Refusal::kCrowded);
  return false;
}

void Core::handle_child_message(Instant now, ConnId conn, const wire::Message& message, std::string_view greeting) {
  using Kind = wire::Message::KindCase;
  if (unidentified_.contains(conn) && !message.has_hello()) {
    return refuse(conn, fail(Errc::kNotAllowed, Op::kReceive, fmt::format("the first message is not {}", greeting)));
  }
  switch (message.kind_case()) {
    case Kind::kHello: return handle_hello(conn, message.hello());
    case Kind::kSubscribe:
      if (Status s = uploads_.handle_subscribe(now, conn, message.subscribe()); !s.has_value()) refuse(conn, s.error());
      return;
    case Kind::kUnsubscribe: return uploads_.handle_unsubscribe(conn, message.unsubscribe());
    case Kind::kSkip: return uploads_.handle_skip(conn, message.skip());
    case Kind::kChunkDamaged:
      if (!uploads_.is_child(conn)) return;
      return handle_suspected(now, payload_of(message.chunk_damaged()), ChunkIndex{message.chunk_damaged().chunk()});
    default: return;  // a newer child may say more
  }
}

Status Core::check_hello(ConnId conn, const wire::Hello& hello) const {
  if (!unidentified_.contains(conn)) {
    return fail(Errc::kNotAllowed, Op::kReceive, "hello: this connection is introduced already");
  }
  if (const std::optional<PeerIdentity>& peer = unidentified_.peer(conn)) {
    WC_TRY(check_speaks_as(*peer, Role::kWorker, hello.name(), "hello"));
  }
  if (uploads_.connections_of({child_id(hello), hello.name()}) >= kConnectionsPerPeerMax) {
    return fail(Errc::kTooLarge, Op::kReceive,
                fmt::format("hello: it has {} connections here already", kConnectionsPerPeerMax));
  }
  return {};
}

void Core::handle_hello(ConnId conn, const wire::Hello& hello) {
  const Result<std::uint32_t> protocol =
      agree_protocol(protocols_spoken_, protocol_range(hello.protocol(), hello.protocol_max()), "node");
  if (!protocol.has_value()) return refuse(conn, protocol.error());
  if (const Status fits = check_hello(conn, hello); !fits.has_value()) {
    return refuse(conn, fits.error(), fits.error().op == Op::kVerify ? Refusal::kIdentity : Refusal::kMessage);
  }
  unidentified_.erase(conn);
  uploads_.handle_hello(conn, {child_id(hello), hello.name().substr(0, kNameBytesMax)});
  actions_.protocols().agree(conn, *protocol);
  wire::Message message;
  message.mutable_welcome()->set_protocol(*protocol);
  actions_.push(action::Send{conn, std::move(message)});
}

void Core::close(ConnId conn, const Error& why) {
  actions_.push(action::Send{conn, bye_of(why)});
  actions_.push(action::Close{conn});
  forget(conn);
}

void Core::refuse(ConnId conn, const Error& why, Refusal reason) {
  actions_.push(action::Refused{conn, reason, why});
  close(conn, why);
}

void Core::forget(ConnId conn) {
  unidentified_.erase(conn);
  budgets_.erase(conn);
  uploads_.handle_closed(conn);
  actions_.protocols().forget(conn);
}

void Core::handle_chunk_unreadable(Instant now, PayloadId payload, ChunkIndex chunk) {
  handle_suspected(now, payload, chunk);
}

void Core::handle_chunk_checked(Instant now, PayloadId payload, ChunkIndex chunk, const Result<ContentDigest>& digest) {
  if (const auto wrong = self_check_.handle_checked(now, payload, chunk, digest)) handle_damaged(now, payload, *wrong);
}

std::vector<PayloadId> Core::retained() const {
  std::vector<PayloadId> payloads;
  payloads.reserve(holdings_.size());
  for (const auto& [payload, holding] : holdings_) payloads.push_back(payload);
  return payloads;
}

void Core::handle_timeout(Instant now) {
  for (const ConnId conn : unidentified_.overdue(now)) {
    refuse(conn, fail(Errc::kTimedOut, Op::kReceive, "neither Join nor Hello came in time on this connection"),
           Refusal::kSilent);
  }
  uploads_.handle_timeout(now);
  for (const ConnId conn : uploads_.take_placeless()) {
    handle_placeless(now, conn);
    refuse(conn, fail(Errc::kNotAllowed, Op::kReceive, "subscribe: it has no place in a plan of that payload"));
  }
}

std::optional<Instant> Core::poll_deadline() const {
  EarliestDeadline earliest;
  earliest.consider(unidentified_.poll_deadline());
  earliest.consider(uploads_.poll_deadline());
  return earliest.first();
}

}  // namespace weightcast
