#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "base/units.h"
#include "proto/limits.h"
#include "transport/core/action.h"
#include "transport/core/edge/holdings.h"
#include "transport/core/plan/stripes.h"
#include "transport/core/timeouts.h"

namespace weightcast {

/// The parent's side of every edge. Sends each child the chunks that it asked for, in order, as this node verifies
/// them. Pure: no I/O, no clock. Called by the core that owns it. Invariant: a chunk is sent only if it is in
/// Holding::verified(), and at most once per subscription.
class Uploads {
 public:
  /// Bytes of bitmaps that are kept, because their payload is not known here to its end: of one child on all its
  /// connections, and of all.
  static constexpr std::size_t kKeptBitmapBytesMax = kChunksMax / 8;
  static constexpr std::size_t kKeptBitmapsBytesMax = 16 * kMiB;
  /// Copies of one payload that a child gets before somebody wants to know: a child whose disk fails takes a second
  /// one.
  static constexpr std::uint64_t kCopiesMax = 4;
  /// Of the uplink, and where nothing is known of that: what a child gets at most that has had two copies, if the
  /// uplink has no cap. TCP would share the link among connections, of which one child may have many.
  static constexpr double kAgainShare = 0.25;
  static constexpr Rate kAgainUnknown{1e6};

  Uploads(const Timeouts& timeouts, const Holdings& holdings, ActionQueue& actions);

  struct Child {
    PeerId id{};
    std::string name;
  };

  /// From now on a child is served only what it has a place for. It may get one later: handle_placed(). Without it
  /// everybody has a place.
  void require_place(std::function<bool(const Child&, PayloadId)> has_place) { has_place_ = std::move(has_place); }

  /// What is known of this node's uplink.
  void set_uplink(Rate uplink) { uplink_ = uplink; }

  void handle_hello(ConnId conn, Child child);
  /// How many connections that child has.
  [[nodiscard]] std::size_t connections_of(const Child& child) const;
  /// Whether `conn` said hello.
  [[nodiscard]] bool is_child(ConnId conn) const { return children_.contains(conn); }
  /// The name that a child said; "" if it is none.
  [[nodiscard]] std::string name_of(ConnId conn) const;

  /// Costs no more than reading the request. Answers NotAvailable where the child's bitmap would have to be kept beyond
  /// the bounds above. Errors (the caller closes the connection): kCorrupt (weights out of their limits), kTooLarge
  /// (more subscriptions or chunks than a child can want), kNotAllowed (no hello), kAlreadyExists (subscribed already),
  /// kBusy (the bitmap of a child without a place is beyond the bounds).
  Status handle_subscribe(Instant now, ConnId conn, const wire::Subscribe& request);
  void handle_unsubscribe(ConnId conn, const wire::Unsubscribe& request);
  /// The child gets these chunks elsewhere. Chunks past the payload's end, past the first kSkippedChunksMax, and ranges
  /// beyond kSkippedRangesMax of a payload that has not begun here, are sent all the same.
  void handle_skip(ConnId conn, const wire::Skip& request);
  void handle_closed(ConnId conn);
  void handle_chunk_sent(ConnId conn);

  /// Children may have got places.
  void handle_placed();
  /// A holding was added, has grown, or got the digests of a part.
  void handle_known(PayloadId payload);
  void handle_verified(PayloadId payload, ChunkIndex chunk);
  /// Nobody gets `payload` from here any more.
  void withdraw(PayloadId payload, std::string_view reason);
  /// How many chunks of one of a plan's `stripes` have left to that child, on all its connections, since it said hello.
  /// The child may have split each stripe further.
  [[nodiscard]] std::uint64_t chunks_sent(PeerId child, PayloadId payload, std::uint32_t stripe,
                                          std::uint32_t stripes) const;
  /// Connections on which a child has asked for what is held here, and has not got a place for it in
  /// Timeouts::unknown_version. For the caller to close.
  [[nodiscard]] std::vector<ConnId> take_placeless() { return std::exchange(placeless_, {}); }
  /// Children, by name, that have taken kCopiesMax copies of a payload, since the last call.
  [[nodiscard]] std::vector<std::pair<std::string, PayloadId>> take_greedy() { return std::exchange(greedy_, {}); }
  /// Whether a child waits for more of it.
  [[nodiscard]] bool wanted(PayloadId payload) const;

  void handle_timeout(Instant now);
  [[nodiscard]] std::optional<Instant> poll_deadline() const { return due_; }

  /// Names of the children that are subscribed to something, for status.
  [[nodiscard]] std::vector<std::string> children() const;
  /// Of all children.
  [[nodiscard]] std::vector<ConnId> conns() const;
  /// Of chunks whose last byte has left, since the start.
  [[nodiscard]] std::uint64_t bytes_sent() const { return bytes_sent_; }
  /// The same of the payloads of one version; 0 if it is none of the last kVersionsCounted.
  [[nodiscard]] std::uint64_t bytes_sent_of(Version version) const {
    const auto found = bytes_sent_of_.find(version);
    return found == bytes_sent_of_.end() ? 0 : found->second;
  }
  static constexpr std::size_t kVersionsCounted = 16;

