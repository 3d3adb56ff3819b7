#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/random.h"
#include "base/result.h"
#include "proto/wire.pb.h"
#include "sim/event_queue.h"
#include "sim/options.h"

namespace weightcast::sim {

/// The network's calls to the nodes.
class NetworkHandler {
 public:
  virtual ~NetworkHandler() = default;
  /// Whether somebody answers at `node`.
  virtual bool is_up(NodeIndex node) const = 0;
  virtual ConnId on_accept(NodeIndex node, NodeIndex dialler, LinkIndex link) = 0;
  virtual void on_connected(NodeIndex node, ConnId conn) = 0;
  virtual void on_closed(NodeIndex node, ConnId conn, const Error& why) = 0;
  virtual void on_message(NodeIndex node, ConnId conn, NodeIndex from, const wire::Message& message) = 0;
  virtual void on_chunk(NodeIndex node, ConnId conn, PayloadId payload, ChunkIndex chunk, bool damaged) = 0;
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
/// | window | A connection has at most `in_flight_bytes_max` between sender and receiver. |
/// | partition | It holds frames back. They arrive after its end, when the sender tries again. |
/// | connecting | Takes two round trips, for TCP and TLS 1.3. |
///
/// Invariant: a frame is in exactly one place: a connection's queue, an uplink, an event, or held by a partition.
class Network {
 public:
  Network(const NetworkOptions& options, std::uint32_t nodes, Random& random, EventQueue& events,
          NetworkHandler& handler);

  LinkIndex dial(Instant now, NodeIndex from, ConnId conn, NodeIndex to);
  void send_message(Instant now, LinkIndex link, NodeIndex from, wire::Message message);
  void send_chunk(Instant now, LinkIndex link, NodeIndex from, PayloadId payload, ChunkIndex chunk, std::uint32_t bytes,
                  bool damaged);
  /// Sends the queued frames, then ends the connection and tells the other side.
  void close(Instant now, LinkIndex link, NodeIndex from);
  /// Breaks the connection. The network drops the queued frames and tells both sides.
  void reset(Instant now, LinkIndex link);
  /// Breaks the connections of a process that has died.
  void drop_node(Instant now, NodeIndex node);
  [[nodiscard]] const std::vector<LinkIndex>& links_of(NodeIndex node) const { return nodes_[node].links; }
  void reset_links_of(Instant now, NodeIndex node);
  /// A new process begins, without connections.
  void handle_restart(NodeIndex node) { nodes_[node].links.clear(); }

  /// Whether a partition holds this event back. If so, the event comes again after the partition. Ask this once for
  /// each event, before setting it aside for a node that does not listen. Otherwise a later frame may overtake it.
  bool hold(Instant now, const Event& event);
  /// Handles an event of one of the network's kinds.
  void handle(Instant now, const Event& event);
  /// The node that must be awake for the event to happen.
  [[nodiscard]] NodeIndex node_of(const Event& event) const;
  /// Whether the event brings a chunk, or something that must not overtake one.
  [[nodiscard]] bool is_behind_chunks(const Event& event) const;
  [[nodiscard]] NodeIndex other_end(LinkIndex link, NodeIndex node) const;
  [[nodiscard]] std::uint64_t chunk_bytes_sent(NodeIndex node) const { return nodes_[node].chunk_bytes_sent; }

  // Faults.
  void set_uplink(NodeIndex node, Rate rate) { nodes_[node].uplink = rate; }
  /// Frames on their way to the node wait for the new rate, too.
  void set_downlink(Instant now, NodeIndex node, Rate rate);
  void add_delay(NodeIndex node, Duration by) { nodes_[node].extra_delay += by; }
  void add_loss(NodeIndex node, double probability) { nodes_[node].extra_loss += probability; }
  void corrupt_next(NodeIndex node, std::uint32_t chunks) { nodes_[node].corrupt_next += chunks; }
  void begin_partition(const Fault& fault) { partitions_.push_back(fault); }
  void end_partition(Instant now, const Fault& fault);
  void begin_block(const Fault& fault) { blocks_.push_back(fault); }
  void end_block(const Fault& fault) { std::erase(blocks_, fault); }

  /// The event in words.
  [[nodiscard]] std::string describe(const Event& event) const;

 private:
  enum class FrameKind : std::uint8_t { kControl, kChunk, kEnd };
  struct Frame {
    FrameKind kind{};
    bool damaged = false;
    bool is_bulk = false;  // a chunk, or padding: it takes its turn at the uplink, and its time at the downlink
    std::uint8_t from_end = 0;
    LinkIndex link = kNone;
    FrameIndex next = kNone;  // in its connection's queue
    std::uint32_t bytes = 0;
    ChunkIndex chunk{};
    PayloadId payload{};
    std::unique_ptr<wire::Message> message;
  };
  /// One direction of a link.
  struct Direction {
    FrameIndex first = kNone, last = kNone;  // queued
    bool takes_turns = false;                // in its node's round, or being sent
    bool full = false;                       // waits for in_flight_bytes to fall
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
  };
  struct Node {
    Rate uplink{}, downlink{};
    std::deque<std::pair<LinkIndex, std::uint8_t>> round;  // directions that have something to send
    FrameIndex sending = kNone;
    Duration owed{};  // for control messages that went ahead
    Instant downlink_free{};
    Duration extra_delay{};
    double extra_loss = 0;
    std::uint32_t corrupt_next = 0;
    std::uint32_t generation = 0;
    std::uint64_t chunk_bytes_sent = 0;
    std::vector<LinkIndex> links;
  };

  FrameIndex new_frame();
  void free_frame(FrameIndex frame);
  void enqueue(Instant now, FrameIndex frame);
  void serve(Instant now, NodeIndex node);
  /// The frame has left its node: when will it arrive?
  void launch(Instant now, FrameIndex frame);
  void arrive(Instant now, const Event& event);
  void drop_queue(Link& link, std::uint8_t end);
  [[nodiscard]] std::uint8_t end_of(const Link& link, NodeIndex node) const {
    return link.ends[0].node == node ? 0 : 1;
  }
  [[nodiscard]] Duration delay(const Link& link, NodeIndex from, NodeIndex to) const;
  [[nodiscard]] bool cut(NodeIndex from, NodeIndex to) const;
  /// What keeps that dial from its target; null if nothing does.
  [[nodiscard]] const Fault* block_of(NodeIndex from, NodeIndex to) const;
  /// Nobody will answer; `refused`: at once.
  void fail_dial(Instant at, LinkIndex link, bool refused);
  bool hold(Instant now, const Event& event, LinkIndex link, std::uint8_t from_end);

  const NetworkOptions options_;
  Random& random_;
  EventQueue& events_;
  NetworkHandler& handler_;
  std::vector<Node> nodes_;
  std::deque<Link> links_;
  std::vector<Frame> frames_;
  FrameIndex free_frames_ = kNone;
  std::vector<Fault> partitions_;
  std::vector<Fault> blocks_;
  std::vector<Event> held_;
};

}  // namespace weightcast::sim
