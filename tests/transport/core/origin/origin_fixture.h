#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/transport/core/payload_fixture.h"
#include "tests/transport/core/worker_fixture.h"
#include "transport/core/origin/origin_core.h"

namespace weightcast {

/// One origin, spoken to message by message.
struct OriginCoreTest : testing::Test {
  using Kind = wire::Message::KindCase;

  OriginConfig config = [] {
    OriginConfig c;
    c.run = RunId{0x2};
    c.patches = false;            // nobody here makes them
    c.addresses_allowed = {"*"};  // all come from "host"
    c.topology = Topology::kChain;
    c.uplink = Rate::bits(100e6);
    c.timeouts.silence = std::chrono::hours(1000);  // nobody here sends heartbeats
    return c;
  }();
  OriginCore origin{config};
  Instant now{std::chrono::hours(1)};
  std::map<std::string, ConnId> conns;
  std::map<ConnId, action::Connect> probes;
  std::map<ConnId, std::vector<wire::Message>> said;
  std::vector<std::string> warnings;
  std::vector<std::string> charged;  // who pays for each of them, beside whoever spoke
  std::vector<std::string> milestones;
  std::vector<ConnId> closed;

  /// What has changed is settled a moment later, by the core's own deadline.
  void run() {
    drain_actions();
    for (auto due = origin.poll_deadline(); due && *due <= now + std::chrono::milliseconds(100);
         due = origin.poll_deadline()) {
      origin.handle_timeout(std::max(now, *due));
      drain_actions();
    }
  }
  void drain_actions() {
    for (const Action& action : drain([&] { return origin.poll_action(); })) {
      note(action);
      if (const auto* close = std::get_if<action::Close>(&action)) closed.push_back(close->conn);
      if (const auto* send = std::get_if<action::Send>(&action)) said[send->conn].push_back(send->message);
      if (const auto* log = std::get_if<action::Log>(&action); log && log->level == action::Log::Level::kWarning) {
        warnings.push_back(log->text);
        charged.push_back(log->peer);
      } else if (log && log->is_own) {
        milestones.push_back(log->text);
      }
      if (const auto* connect = std::get_if<action::Connect>(&action)) probes[connect->conn] = *connect;
    }
  }
  /// For a test that asks for more of what the origin does.
  virtual void note(const Action& /*action*/) {}
  void SetUp() override { origin.start(now); }

