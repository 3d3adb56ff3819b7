#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "sim/disk.h"
#include "sim/event_queue.h"
#include "sim/network.h"
#include "sim/options.h"
#include "sim/payload_map.h"
#include "sim/stand_in_keys.h"
#include "sim/verdict.h"
#include "transport/core/origin/origin_core.h"
#include "transport/core/worker/worker_core.h"

namespace weightcast::sim {

/// One run of the cores on simulated links, disks and clocks. It performs their actions as the daemon's Driver does
/// (transport/node/driver.h), and checks the invariants after every step. It knows which bytes are really intact, which
/// no core can know.
///
/// Invariants, each a method check_*() or a call of violate():
/// - no node stores, forwards or installs damaged bytes, nor forwards a chunk that it does not have;
/// - a worker's installed version does not go back, except when its host loses bytes of its disk;
/// - no chunk of an open payload is sent before it is made, nor stored before the store has room for it, and no open
///   payload is installed;
/// - a worker hands each chunk to its store once and never asks for it again; no parent sends a chunk to a child that
///   has said it has that chunk;
/// - the origin's assignments have no cycle;
/// - no node is sent a message that its release does not know;
/// - no deadline stays in the past, and a node that has work left has a deadline;
/// - once every fault has ended, every honest worker that runs gets the latest version within settle_max;
/// - where nothing but liars went wrong, no honest member is barred from relaying, but by two liars who conspire;
/// - the origin's status names each liar that lied so that a judgement was possible.
/// A liar's own actions are not checked, except that it is sent nothing but what it asked for.
class Simulation final : private NetworkHandler {
 public:
  explicit Simulation(const SimOptions& options);

  /// The schedule of the options, from the start of all nodes until everybody has everything.
  [[nodiscard]] SimResult run();

  // --- Or step by step, for tests that act in the middle. No node runs until it is started.

  void start_node(NodeIndex node);
  /// That its release speaks: NodeOptions::older.
  [[nodiscard]] ProtocolRange protocols_of(NodeIndex node) const;
  /// Ends a process, and its host with it: then what was not synced is gone.
  void stop_node(NodeIndex node, bool host_too);
  /// Runs the next event if it is due by `until`. Otherwise moves the time to `until`; false.
  bool step(Instant until);
  /// Begins or ends one fault, whatever its `at` and `lasts`.
  void begin_fault(const Fault& fault);
  void end_fault(const Fault& fault);
  /// Publishes the next version, of options().payload_bytes; waits for an origin that is down or busy.
  void publish();
  /// A test may change takeover, patches and payload_bytes between two steps.
  [[nodiscard]] SimOptions& options() { return options_; }
  [[nodiscard]] Instant now() const { return now_; }
  [[nodiscard]] Instant local(NodeIndex node) const;  ///< by that node's clock
  [[nodiscard]] OriginCore& origin() { return *nodes_[0].origin; }
  [[nodiscard]] WorkerCore* worker(NodeIndex node) { return nodes_[node].worker; }  ///< null while it is down
  [[nodiscard]] const std::optional<std::string>& violation() const { return verdict_.violation(); }

  /// How a node's disk fails its store from now on.
  struct DiskTroubles {
    bool damages_snapshots = false;                     ///< the snapshot digest does not match at the end
    bool damages_bases = false;                         ///< no patch or packed payload can be applied
    std::set<std::pair<PayloadId, ChunkIndex>> rotten;  ///< chunks whose bytes have changed at rest
  };
  [[nodiscard]] DiskTroubles& disk_troubles(NodeIndex node) { return nodes_[node].troubles; }

 private:
  /// Stands for the bytes of a payload, which do not exist.
  struct Payload {
    std::shared_ptr<const Manifest> manifest;  // of the complete payload
    std::vector<ContentDigest> digests;
    bool complete = false;          // in the origin's store
    std::uint32_t made_chunks = 0;  // so far; all of one that is complete
  };

  /// A child's subscription, as its parent knows it.
  struct Asked {
    std::uint32_t stripe = 0;
    std::vector<std::uint32_t> weights;
    ChunkSet held;
  };

  struct Node {
    explicit Node(const DiskOptions& disk_options) : disk(disk_options.write_rate, disk_options.sync_delay) {}

