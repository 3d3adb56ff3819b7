#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/admission.h"
#include "transport/core/worker/worker_core.h"
#include "transport/io/event_loop.h"
#include "transport/io/net/network.h"
#include "transport/io/net/send_order.h"
#include "transport/io/store/store.h"
#include "transport/node/members/audit.h"
#include "transport/node/members/log_allowance.h"
#include "transport/node/members/member_accounts.h"
#include "transport/node/payload/archive_reader.h"

namespace weightcast {

struct DriverLimits {
  std::uint64_t storing_bytes_max = 24 * kMiB;
  AdmissionLimits admission;
};

/// Runs a Core over real connections and a real store: performs its actions, feeds it what happens. One per node, on
/// the loop's thread. What it is made with outlives it.
///
/// Back-pressure: chunks that are handed to the store and not on disk yet take `storing_bytes_max` at most, and one
/// chunk of each connection more. While they do, no connection that ever brought a chunk is read, whenever it was made:
/// a disk that is slower than the network slows the network, not the memory.
///
/// What a member gets, it gets once, however many connections it has: see MemberAccount. Who has used its share up is
/// read more slowly.
class Driver {
 public:
  Driver(Core& core, Store& store, EventLoop& loop, Network& network, const DriverLimits& limits);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  void start();
  /// A connection that a listener accepted.
  void accept(std::unique_ptr<FrameConnection> connection);
  /// Tells those whom the node no longer accepts why, and closes their connections.
  void refuse_peers(const std::function<bool(const PeerIdentity&)>& is_refused);
  /// Performs what the core wants done. To be called after every call into the core that does not come from here.
  void pump();
  /// What the store answers goes to `worker`, which is the core; a worker's only.
  void receive_for(WorkerCore& worker) { receiver_ = &worker; }
  /// Makes a payload of versions in the store; an origin's only. `make` answers to OriginCore::handle_payload_begun()
  /// and so on.
  void on_make_payload(std::function<void(PayloadId)> make) { make_payload_ = std::move(make); }
  /// Begins another run, as action::FollowRun says; a worker's only.
  void on_follow_run(std::function<void(action::FollowRun)> follow) { follow_run_ = std::move(follow); }
  /// Goes by a list of revoked keys that the origin has sent; a worker's only.
  void on_revocations(std::function<void(const std::string& list)> take) { take_revocations_ = std::move(take); }
  /// Gives machines without a certificate one; an origin's only. `enroll` answers to OriginCore::handle_enrolled().
  void on_enroll(std::function<void(action::Enroll)> enroll) { enroll_ = std::move(enroll); }
  /// Reads that archive, so many ranges at once; a worker's only.
  void read_archive(std::unique_ptr<PayloadArchive> archive, unsigned ranges_at_once);
  /// The store has lost a complete version, as Store::on_lost() says.
  void handle_version_lost(Version version, const Error& why);
  /// Runs `observer` after each pump(), for whoever waits for a change (the local API).
  void on_change(std::function<void()> observer) { observer_ = std::move(observer); }

  /// Whom this node has turned away.
  [[nodiscard]] const Audit& audit() const { return audit_; }
  [[nodiscard]] Audit& audit() { return audit_; }
  [[nodiscard]] std::uint64_t chunk_bytes_sent() const { return sent_.total(); }
  /// Bytes of chunks by the kind of their payload.
  struct PayloadBytes {
    std::array<std::uint64_t, 4> of_kind{};

    void add(PayloadKind kind, std::uint64_t bytes) { of_kind.at(static_cast<std::size_t>(kind)) += bytes; }
    [[nodiscard]] std::uint64_t of(PayloadKind kind) const { return of_kind.at(static_cast<std::size_t>(kind)); }
    [[nodiscard]] std::uint64_t total() const {
      return std::accumulate(of_kind.begin(), of_kind.end(), std::uint64_t{0});
    }
  };
  [[nodiscard]] const PayloadBytes& sent() const { return sent_; }
  /// Of chunks that were verified.
  [[nodiscard]] const PayloadBytes& received() const { return received_; }
  /// Of chunks that are on their way to the disk.
  [[nodiscard]] std::uint64_t storing_bytes() const { return storing_bytes_; }