  static wire::Message join_message(const std::string& name) {
    wire::Message message = weightcast::join_message(name);
    wire::Join* join = message.mutable_join();
    join->mutable_listen()->set_host(name);
    join->mutable_listen()->set_port(1);
    join->set_uplink_bytes_per_s(12.5e6);
    join->set_downlink_bytes_per_s(12.5e6);
    return message;
  }
  /// With that version installed: with these bytes of it, if it says which.
  static wire::Message join_message_with(const std::string& name, std::uint64_t installed,
                                         const std::optional<Checksum>& digest = std::nullopt) {
    wire::Message message = join_message(name);
    message.mutable_join()->set_installed_version(installed);
    if (digest) message.mutable_join()->set_installed_digest(digest->bytes.data(), Checksum::kBytes);
    return message;
  }
  /// In the middle of that version.
  static wire::Message join_message_amid(const std::string& name, std::uint64_t version) {
    wire::Message message = join_message(name);
    payload_to_wire(Version{version}, *message.mutable_join()->mutable_receiving());
    return message;
  }
  /// Accepts a connection, whose other end may have proven who it is, and hears `message` on it.
  ConnId hear(const std::optional<PeerIdentity>& peer, const wire::Message& message) {
    const ConnId conn = origin.next_conn();
    origin.handle_accepted(now, conn, "host", peer);
    origin.handle_message(now, conn, message);
    run();
    return conn;
  }
  ConnId hear(const wire::Message& message) { return hear(std::nullopt, message); }
  void join(const std::string& name, const wire::Message& message) { conns[name] = hear(message); }
  void join(const std::string& name) { join(name, join_message(name)); }
  void answer_probes(bool reached) {
    for (const auto& [conn, connect] : std::exchange(probes, {})) {
      if (reached) {
        origin.handle_connected(now, conn);
      } else {
        origin.handle_closed(now, conn, fail(Errc::kClosed, Op::kConnect, "no way there"));
      }
    }
    run();
  }
  void publish(std::uint64_t version) {
    origin.handle_publish(now, now, {manifest_of(Version{version}, 100), chunk_digests(Version{version}, 100)});
    run();
  }
  /// The origin finds that its own copy is damaged.
  void withdraw(std::uint64_t version) {
    origin.handle_chunk_unreadable(now, Version{version}, ChunkIndex{2});
    origin.handle_chunk_checked(now, Version{version}, ChunkIndex{2},
                                fail(Errc::kIo, Op::kRead, "the file is shorter"));
    run();
  }
  const Member& member(const std::string& name) {
    const auto& all = origin.members().all();
    return std::ranges::find_if(all, [&](const auto& m) { return m.second.name == name; })->second;
  }
  void tell(const std::string& name, wire::Message message) {
    origin.handle_message(now, conns.at(name), message);
    run();
  }
  /// It is in the middle of that.
  void receives(const std::string& name, std::uint64_t version, std::uint32_t chunks_verified = 0) {
    wire::Message message;
    payload_to_wire(Version{version}, *message.mutable_heartbeat()->mutable_receiving());
    message.mutable_heartbeat()->set_chunks_verified(chunks_verified);
    tell(name, message);
  }
  void lose(const std::string& name) {
    origin.handle_closed(now, conns.at(name), fail(Errc::kClosed, Op::kReceive, "gone"));
    run();
  }
  void installed(const std::string& name, std::uint64_t version,
                 const std::optional<wire::InstallPhases>& phases = std::nullopt) {
    wire::Message message =
        installed_message(Version{version}, origin.holdings().at(Version{version}).manifest().snapshot_digest);
    if (phases) *message.mutable_installed()->mutable_phases() = *phases;
    tell(name, message);
  }
  void complain(const std::string& child, PeerId parent, wire::FaultKind kind) {
    wire::Message message;
    set_payload(*message.mutable_parent_fault(), Version{1});
    message.mutable_parent_fault()->set_parent_id(parent.value);
    message.mutable_parent_fault()->set_kind(kind);
    tell(child, message);
  }
  void complain(const std::string& child, const std::string& parent, wire::FaultKind kind) {
    complain(child, member(parent).id, kind);
  }
  PeerId parent_of(const std::string& name) {
    const Plan& plan = *origin.publications().latest_plan();
    const auto at = std::ranges::find(plan.members, member(name).id) - plan.members.begin();
    return plan.stripes.at(0).parents.at(std::size_t(at));
  }
  /// Why `conn` was closed; "" if nobody said goodbye to it.
  std::string refusal(ConnId conn) { return said[conn].empty() ? "" : said[conn].back().bye().reason(); }
  std::string refusal(const std::string& name) { return refusal(conns.at(name)); }
  /// What was announced to it, in that order.
  std::vector<PayloadId> announced_to(const std::string& name) {
    std::vector<PayloadId> payloads;
    for (const wire::Message& message : heard_by(name, Kind::kAnnounce)) {
      payloads.push_back(payload_from_wire(message.announce().manifest().payload()));
    }
    return payloads;
  }
  /// What it was told is no more, in that order.
  std::vector<PayloadId> gone_for(const std::string& name) {
    std::vector<PayloadId> payloads;
    for (const wire::Message& message : heard_by(name, Kind::kNotAvailable)) {
      payloads.push_back(payload_of(message.not_available()));
    }
    return payloads;
  }
  std::vector<wire::Message> heard_by(const std::string& name, Kind kind) {
    std::vector<wire::Message> found;
    for (const auto& message : said[conns.at(name)]) {
      if (message.kind_case() == kind) found.push_back(message);
    }
    return found;
  }
};

}  // namespace weightcast
