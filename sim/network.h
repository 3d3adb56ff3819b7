#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/random.h"
#include "base/result.h"
#include "base/units.h"
#include "sim/event_queue.h"
#include "sim/fault.h"

namespace weightcast::sim {

struct NetworkOptions {
  Rate origin_uplink = Rate::bits(300e6);  ///< B
  Rate worker_uplink = Rate::bits(100e6);  ///< b
  Rate worker_downlink = Rate::bits(100e6);
  std::map<NodeIndex, Rate> uplinks = {};  ///< of these nodes, whatever they are configured with
  Duration one_way_delay = std::chrono::microseconds(500);
  std::map<NodeIndex, Duration> delays = {};  ///< what frames from or to these nodes take beside that
  Duration jitter_max{};        ///< each connection draws its share once, so frames of two may overtake one another
  double loss_probability = 0;  ///< of each frame; faults add to it
  Duration retransmit_after = std::chrono::milliseconds(200);
  std::uint32_t in_flight_bytes_max = 4 * kMiB;  ///< of one connection, for its socket buffers
  Duration connect_timeout = std::chrono::seconds(5);

  [[nodiscard]] Rate uplink_of(NodeIndex node) const {
    const auto own = uplinks.find(node);
    return own != uplinks.end() ? own->second : node == 0 ? origin_uplink : worker_uplink;
  }
  [[nodiscard]] Rate downlink_of(NodeIndex node) const { return node == 0 ? Rate{} : worker_downlink; }
};

/// What a frame carries for the nodes. The network never looks inside.
class Cargo {
 public:
  virtual ~Cargo() = default;
  [[nodiscard]] virtual std::string text() const = 0;  ///< for people
};

/// The network's calls to the nodes. They come from handle() alone.
class NetworkHandler {
 public:
  virtual ~NetworkHandler() = default;
  /// Whether somebody answers at `node`.
  virtual bool is_up(NodeIndex node) const = 0;
  virtual ConnId on_accept(NodeIndex node, NodeIndex dialler, LinkIndex link) = 0;
  virtual void on_connected(NodeIndex node, ConnId conn) = 0;
  virtual void on_closed(NodeIndex node, ConnId conn, const Error& why) = 0;
  virtual void on_control(NodeIndex node, ConnId conn, NodeIndex from, Cargo& cargo) = 0;
  /// `cargo` is null if the sender gave none.
  virtual void on_chunk(NodeIndex node, ConnId conn, PayloadId payload, ChunkIndex chunk, bool damaged,
                        Cargo* cargo) = 0;
  virtual void on_chunk_sent(NodeIndex node, ConnId conn) = 0;
};

/// Links between nodes, in units of whole frames.
///
/// | stage | rule |
/// |---|---|
/// | uplink | One frame at a time at the node's rate. Connections take turns; each is first in, first out. |
/// | control messages | They do not wait for chunks of other connections. The next frame pays for their time. |
/// | padding of probes | It goes like chunks. |
/// | path | One-way delay, the connection's jitter, and the delays of faults. |
/// | downlink | Admits chunks at its rate. The first bit passes before the last has come. |
/// | order | A lost frame holds up those behind it on its connection, as with TCP. |
/// | window | A connection has at most `in_flight_bytes_max` between sender and reader. |
/// | reading | A reader may pause. What arrives meanwhile waits at its end. |
/// | partition | It holds frames back. They arrive after its end, when the sender tries again. |
/// | connecting | Takes two round trips, for TCP and TLS 1.3. |
/// | power cut | The others hear nothing until they send again to the host that is back, or for kProbedInVain. |
///
/// Invariant: a frame is in exactly one place: a connection's queue, an uplink, an event, its reader's end, or held by
/// a partition.
class Network {
 public:
  Network(const NetworkOptions& options, std::uint32_t nodes, Random& random, EventQueue& events,
          NetworkHandler& handler);

  LinkIndex dial(Instant now, NodeIndex from, ConnId conn, NodeIndex to);
  /// A control message of so many bytes, header not counted. One that `is_bulk` takes its turn at the uplink, and its
  /// time at the downlink, as chunks do.
  void send_control(Instant now, LinkIndex link, NodeIndex from, std::uint64_t bytes, bool is_bulk,
                    std::unique_ptr<Cargo> cargo);
  void send_chunk(Instant now, LinkIndex link, NodeIndex from, PayloadId payload, ChunkIndex chunk, std::uint32_t bytes,
                  bool damaged, std::unique_ptr<Cargo> cargo = nullptr);
  /// Sends the queued frames, then ends the connection and tells the other side.
  void close(Instant now, LinkIndex link, NodeIndex from);
  /// The same without the queued frames.
  void abandon(Instant now, LinkIndex link, NodeIndex from);
  /// What arrives at that end waits until resume().
  void pause(LinkIndex link, NodeIndex reader);
  void resume(Instant now, LinkIndex link, NodeIndex reader);
  /// Whether a chunk has arrived there.
  [[nodiscard]] bool brings_chunks(LinkIndex link, NodeIndex reader) const {
    return links_[link].directions[1 - end_of(links_[link], reader)].brought_chunks;
  }
  /// Breaks the connections of a process that has died.
  void drop_node(Instant now, NodeIndex node) { drop_node(now, node, false); }
  /// The same of a host that has lost power: nobody is told.
  void lose_power(Instant now, NodeIndex node) { drop_node(now, node, true); }
  [[nodiscard]] const std::vector<LinkIndex>& links_of(NodeIndex node) const { return nodes_[node].links; }
  /// A new process begins, without connections.
  void handle_restart(NodeIndex node);