 private:
  struct Peer {
    std::unique_ptr<FrameConnection> connection;  // null while dialling
    std::unique_ptr<Network::Attempt> attempt;    // while dialling
    SendOrder order;
    bool introduced = false;  // the core knows of it
    bool brings_chunks = false;
    bool paused = false;
  };

  void perform(Action action);
  void perform(action::Connect connect);
  void perform(action::Send send);
  void perform(action::SendChunk send);
  void perform(action::Close close);
  void perform(action::BeginPayload begin);
  void perform(const action::GrowPayload& grow);
  void perform(action::PutDigestPart put);
  void perform(action::StoreChunk store);
  void perform(action::FinishPayload finish);
  void perform(action::DiscardPayload discard);
  void perform(action::MakePayload make);
  void perform(action::FollowRun follow);
  void perform(action::TakeRevocations take);
  void perform(action::Enroll enroll);
  void perform(const action::CheckChunk& check);
  void perform(const action::FindArchived& find);
  void perform(const action::ReadArchived& read);
  void perform(const action::EndArchived& end);
  void perform(const action::Refused& refused);
  void perform(const action::Log& log);

  void adopt(ConnId conn, std::unique_ptr<FrameConnection> connection);
  /// Whether there is room for one more from `host`; closes an unidentified connection that has to make it.
  [[nodiscard]] bool admit(ConnId conn, const std::string& host);
  /// The core hears of an accepted connection: at once, or when the handshake has told who the peer is.
  void introduce(ConnId conn);
  /// A connection of a peer that has not been introduced has failed.
  void note_handshake(const std::string& host, const Error& why);
  /// What came on a connection: the core takes it, and whoever sent it pays for it. Errors: those of
  /// Core::handle_control().
  Status take_control(ConnId conn, std::string_view body);
  /// The core may know now who it is that made a connection to this node.
  void note_identified(ConnId conn);
  /// Gives the core what has come on a connection, and performs what that brings about.
  template <typename Tell>
  void hear(ConnId conn, Tell tell);
  /// Does not read the connection of a member until the member owes nothing any more.
  void hold_back(ConnId conn, MemberAccount& account);
  /// Reads those again that owe nothing any more.
  void release();
  void drop(ConnId conn);
  /// For logs: whom a connection leads to; "" for the origin, who may cause what it likes.
  [[nodiscard]] std::string peer_name(ConnId conn);
  /// Hands the connection what is next and has come from the disk.
  void send_ready(ConnId conn);
  void throttle_reading();
  /// Pauses or resumes one connection, as the disk and the member's account now want it.
  void throttle(ConnId conn, Peer& peer);
  /// The store keeps what the core may be asked for.
  void retain_holdings();

  Core& core_;
  WorkerCore* receiver_ = nullptr;
  Store& store_;
  EventLoop& loop_;
  Network& network_;
  const std::uint64_t storing_bytes_max_;
  Timer timer_;
  Instant timer_due_{};  // while it is armed
  ReceiveBudget receive_budget_;
  Admission admission_;
  LogAllowance log_allowance_;
  Audit audit_{log_allowance_};
  MemberAccounts accounts_;
  Timer release_timer_;  // of members that are held back
  Instant release_due_{};
  std::set<ConnId> held_back_;
  std::map<ConnId, Peer> peers_;
  ConnId speaking_{};          // whose input is taken and acted upon now
  std::string speaking_name_;  // and whom it led to, once it is dropped
  std::function<void()> observer_;
  std::function<void(PayloadId)> make_payload_;
  std::function<void(action::FollowRun)> follow_run_;
  std::function<void(const std::string&)> take_revocations_;
  std::function<void(action::Enroll)> enroll_;
  std::vector<PayloadId> retained_;
  std::uint64_t storing_bytes_ = 0;
  bool disk_is_behind_ = false;
  bool pumping_ = false;
  PayloadBytes sent_, received_;
  std::unique_ptr<ArchiveReader> archive_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for callbacks that may come after us
};

}  // namespace weightcast