    std::unique_ptr<Core> core;    // null while it is down
    OriginCore* origin = nullptr;  // core, if it is the origin's
    WorkerCore* worker = nullptr;  // core, if it is a worker's
    LyingWorker* liar = nullptr;   // core, if it is a hostile one
    std::uint32_t incarnation = 0;
    PeerIdentity identity;         // what it proves on each connection
    std::vector<LinkIndex> links;  // by connection number
    std::set<ConnId> dialling;     // each has a bound of its own
    Disk disk;
    Instant archive_free_at{};                 // its link to the archive
    std::set<std::uint32_t> archive_requests;  // that are wanted
    DiskTroubles troubles;
    Version installed{};
    PayloadMap<ChunkSet> handed;  // to the store, and intact
    std::uint64_t storing_bytes = 0;
    bool reading_paused = false;
    std::uint32_t stalls = 0;
    std::deque<Event> deferred;  // by a stall
    Duration clock_offset{};
    double clock_drift = 0;
    Instant drift_since{};
    std::optional<Instant> timer_at;
    std::uint32_t timer_number = 0;
    std::uint32_t spins = 0;  // calls at spun_at
    Instant spun_at{};
    bool left = false;
    std::map<std::pair<LinkIndex, PayloadId>, std::vector<Asked>> asked;
    std::map<PayloadId, std::vector<NodeIndex>> told;  // its parents, by stripe
    std::set<NodeIndex> damage_reported_by;            // honest workers that said that it sends damage
    bool suspected = false;  // an offence was held against it at any time, so its word may have convicted nobody
    bool named = false;      // by the origin's status, at any time; of a liar
  };

  enum class DiskWork : std::uint8_t { kBegin, kStore, kFinish, kMakePayload, kGrowPayload, kTakeOver, kCheck };
  struct DiskOperation {
    DiskWork work{};
    NodeIndex node = 0;
    std::uint32_t incarnation = 0;
    PayloadId payload{};
    ChunkIndex chunk{};
    bool failed = false;
    bool open = false;
    std::uint32_t chunks = 0;  // of the payload, as it was begun
    std::uint32_t growth = 0;
    std::uint32_t next = kNoIndex;
  };

  /// A request that a worker has made of the archive.
  struct ArchiveRead {
    NodeIndex node = 0;
    std::uint32_t incarnation = 0;
    std::uint32_t request = 0;
    PayloadId payload{};
    bool finds = false;  // else it reads chunks
    bool is_answered = false;
    ChunkIndex next{};
    ChunkIndex end{};
    ArchiveOptions::Fault fault{};
  };

  struct Takeover {
    PayloadId payload{};  // that the version is published by
    Instant at{};
    Instant local_at{};  // by the origin's clock
  };

  // Beyond this the node stops reading from its connections, as the daemon does.
  static constexpr std::uint64_t kStoringBytesMax = 24 * kMiB;

  // The run.
  void dispatch(const Event& event);
  /// Of an event that no partition holds back.
  void deliver(const Event& event);
  void handle_timer(const Event& event);
  void handle_disk(const Event& event);
  void handle_archive(const Event& event);
  void go_on_taking_over(std::uint32_t growth);
  /// The version that is being taken over has grown for the `growth`th time. The last time it is whole, or refused.
  void handle_taken_over(std::uint32_t growth);
  void handle_published();
  void publish_what_waits();
  /// Invents a payload; the same one for the same id.
  Payload& payload_of_size(PayloadId id, std::uint64_t bytes, std::uint32_t chunk_bytes);
  /// What a patch or packed payload takes; nothing if it is not worth sending.
  [[nodiscard]] std::optional<std::uint64_t> encoded_bytes(PayloadId id) const;
  void handle_make_payload(PayloadId id);
  /// A payload that is being made has grown for the `growth`th time. The last time it is whole, or withdrawn.
  void handle_grow_payload(PayloadId id, std::uint32_t growth);
  void handle_payload_whole(Payload& payload);
  /// The patch that the next version is published by; nothing if it is published by its full payload.
  [[nodiscard]] std::optional<PayloadId> choose_patch(Version version);
  [[nodiscard]] std::uint32_t chunk_bytes_of(PayloadId id) const;
  /// How often the origin announces the growth of such a payload; 0: it is there at once.
  [[nodiscard]] std::uint32_t growths_of(PayloadId id) const;
  void start_growth(PayloadId id, std::uint32_t growth);
  /// What there is of a payload by now.
  [[nodiscard]] MadePayload so_far(const Payload& payload) const;
  void resume(NodeIndex node);
  /// As the daemon's driver: nothing is read while the disk has too much to write.
  void throttle_reading(NodeIndex node);
  [[nodiscard]] bool everyone_done();
  /// Whether no fault keeps it from getting everything in the end.
  [[nodiscard]] bool must_finish(NodeIndex node) const;