  /// Whether a partition holds this event back. If so, the event comes again after the partition. Ask this once for
  /// each event, before setting it aside for a node that does not listen. Otherwise a later frame may overtake it.
  bool hold(Instant now, const Event& event);
  /// Handles an event of one of the network's kinds.
  void handle(Instant now, const Event& event);
  /// The node that must be awake for the event to happen.
  [[nodiscard]] NodeIndex node_of(const Event& event) const;
  [[nodiscard]] NodeIndex other_end(LinkIndex link, NodeIndex node) const;
  [[nodiscard]] std::uint64_t chunk_bytes_sent(NodeIndex node) const { return nodes_[node].chunk_bytes_sent; }

  /// Begins or ends a fault of the network, whatever its `at` and `lasts`. False if it is one of hosts or processes.
  bool begin(Instant now, const Fault& fault);
  bool end(Instant now, const Fault& fault);

  /// The event in words.
  [[nodiscard]] std::string describe(const Event& event) const;

 private:
  enum class FrameKind : std::uint8_t { kControl, kChunk, kEnd };
  struct Frame {
    FrameKind kind{};
    bool damaged = false;
    bool is_bulk = false;  // a chunk, or padding: it takes its turn at the uplink, and its time at the downlink
    std::uint8_t from_end = 0;
    LinkIndex link = kNoIndex;
    FrameIndex next = kNoIndex;  // in its connection's queue
    std::uint32_t bytes = 0;
    ChunkIndex chunk{};
    PayloadId payload{};
    std::unique_ptr<Cargo> cargo = nullptr;
  };
  /// One direction of a link.
  struct Direction {
    FrameIndex first = kNoIndex, last = kNoIndex;                // queued
    FrameIndex unread_first = kNoIndex, unread_last = kNoIndex;  // arrived at a reader that pauses
    bool paused = false;                                         // by its reader
    bool takes_turns = false;                                    // in its node's round, or being sent
    bool full = false;                                           // waits for in_flight_bytes to fall
    bool brought_chunks = false;
    std::uint32_t in_flight_bytes = 0;
    Instant last_arrival{};
    Instant held_until{};  // after a partition: when the sender tries again
  };
  struct End {
    NodeIndex node = 0;
    ConnId conn{};
    bool open = false;  // its node believes in it
  };
  struct Link {
    End ends[2];              // the one that dialled first
    Direction directions[2];  // from ends[i]
    Duration jitter{};
    bool failed = false;   // reset, or dialled in vain
    bool refused = false;  // the latter, and there was an answer
    bool lost = false;     // one end's host has lost power
  };
  struct Node {
    Rate uplink{}, downlink{};
    std::deque<std::pair<LinkIndex, std::uint8_t>> round;  // directions that have something to send
    FrameIndex sending = kNoIndex;
    Duration owed{};  // for control messages that went ahead
    Instant downlink_free{};
    Duration extra_delay{};
    double extra_loss = 0;
    std::uint32_t corrupt_next = 0;
    std::uint32_t generation = 0;
    bool dark = false;  // without power
    std::uint64_t chunk_bytes_sent = 0;
    std::vector<LinkIndex> links;
  };

  FrameIndex new_frame();
  void free_frame(FrameIndex frame);
  void send(Instant now, Frame made);
  void serve(Instant now, NodeIndex node);
  /// The frame has left its node: when will it arrive?
  void launch(Instant now, FrameIndex frame);
  void arrive(Instant now, FrameIndex frame);
  /// The frame is read, or nobody is left who would.
  void take(Instant now, FrameIndex frame);
  void read_on(Instant now, const Event& event);
  void drop(FrameIndex& first, FrameIndex& last);
  /// Nobody is left to read at that end.
  void stop_reading(Link& link, std::uint8_t end);
  void drop_queue(Link& link, std::uint8_t end) { drop(link.directions[end].first, link.directions[end].last); }
  void drop_node(Instant now, NodeIndex node, bool loses_power);
  /// Breaks the connection. The network drops the queued frames and tells both sides.
  void reset(Instant now, LinkIndex link);
  /// Frames on their way to the node wait for the new rate, too.
  void set_downlink(Instant now, NodeIndex node, Rate rate);
  void end_partition(Instant now, const Fault& fault);
  [[nodiscard]] std::uint8_t end_of(const Link& link, NodeIndex node) const {
    return link.ends[0].node == node ? 0 : 1;
  }
  [[nodiscard]] Duration delay(const Link& link, NodeIndex from, NodeIndex to) const;
  [[nodiscard]] bool cut(NodeIndex from, NodeIndex to) const;
  /// What keeps that dial from its target; null if nothing does.
  [[nodiscard]] const Fault* block_of(NodeIndex from, NodeIndex to) const;
  /// The link of an arrival or a close, and the end of the link that it comes from.
  [[nodiscard]] std::pair<LinkIndex, std::uint8_t> way_of(const Event& event) const;
  /// Nobody will answer; `refused`: at once.
  void fail_dial(Instant at, LinkIndex link, bool refused);

  const NetworkOptions options_;
  Random& random_;
  EventQueue& events_;
  NetworkHandler& handler_;
  std::vector<Node> nodes_;
  std::deque<Link> links_;
  std::vector<Frame> frames_;
  FrameIndex free_frames_ = kNoIndex;
  std::vector<Fault> partitions_;
  std::vector<Fault> blocks_;
  std::vector<Event> held_;
};

}  // namespace weightcast::sim
