#pragma once

#include <optional>
#include <vector>

#include "base/time.h"
#include "transport/core/action.h"
#include "transport/core/edge/chunk_verifier.h"
#include "transport/core/edge/feed_record.h"
#include "transport/core/edge/holdings.h"
#include "transport/core/edge/links.h"
#include "transport/core/edge/parent_fault.h"
#include "transport/core/edge/parent_monitor.h"
#include "transport/core/plan/stripes.h"
#include "transport/core/timeouts.h"

namespace weightcast {

/// The child's side of every edge, for one payload. Subscribes each stripe at its parent, and moves to the next
/// ancestor when the parent is gone or wrong, cannot be dialled in Timeouts::dial, or when the ParentMonitor says so.
/// The ChunkVerifier judges what arrives. Pure. Called by the Intake that owns it. While the payload is open, the
/// download stays with its parents though nothing is missing. Chunks beyond what the origin has told wait, within
/// bounds, until the payload has grown. Invariant: a stripe has at most one parent.
class Download {
 public:
  /// Makes `streams` connections to each parent, at least 1. Each stripe of the plan is split into that many of equal
  /// share, unless the limits of stripes allow fewer; each has a connection of its own.
  Download(const Timeouts& timeouts, std::uint32_t streams, Holding& holding, Links& links, ActionQueue& actions);

  /// This node's part of the plan. An assignment whose epoch is not greater changes nothing. A stripe whose parent
  /// stays keeps its subscription. `self` is removed from the ancestors, because no node can feed itself. Errors:
  /// kCorrupt (a stripe has no ancestor but `self`).
  Status assign(Instant now, PeerId self, const Assignment& assignment);

  /// A control connection was made anew. A restarted origin counts its epochs from the beginning. Messages of one
  /// connection are in order, so no older assignment can follow.
  void handle_rejoined() { epoch_ = Epoch{}; }

  /// The store has told what is on disk. Until then the download dials parents and asks for nothing.
  void handle_storage_ready(Instant now);

  /// The holding has grown.
  void handle_grown(Instant now);

  void handle_open(Instant now, ConnId conn);
  /// `was_made`: else it was dialled in vain, which is no failing of whoever did not answer.
  void handle_closed(Instant now, ConnId conn, bool was_made = true);
  /// Errors (the sender's fault; the download has left it already): kCorrupt.
  Status handle_digest_part(Instant now, ConnId conn, std::uint32_t part, Bytes digests);
  void handle_up_to_date(Instant now, ConnId conn, std::uint32_t stripe);
  void handle_not_available(Instant now, ConnId conn);
  void handle_unsubscribed(Instant now, ConnId conn, std::uint32_t stripe);
  /// The origin said so on the control connection, or announced the payload again.
  void handle_withdrawn() { withdrawn_ = true; }
  void handle_announced() { withdrawn_ = false; }

  /// Whether the chunk was new and right; then it is verified in the holding and on its way to the store.
  bool handle_chunk(Instant now, ConnId conn, const ChunkArrival& chunk);

  // Chunks that come from elsewhere than from parents. All below is for a payload that is not open.

  struct ChunkRange {
    ChunkIndex first{};
    std::uint32_t chunks = 0;
  };
  /// From now on parents are not asked for these, of which none is verified: at most kSkippedChunksMax.
  void expect_elsewhere(const ChunkRange& range);
  /// They do not come, after all: parents are asked for what is lacking of them.
  void ask_again(Instant now, const std::vector<ChunkRange>& ranges);
  /// Errors: kCorrupt (the digests are not the manifest's).
  Status handle_digest_part_elsewhere(Instant now, std::uint32_t part, Bytes digests);
  /// Whether the chunk is right, or was here before. A new one is then verified and on its way to the store.
  [[nodiscard]] ChunkVerifier::Verdict handle_chunk_elsewhere(Instant now, const ChunkArrival& chunk);
  /// How many chunks are still to come from parents.
  [[nodiscard]] std::uint32_t wanted_of_parents() const;
  /// The last chunk below `end` that is; nothing if there is none.
  [[nodiscard]] std::optional<ChunkIndex> last_wanted_of_parents(ChunkIndex end) const;
  [[nodiscard]] bool is_wanted_of_parents(ChunkIndex chunk) const {
    return !holding_.verified().contains(chunk) && !elsewhere_.contains(chunk);
  }
  /// By the plan, all stripes together; 0: not known.
  [[nodiscard]] double predicted_bytes_per_s() const { return predicted_bytes_per_s_; }

  void handle_timeout(Instant now);
  [[nodiscard]] std::optional<Instant> poll_deadline() const { return due_; }

  /// The origin does not have the payload any more: no node will send what is missing.
  [[nodiscard]] bool withdrawn() const { return withdrawn_; }

  /// The origin itself has sent damaged bytes several times in a row, and no other node is above it.
  [[nodiscard]] bool damaged_at_origin() const;

  /// Leaves all parents.
  void cancel();

  [[nodiscard]] bool uses(ConnId conn) const;
  /// What came before it could be verified, and waits in memory.
  [[nodiscard]] std::size_t early_bytes() const { return verifier_.early_bytes(); }
  [[nodiscard]] Epoch epoch() const { return epoch_; }
  /// Over the last rate window that was full; of all stripes.
  [[nodiscard]] double bytes_per_s() const { return verifier_.bytes_per_s(); }
  [[nodiscard]] std::optional<Instant> first_chunk_at() const { return verifier_.first_chunk_at(); }
  /// Who has fed it so far, and what it cost to leave parents.
  [[nodiscard]] const FeedRecord& feed() const { return feed_; }
  /// Chunks that are known and lacking, by stripe of the plan; empty before the first assignment.
  [[nodiscard]] std::vector<std::uint32_t> missing_by_stripe() const;
  /// The first stripe's parent now, for status.
  [[nodiscard]] std::string parent_name() const;