  // One core.
  [[nodiscard]] Instant world_time(NodeIndex node, Instant local) const;
  void pump(NodeIndex node);
  void arm(NodeIndex node);
  void perform(NodeIndex node, action::Connect& connect);
  void perform(NodeIndex node, action::Send& send);
  void perform(NodeIndex node, action::SendChunk& send);
  void perform(NodeIndex node, action::Close& close);
  void perform(NodeIndex node, action::BeginPayload& begin);
  void perform(NodeIndex node, action::GrowPayload& grow);
  void perform(NodeIndex node, action::PutDigestPart& put);
  void perform(NodeIndex node, action::StoreChunk& store);
  void perform(NodeIndex node, action::FinishPayload& finish);
  void perform(NodeIndex node, action::DiscardPayload& discard);
  void perform(NodeIndex node, action::MakePayload& make);
  void perform(NodeIndex, action::FollowRun&) {}  // a simulation is one run
  void perform(NodeIndex, action::TakeRevocations&) {}
  void perform(NodeIndex, action::Enroll&) {}
  void perform(NodeIndex node, action::CheckChunk& check);
  void perform(NodeIndex node, action::FindArchived& find);
  void perform(NodeIndex node, action::ReadArchived& read);
  void perform(NodeIndex node, action::EndArchived& end);
  void perform(NodeIndex node, action::Refused& refused);
  void perform(NodeIndex node, action::Log& log);
  void start_disk_work(Instant due, DiskOperation operation);
  void start_archive_read(ArchiveRead read);
  /// When the next of it is there.
  void go_on_reading(std::uint32_t index);
  [[nodiscard]] LinkIndex link_of(NodeIndex node, ConnId conn) const;
  void note_link(NodeIndex node, ConnId conn, LinkIndex link);

  // What the network says.
  bool is_up(NodeIndex node) const override { return nodes_[node].core != nullptr; }
  ConnId on_accept(NodeIndex node, NodeIndex dialler, LinkIndex link) override;
  void on_connected(NodeIndex node, ConnId conn) override;
  void on_closed(NodeIndex node, ConnId conn, const Error& why) override;
  void on_control(NodeIndex node, ConnId conn, NodeIndex from, Cargo& cargo) override;
  void on_chunk(NodeIndex node, ConnId conn, PayloadId id, ChunkIndex chunk, bool damaged, Cargo* cargo) override;
  void on_chunk_sent(NodeIndex node, ConnId conn) override;

  // Invariants.
  void violate(const std::string& what) { verdict_.violate(now_ - Instant{}, what); }
  [[nodiscard]] const LiarOptions* liar_options(NodeIndex node) const;
  /// Once all is over: honest members have their place, and liars are named.
  void check_accounting();
  /// Nothing but hostile members goes wrong.
  [[nodiscard]] bool only_liars() const;
  /// Whether a child may wait for its turn longer than for a silent parent: nobody knows a rate, and a relay that feeds
  /// all others needs that long for a chunk to each. Then honest relays are called silent (docs/SECURITY.md).
  [[nodiscard]] bool may_starve_of_turns() const;
  /// Remembers whom the origin's status names now.
  void note_named();
  /// What a liar did that the origin must have seen by now; "": nothing.
  [[nodiscard]] std::string proof_against(NodeIndex liar) const;
  void check_asks_for_missing(NodeIndex node, const wire::Subscribe& subscribe);
  void check_sent_is_wanted(NodeIndex node, const action::SendChunk& send);
  void note_told(NodeIndex node, const wire::Assignment& assignment);
  /// Follows parents from each worker that was told since the last call. Each such path ends at the origin, or at a
  /// worker that has the whole payload.
  void check_told();
  [[nodiscard]] bool has_intact(const Node& node, PayloadId id, ChunkIndex chunk) const;
  void remember(std::string event) { verdict_.remember(now_ - Instant{}, std::move(event)); }

  SimOptions options_;
  Random random_;
  EventQueue events_;
  Network network_;
  std::shared_ptr<StandInSigner> signer_ = std::make_shared<StandInSigner>();
  const ManifestAuthor author_{RunId{1}, signer_};
  const std::shared_ptr<const ManifestTrust> trust_ = std::make_shared<StandInTrust>();
  std::deque<Node> nodes_;
  std::map<PayloadId, Payload> payloads_;
  std::map<Version, PayloadId> published_;  // by which payload
  std::deque<Event> due_now_;  // of disks that take no time: these follow the event at hand, before all others
  std::vector<DiskOperation> disk_operations_;
  std::uint32_t free_disk_operation_ = kNoIndex;
  std::vector<ArchiveRead> archive_reads_;
  Instant now_{};
  Instant quiet_since_{};  // when the last fault and the last publication were
  std::uint32_t faults_left_ = 0;
  Version latest_{};                        // that was published
  std::optional<Takeover> takeover_;        // of the next one
  std::uint32_t publications_waiting_ = 0;  // for an origin that is down, or busy
  NodeIndex done_below_ = 1;                // workers below have everything: what to check after every event
  std::vector<Instant> published_at_;       // by publication
  std::vector<std::pair<NodeIndex, PayloadId>> newly_told_;
  Verdict verdict_;
  SimResult result_;
};

}  // namespace weightcast::sim
