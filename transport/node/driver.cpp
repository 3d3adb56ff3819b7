#include "transport/node/driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/core/manifest/payload_wire.h"
#include "transport/io/log.h"

namespace weightcast {
namespace {

// Frames that arrive on connections that others made: they bring messages alone, the largest a subscription's bitmap.
constexpr std::size_t kReceiveBudgetBytes = 32 * kMiB;
constexpr std::size_t kChildControlBytesMax = kMiB;
// Reports and progress; the largest names what each stripe lacks.
constexpr std::size_t kMemberControlBytesMax = 64 * kKiB;
// A name, an address, a list of what is held.
constexpr std::size_t kUnidentifiedControlBytesMax = 4 * kKiB;
// What a chunk counts that a member has had before, beside those that others still lack.
constexpr std::uint32_t kCostOfAnotherCopy = 4;

/// Of a connection that ended: whether the peer's bytes were the reason.
bool is_malformed(const Error& why) {
  return why.code == Errc::kCorrupt || (why.code == Errc::kTooLarge && why.op != Op::kSend);
}

}  // namespace

Driver::Driver(Core& core, Store& store, EventLoop& loop, Network& network, const DriverLimits& limits)
    : core_(core),
      store_(store),
      loop_(loop),
      network_(network),
      storing_bytes_max_(limits.storing_bytes_max),
      timer_(loop,
             [this] {
               core_.handle_timeout(loop_.now());
               pump();
             }),
      receive_budget_(kReceiveBudgetBytes),
      admission_(limits.admission),
      release_timer_(loop, [this] { release(); }) {}

Driver::~Driver() { *alive_ = false; }

void Driver::start() {
  core_.start(loop_.now());
  pump();
}

void Driver::accept(std::unique_ptr<FrameConnection> connection) {
  const ConnId conn = core_.next_conn();
  const std::string host = connection->peer_host();
  if (!admit(conn, host)) return;  // dropped, and closed with it
  connection->set_receive_limits(
      {.control_bytes_max = kUnidentifiedControlBytesMax, .chunk_bytes_max = 0, .budget = &receive_budget_});
  // Counted for as long as it has a descriptor.
  connection->keep_while_open(std::shared_ptr<void>(nullptr, [this, alive = alive_, conn](std::nullptr_t) {
    if (*alive) admission_.erase(conn);
  }));
  const bool awaits_peer = connection->awaits_peer();
  adopt(conn, std::move(connection));
  if (!awaits_peer) introduce(conn);
}

void Driver::introduce(ConnId conn) {
  Peer& peer = peers_.at(conn);
  peer.introduced = true;
  hear(conn, [&] { core_.handle_accepted(loop_.now(), conn, peer.connection->peer_host(), peer.connection->peer()); });
}

bool Driver::admit(ConnId conn, const std::string& host) {
  if (const Status status = admission_.admit(conn, host); !status.has_value()) {
    audit_.note(loop_.now(), Refusal::kCrowded, std::nullopt, host, status.error());
    return false;
  }
  if (const auto crowded_out = admission_.crowded_out()) {
    const Error why = fail(Errc::kBusy, Op::kReceive, "too many connections have not said who they are");
    if (const auto peer = peers_.find(*crowded_out); peer != peers_.end() && peer->second.connection) {
      audit_.note(loop_.now(), Refusal::kCrowded, std::nullopt, peer->second.connection->peer_host(), why);
    }
    peers_.erase(*crowded_out);  // at once, and without a word: there may be thousands
    core_.handle_closed(loop_.now(), *crowded_out, why);
  }
  return true;
}

void Driver::refuse_peers(const std::function<bool(const PeerIdentity&)>& is_refused) {
  std::vector<ConnId> refused;
  for (const auto& [conn, peer] : peers_) {
    const auto identity = peer.connection ? peer.connection->peer() : std::nullopt;
    if (identity && is_refused(*identity)) refused.push_back(conn);
  }
  for (const ConnId conn : refused) {
    const auto peer = peers_.find(conn);
    if (peer == peers_.end()) continue;
    const Error why = fail(Errc::kNotAllowed, Op::kVerify,
                           fmt::format("the keys of {} are revoked", peer->second.connection->peer()->name));
    const FrameConnection& connection = *peer->second.connection;
    audit_.note(loop_.now(), Refusal::kRevoked, connection.peer(), connection.peer_host(), why);
    peer->second.connection->send_control(bye_of(why).SerializeAsString());
    peer->second.connection->close();
    drop(conn);
    core_.handle_closed(loop_.now(), conn, why);
  }
  pump();
}

void Driver::note_handshake(const std::string& host, const Error& why) {
  const Refusal reason = why.op == Op::kVerify ? Refusal::kCertificate : Refusal::kHandshake;
  audit_.note(loop_.now(), reason, std::nullopt, host, why);
}

void Driver::note_identified(ConnId conn) {
  const auto peer = peers_.find(conn);
  if (peer == peers_.end() || !peer->second.connection) return;
  const Speaker speaker = core_.speaker_on(conn);
  if (speaker != Speaker::kMember && speaker != Speaker::kChild) return;
  admission_.identify(conn);
  FrameConnection& connection = *peer->second.connection;
  const std::optional<PeerIdentity> identity = connection.peer();
  MemberAccount& account = accounts_.open(conn, identity ? identity->name : core_.name_on(conn));
  connection.set_uplink_share(account.uplink);
  connection.set_receive_limits(
      {.control_bytes_max = speaker == Speaker::kMember ? kMemberControlBytesMax : kChildControlBytesMax,
       .chunk_bytes_max = 0,
       .budget = &receive_budget_,
       .holder = account.memory});
  if (account.is_held(loop_.now())) hold_back(conn, account);
}

template <typename Tell>
void Driver::hear(ConnId conn, Tell tell) {
  speaking_ = conn;
  tell();
  pump();
  speaking_ = ConnId{};
  speaking_name_.clear();
}

std::string Driver::peer_name(ConnId conn) {
  const auto peer = peers_.find(conn);
  if (peer == peers_.end() || !peer->second.connection) return {};
  const std::optional<PeerIdentity> identity = peer->second.connection->peer();
  if (core_.speaker_on(conn) == Speaker::kOrigin || (identity && identity->role == Role::kOrigin)) return {};
  if (identity && identity->role != Role::kStranger) return identity->name;
  const std::string name = core_.name_on(conn);
  return name.empty() ? peer->second.connection->peer_host() : name;
}

Status Driver::take_control(ConnId conn, std::string_view body) {
  if (!peers_.contains(conn)) return {};  // the core has closed it a moment ago
  const Duration before = loop_.processor_time();
  MemberAccount* account = accounts_.find(conn);  // who is closed for it pays, too
  Status taken;
  hear(conn, [&] { taken = core_.handle_control(loop_.now(), conn, body); });
  if (admission_.is_unidentified(conn)) note_identified(conn);
  if (account == nullptr) account = accounts_.find(conn);
  if (account == nullptr || !account->charge(loop_.now(), body.size(), loop_.processor_time() - before)) return taken;
  if (!account->holds.spend(loop_.now())) {
    core_.handle_excess(account->name);
    pump();
  }
  for (const ConnId of_member : account->conns) hold_back(of_member, *account);
  return taken;
}

void Driver::release() {
  for (const ConnId conn : std::exchange(held_back_, {})) {
    MemberAccount* const account = accounts_.find(conn);
    if (account != nullptr && account->is_held(loop_.now())) {
      hold_back(conn, *account);
    } else if (const auto peer = peers_.find(conn); peer != peers_.end()) {
      throttle(conn, peer->second);
    }
  }
}

void Driver::hold_back(ConnId conn, MemberAccount& account) {
  held_back_.insert(conn);
  if (const auto peer = peers_.find(conn); peer != peers_.end()) throttle(conn, peer->second);
  if (!release_timer_.armed() || account.held_until < release_due_) {
    release_due_ = account.held_until;
    release_timer_.arm(release_due_);
  }
}

void Driver::adopt(ConnId conn, std::unique_ptr<FrameConnection> connection) {
  FrameConnection::Handlers handlers;
  handlers.on_control = [this, conn](const std::string& body) { return take_control(conn, body); };
  handlers.on_chunk = [this, conn](ReceivedChunk chunk) {
    if (!peers_.contains(conn)) return;
    hear(conn, [&] {
      core_.handle_chunk(loop_.now(), conn,
                         {chunk.payload, chunk.chunk, static_cast<std::uint32_t>(chunk.bytes->size()), chunk.digest,
                          std::move(chunk.bytes)});
    });
  };
  handlers.on_peer = [this, conn] { introduce(conn); };
  handlers.on_closed = [this, conn](const Error& why) {
    const auto peer = peers_.find(conn);
    if (peer == peers_.end()) return;  // the core has closed it a moment ago
    const bool known = peer->second.introduced;
    const FrameConnection& ended = *peer->second.connection;
    if (!known) {
      note_handshake(ended.peer_host(), why);
    } else if (is_malformed(why)) {
      audit_.note(loop_.now(), Refusal::kMalformed, ended.peer(), ended.peer_host(), why);
    }
    hear(conn, [&] {
      drop(conn);
      if (known) core_.handle_closed(loop_.now(), conn, why);  // else the core has never heard of it
    });
  };
  connection->set_handlers(std::move(handlers));
  peers_[conn].connection = std::move(connection);
}

void Driver::drop(ConnId conn) {
  const auto found = peers_.find(conn);
  if (found == peers_.end()) return;
  if (conn == speaking_) speaking_name_ = peer_name(conn);
  admission_.identify(conn);  // nobody waits for its greeting
  accounts_.close(conn);
  held_back_.erase(conn);
  // Its own callback may be running: let go of it at the next turn.
  loop_.post([peer = std::make_shared<Peer>(std::move(found->second))] {});
  peers_.erase(found);
}

void Driver::pump() {
  if (pumping_) return;  // whoever is pumping gets to it
  pumping_ = true;
  while (std::optional<Action> next = core_.poll_action()) perform(std::move(*next));
  retain_holdings();
  pumping_ = false;
  // Deadlines mostly move back, with every chunk. A timer that comes early for one costs a wake-up a second or so;
  // arming it anew for each costs a system call per chunk.
  if (const auto due = core_.poll_deadline(); due && (!timer_.armed() || *due < timer_due_)) {
    timer_.arm(*due);
    timer_due_ = *due;
  }
  if (observer_) observer_();
}

void Driver::retain_holdings() {
  std::vector<PayloadId> retained = core_.retained();
  if (retained == retained_) return;
  retained_ = std::move(retained);
  store_.retain(retained_);
}

void Driver::perform(Action action) {
  std::visit([this](auto& a) { perform(std::move(a)); }, action);
}

void Driver::perform(action::Connect connect) {
  const ConnId conn = connect.conn;
  const auto on_done = [this, conn, target = connect.host](Result<std::unique_ptr<FrameConnection>> made) {
    const auto peer = peers_.find(conn);
    if (peer == peers_.end()) return;  // the core has closed it while this was on its way
    if (!made.has_value()) {
      // Whoever answered there is not of this cluster, or says that this node is not.
      if (made.error().code == Errc::kNotAllowed) note_handshake(target, made.error());
      drop(conn);
      core_.handle_closed(loop_.now(), conn, made.error());
    } else {
      // The attempt's own callback is running: it must outlive it.
      loop_.post([attempt = std::shared_ptr<Network::Attempt>(std::move(peer->second.attempt))] {});
      const std::optional<PeerIdentity> identity = (*made)->peer();
      adopt(conn, std::move(*made));
      peer->second.introduced = true;
      core_.handle_connected(loop_.now(), conn, identity);
    }
    pump();
  };
  peers_[conn].attempt = network_.dial({connect.host, connect.port}, on_done);
}

void Driver::perform(action::Send send) {
  const auto peer = peers_.find(send.conn);
  if (peer == peers_.end() || !peer->second.connection) return;  // closed meanwhile; the core will hear
  // Before the first chunk: each new parent would bring one to a disk that is behind.
  if (send.message.has_subscribe()) {
    peer->second.brings_chunks = true;
    throttle(send.conn, peer->second);
  }
  peer->second.connection->send_control(send.message.SerializeAsString());
}

void Driver::perform(action::SendChunk send) {
  const auto peer = peers_.find(send.conn);
  if (peer == peers_.end() || !peer->second.connection) return;
  if (const MemberAccount* const account = accounts_.find(send.conn)) {
    account->uplink->set_cost(send.again_max.limited() ? kCostOfAnotherCopy : 1);
    account->uplink->set_rate_max(send.again_max);
  }
  // What has just come in is in memory: then it goes on at once, if nothing before it waits for the disk.
  BufferRef cached = store_.cached_chunk(send.payload, send.chunk);
  const bool in_memory = cached != nullptr;
  const std::uint64_t place = peer->second.order.add({send.payload, send.chunk, std::move(cached)});
  if (in_memory) return send_ready(send.conn);
  store_.read_chunk(send.payload, send.chunk, [this, alive = alive_, send, place](Result<BufferRef> bytes) {
    if (!*alive) return;
    const auto found = peers_.find(send.conn);
    if (found == peers_.end() || !found->second.connection) return;
    if (bytes.has_value()) {
      found->second.order.fill(place, std::move(*bytes));
      return send_ready(send.conn);
    }
    log_error("version {}, chunk {}: {}", send.payload.version.value, send.chunk.value, bytes.error().message());
    core_.handle_chunk_unreadable(loop_.now(), send.payload, send.chunk);
    found->second.connection->close();
    drop(send.conn);
    core_.handle_closed(loop_.now(), send.conn, bytes.error());
    pump();
  });
}

void Driver::send_ready(ConnId conn) {
  for (;;) {
    // To send one may end the connection.
    const auto peer = peers_.find(conn);
    if (peer == peers_.end()) return;
    std::optional<SendOrder::Chunk> next = peer->second.order.poll();
    if (!next) return;
    const std::size_t size = next->bytes->size();
    peer->second.connection->send_chunk(next->payload, next->chunk, std::move(next->bytes),
                                        [this, conn, size, kind = next->payload.kind] {
                                          sent_.add(kind, size);
                                          core_.handle_chunk_sent(loop_.now(), conn);
                                          pump();
                                        });
  }
}

void Driver::perform(const action::CheckChunk& check) {
  store_.read_chunk(check.payload, check.chunk, [this, alive = alive_, check](Result<BufferRef> bytes) {
    if (!*alive) return;
    if (!bytes.has_value()) {
      core_.handle_chunk_checked(loop_.now(), check.payload, check.chunk, bytes.error());
      return pump();
    }
    auto digest = std::make_shared<ContentDigest>();
    loop_.offload([digest, held = *bytes] { *digest = content_digest_of(held->bytes()); },
                  [this, alive, check, digest] {
                    if (!*alive) return;
                    core_.handle_chunk_checked(loop_.now(), check.payload, check.chunk, *digest);
                    pump();
                  });
  });
}

void Driver::perform(action::Close close) {
  const auto peer = peers_.find(close.conn);
  if (peer == peers_.end()) return;
  if (peer->second.connection) peer->second.connection->close();
  drop(close.conn);
}

void Driver::perform(action::BeginPayload begin) {
  WC_CHECK(receiver_ != nullptr);
  const PayloadId payload = begin.manifest->id();
  retain_holdings();  // what is not needed any more makes room for it
  store_.begin(*begin.manifest, [this, alive = alive_, payload](Result<PartialVersion> begun) {
    if (!*alive) return;
    if (begun.has_value()) {
      receiver_->handle_payload_begun(loop_.now(), payload,
                                      RestoredPayload{std::move(begun->chunk_digests), std::move(begun->held)});
    } else {
      receiver_->handle_payload_begun(loop_.now(), payload, begun.error());
    }
    pump();
  });
}

void Driver::perform(const action::GrowPayload& grow) { store_.grow(*grow.manifest); }

void Driver::perform(action::PutDigestPart put) { store_.put_digest_part(put.payload, put.part, put.digests); }

void Driver::perform(action::StoreChunk store) {
  const std::size_t size = store.bytes->size();
  storing_bytes_ += size;
  received_.add(store.payload.kind, size);
  throttle_reading();
  store_.write_chunk(store.payload, store.chunk, std::move(store.bytes),
                     [this, alive = alive_, payload = store.payload, chunk = store.chunk, size](const Status& status) {
                       if (!*alive) return;
                       storing_bytes_ -= size;
                       throttle_reading();
                       receiver_->handle_chunk_stored(loop_.now(), payload, chunk, status);
                       pump();
                     });
}

void Driver::throttle_reading() {
  // Resumed at half, so that a disk at its limit does not toggle this for every chunk.
  const bool behind = storing_bytes_ > (disk_is_behind_ ? storing_bytes_max_ / 2 : storing_bytes_max_);
  if (behind == disk_is_behind_) return;
  disk_is_behind_ = behind;
  receiver_->handle_disk_behind(loop_.now(), behind);
  for (auto& [conn, peer] : peers_) throttle(conn, peer);
}

void Driver::throttle(ConnId conn, Peer& peer) {
  const MemberAccount* const account = accounts_.find(conn);
  const bool is_held = account != nullptr && account->is_held(loop_.now());
  const bool pause = is_held || (disk_is_behind_ && peer.brings_chunks);
  if (!peer.connection || pause == peer.paused) return;
  peer.paused = pause;
  pause ? peer.connection->pause_reading() : peer.connection->resume_reading();
}

void Driver::perform(action::FinishPayload finish) {
  store_.finish(finish.payload, [this, alive = alive_, payload = finish.payload](Result<StoredVersion> done) {
    if (!*alive) return;
    const Duration switching = done.has_value() ? from_seconds(done->switch_s) : Duration::zero();
    receiver_->handle_finished(loop_.now(), payload, done.has_value() ? Status{} : Status{done.error()}, switching);
    pump();
  });
}

void Driver::read_archive(std::unique_ptr<PayloadArchive> archive, unsigned ranges_at_once) {
  archive_ = std::make_unique<ArchiveReader>(
      loop_, std::move(archive), ranges_at_once,
      ArchiveReader::Handlers{
          .on_found =
              [this](PayloadId payload, std::uint32_t request, Result<std::vector<ContentDigest>> found) {
                receiver_->handle_archive_found(loop_.now(), payload, request, std::move(found));
                pump();
              },
          .on_chunk =
              [this](std::uint32_t request, const ChunkArrival& chunk) {
                receiver_->handle_archive_chunk(loop_.now(), request, chunk);
                pump();
              },
          .on_ended =
              [this](PayloadId payload, std::uint32_t request, const Status& status) {
                receiver_->handle_archive_ended(loop_.now(), payload, request, status);
                pump();
              }});
}

void Driver::perform(const action::FindArchived& find) {
  WC_CHECK(archive_ != nullptr);
  archive_->find(find);
}

void Driver::perform(const action::ReadArchived& read) {
  WC_CHECK(archive_ != nullptr);
  archive_->read(read);
}

void Driver::perform(const action::EndArchived& end) { archive_->end(end.request); }

void Driver::handle_version_lost(Version version, const Error& why) {
  const StoredVersion* newest = store_.find(store_.current());
  core_.handle_version_lost(loop_.now(), version,
                            newest == nullptr ? nullptr : std::make_shared<const Manifest>(newest->manifest), why);
  pump();
}

void Driver::perform(action::DiscardPayload discard) { store_.discard(discard.payload); }

void Driver::perform(action::MakePayload make) {
  WC_CHECK(make_payload_ != nullptr);
  make_payload_(make.payload);
}

void Driver::perform(action::FollowRun follow) {
  WC_CHECK(follow_run_ != nullptr);
  follow_run_(follow);
}

void Driver::perform(action::TakeRevocations take) {
  if (!take_revocations_) return;
  // It closes connections; the core is in the middle of something.
  loop_.post([this, alive = alive_, list = std::move(take.list)] {
    if (*alive) take_revocations_(list);
  });
}

void Driver::perform(action::Enroll enroll) {
  WC_CHECK(enroll_ != nullptr);
  enroll_(std::move(enroll));
}

void Driver::perform(const action::Refused& refused) {
  const auto peer = peers_.find(refused.conn);
  if (peer == peers_.end() || !peer->second.connection) return;
  const FrameConnection& connection = *peer->second.connection;
  audit_.note(loop_.now(), refused.reason, connection.peer(), connection.peer_host(), refused.why);
}

void Driver::perform(const action::Log& log) {
  const bool warns = log.level == action::Log::Level::kWarning;
  std::string text = log.text;
  const std::string who = !log.peer.empty()         ? log.peer
                          : !speaking_name_.empty() ? speaking_name_
                                                    : peer_name(speaking_);
  if (!who.empty() && !log.is_own) {
    const std::uint64_t left_out = log_allowance_.left_out(who);
    if (left_out > 0) text += fmt::format(" ({} more by {} since the last line)", left_out, who);
    const std::size_t bytes = log_line_bytes(warns ? LogLevel::kWarning : LogLevel::kInfo, text);
    if (!log_allowance_.admit(loop_.now(), who, bytes)) return;
  }
  if (warns) {
    log_warning("{}", text);
  } else {
    log_info("{}", text);
  }
}

}  // namespace weightcast