 private:
  struct Subscription {
    Subscription(ConnId to, std::uint32_t wanted, std::span<const std::uint32_t> weights)
        : conn(to), stripe(wanted), weight(weights[wanted]), stripes(weights) {}

    ConnId conn;
    std::uint32_t stripe;
    std::uint32_t weight;
    StripeMap stripes;
    std::shared_ptr<const std::string> held_bytes;  // until the payload is known to its end; then null
    std::uint32_t parts_held = 0;
    /// Ranges to skip, first and end, until `done` knows of them.
    std::vector<std::pair<std::uint32_t, std::uint32_t>> skipped;

    bool ready = false;
    ChunkSet done;           // held there, sent, or seen to be of another stripe
    ChunkIndex cursor{};     // nothing below is both verified here and missing there
    bool exhausted = false;  // nothing above is either, until a further chunk is verified
    // Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996): what was sent so far over the stripe's weight.
    std::uint64_t tag = 0;
    std::vector<bool> parts_sent;
    std::uint32_t in_flight = 0;
    bool was_idle = false;  // for a moment at least, since the child was told
    Instant told_at{};      // that it is up to date; or when it asked
  };
  using Key = std::pair<PayloadId, std::uint32_t>;  // payload and stripe
  struct InFlight {
    Key key;
    std::uint32_t bytes = 0;
    std::uint32_t stripes = 1;  // in all, as the child splits the payload
  };
  struct Sent {
    std::uint64_t chunks = 0;
    std::uint32_t stripes = 1;
  };
  using Copies = std::map<PayloadId, std::uint64_t>;  // chunks that were sent, of what is held here
  struct ChildState {
    Child child;
    Copies* copies = nullptr;  // of the child on all its connections; null: there are too many children to count
    std::map<Key, Subscription> subscriptions;
    std::deque<InFlight> in_flight;  // in the order of SendChunk
    std::uint64_t in_flight_bytes = 0;
    std::map<Key, Sent> sent;   // of what is held here
    std::uint64_t tag = 0;      // of the subscription that was served last
    std::vector<Key> draining;  // ended, and the child waits for the last of it
  };

  /// The bitmap of a request, if it is to be kept; it counts until the last owner lets go of it.
  [[nodiscard]] std::shared_ptr<const std::string> keep_bitmap(const std::string& bitmap);
  /// Whether there is no room to keep that bitmap until `payload` is known to its end.
  [[nodiscard]] bool is_bitmap_too_much(PayloadId payload, const ChildState& child, std::size_t bytes) const;
  [[nodiscard]] bool has_place(const ChildState& child, PayloadId payload) const {
    return has_place_ == nullptr || has_place_(child.child, payload);
  }
  /// Counts a chunk that is sent. Returns SendChunk::again_max.
  [[nodiscard]] Rate count_copy(const ChildState& child, const Manifest& manifest);
  [[nodiscard]] std::size_t subscriptions_of(const Child& child) const;
  [[nodiscard]] bool are_one_peer(const Child& a, const Child& b) const { return a.name == b.name && a.id == b.id; }
  void start(PayloadId payload, Subscription& subscription, ChildState& child);
  /// The next chunk that is verified here and missing there; moves the cursor to it.
  [[nodiscard]] static std::optional<ChunkIndex> next_chunk(const Holding& holding, Subscription& subscription);
  /// Takes in the chunks that it does not know of yet.
  static void grow(const Manifest& manifest, Subscription& subscription);
  /// Fills the window, which all stripes of a connection share, so that none waits behind many chunks of another: those
  /// that have something take turns in proportion to their weights.
  void pump(ChildState& child);
  void send(const Key& key, Subscription& subscription, ChunkIndex chunk, ChildState& child);
  /// There is something to send again.
  void resume(Subscription& subscription, ChildState& child);
  /// All that is verified here has left, and the child waits for more. A parent that gets there feeds its child as fast
  /// as it is fed itself.
  [[nodiscard]] static bool is_idle(const Subscription& subscription) {
    return subscription.ready && subscription.exhausted && subscription.in_flight == 0;
  }
  void refuse(ConnId conn, PayloadId payload, std::string_view reason);
  void answer_drained(ConnId conn, ChildState& child);
  void note_idle(Subscription& subscription);
  /// Sees to it that due_ is not after what a subscription waits for.
  void note_due(const Subscription& subscription);

  const Timeouts& timeouts_;
  const Holdings& holdings_;
  ActionQueue& actions_;
  Rate uplink_{};
  std::size_t kept_bitmaps_bytes_ = 0;
  std::map<ConnId, ChildState> children_;
  std::map<std::string, Copies> copies_;  // by name of the child, also of those that are gone
  std::function<bool(const Child&, PayloadId)> has_place_;
  std::vector<ConnId> placeless_;
  std::vector<std::pair<std::string, PayloadId>> greedy_;
  std::uint64_t bytes_sent_ = 0;
  std::map<Version, std::uint64_t> bytes_sent_of_;  // the newest versions
  // A lower bound of the next deadline. A subscription that is busy again does not move it, so it may fire early, never
  // late, and no code looks at all children after every chunk.
  std::optional<Instant> due_;
};

}  // namespace weightcast