  /// For the origin: parents that were left since the last call, those that are slow but stay, and starvation.
  [[nodiscard]] std::vector<ParentFault> take_faults() { return std::exchange(faults_, {}); }

 private:
  struct Stripe {
    std::vector<NodeAddress> ancestors;
    std::size_t at = 0;  // whom it is fed by
    ConnId conn{};
    Instant attached_at{};         // to that connection, which may still have to be made
    bool next_is_dialled = false;  // beside it
    bool subscribed = false;
    std::uint32_t missing = 0;
    std::uint32_t failures = 0;           // since the last chunk
    std::uint32_t damaged_by_origin = 0;  // of those
    std::optional<Instant> retry_at;      // waiting before the next attempt
    ConnId drained_from{};  // a parent that was left, whose last chunks are waited for before the next is asked
    Instant drained_by{};
    std::optional<Instant> interrupted_since;  // a parent was left, and no chunk has come since
    Duration interrupted{};                    // in all, before that
    ParentMonitor monitor;

    explicit Stripe(const Timeouts& timeouts) : monitor(timeouts) {}
  };

  void attach(Instant now, Stripe& stripe);
  void subscribe(Instant now, Stripe& stripe);
  void leave(Instant now, Stripe& stripe, wire::FaultKind why, std::optional<ChunkIndex> damaged = std::nullopt);
  /// Leaves the parent, if there is one, which has done nothing wrong. `answer`: it says when its last chunk has left.
  void detach(Stripe& stripe, bool answer = false);
  /// Whether the parent is being dialled, and there is another one to go to.
  [[nodiscard]] bool is_dial_judged(const Stripe& stripe) const {
    return stripe.conn != ConnId{} && stripe.ancestors.size() > 1 && !links_.is_open(stripe.conn);
  }
  [[nodiscard]] Duration dial_patience() const;
  /// After which the next ancestor is dialled, too: as long before the end as by Timeouts.
  [[nodiscard]] Duration dial_beside_patience() const;
  /// Dials the next ancestor beside a parent that takes long, and leaves the parent in the end.
  void judge_dial(Instant now, Stripe& stripe);
  /// Asks the parent, if it can be asked now.
  void subscribe_if_ready(Instant now, Stripe& stripe);
  void end_draining(Instant now, Stripe& stripe);
  /// The chunk was new and right: its sender, and its stripe, have got on.
  void credit(Instant now, ConnId conn, const ChunkArrival& chunk);
  /// The stripe lacks that chunk no more, and is not interrupted.
  void count_chunk(Instant now, Stripe& owner, ChunkIndex chunk);
  void count_missing(Instant now);
  /// Whether there is something to wait for from the parent.
  [[nodiscard]] bool wants_more(const Stripe& stripe) const { return stripe.missing > 0 || holding_.open(); }
  /// What the parent of this stripe is judged by.
  [[nodiscard]] ParentMonitor::Edge edge_of(const Stripe& stripe) const;
  /// Nothing comes: says so to the origin, which sees who else says that.
  void report_starvation(Instant now, Stripe& stripe);
  /// Of the stripe's parent, before it is left.
  [[nodiscard]] ParentFault fault_of(const Stripe& stripe, wire::FaultKind why) const;
  /// Leaves `conn` until the payload has grown: it is further ahead than what waits here may be.
  void pause(ConnId conn);
  /// `conn` sent what is not of this payload, or damaged.
  void leave_corrupt(Instant now, ConnId conn, std::optional<ChunkIndex> damaged = std::nullopt);
  void replay_early_chunks(Instant now);
  /// A chunk of `fed` came on `conn`: the other streams of the same stripe of the plan hear of it.
  void tell_streams_beside(Instant now, const Stripe& fed, ConnId conn);
  /// This stream has stalled, and not its parent: makes a new connection for all that asked on it.
  void redial(Instant now, ConnId stalled);
  /// So that the parent looks at what it has.
  void say_damaged(ConnId conn, ChunkIndex chunk);
  /// Sees to it that due_ is not after what the stripe waits for.
  void note_due(Instant now, const Stripe& stripe);
  [[nodiscard]] std::uint32_t index_of(const Stripe& stripe) const {
    return static_cast<std::uint32_t>(&stripe - stripes_.data());
  }

  [[nodiscard]] std::uint32_t lane_of(const Stripe& stripe) const { return index_of(stripe) % streams_; }

  const Timeouts& timeouts_;
  const std::uint32_t streams_wanted_;
  std::uint32_t streams_ = 1;  // what the limits of stripes leave of them
  Holding& holding_;
  Links& links_;
  ActionQueue& actions_;
  Epoch epoch_{};
  double predicted_bytes_per_s_ = 0;
  bool storage_ready_ = false;
  bool withdrawn_ = false;
  std::vector<std::uint32_t> weights_;
  std::optional<StripeMap> stripe_map_;
  std::vector<Stripe> stripes_;  // lane by lane within each stripe of the plan
  ChunkVerifier verifier_;
  ChunkSet elsewhere_;  // that parents are not asked for, and that are not verified; of no size while there are none
  FeedRecord feed_;
  std::vector<ParentFault> faults_;
  // A lower bound of the next deadline. What arrives does not move it, so it may fire early, never late, and no code
  // looks at all stripes after every chunk.
  std::optional<Instant> due_;
  Duration late_{};  // by which due_ was met too late, lately
};

}  // namespace weightcast
