#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/digest/content_digest.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/units.h"
#include "proto/wire.pb.h"
#include "transport/core/agreed_protocols.h"
#include "transport/core/manifest/chunk_set.h"
#include "transport/core/manifest/manifest.h"
#include "transport/core/refusal.h"

namespace weightcast {

class Buffer;  // transport/io/buffer.h; the core hands it on and never looks inside

/// What the core wants done. Whoever drives a core (the daemon, the simulator, a test) performs these in order and
/// reports back through the handle_* function that each comment names.
namespace action {

/// Open a connection to `host`:`port`. -> handle_connected(conn) or handle_closed(conn)
struct Connect {
  ConnId conn{};
  std::string host;
  std::uint16_t port = 0;
};

struct Send {
  ConnId conn{};
  wire::Message message;
};

/// Read a verified chunk and send it, in the order in which the actions of a connection come.
/// -> handle_chunk_sent(conn), once the kernel has its last byte; handle_chunk_unreadable(payload, chunk), if it cannot
/// be read, before the connection is closed
struct SendChunk {
  ConnId conn{};
  PayloadId payload{};
  ChunkIndex chunk{};
  /// If limited, the child has had twice as many chunks of the payload as it has: others come first, and where the
  /// uplink has no cap the child gets no more than this.
  Rate again_max{};
};

/// Send what is queued, then close. The connection is gone for the core: no handle_closed follows.
struct Close {
  ConnId conn{};
};

/// Make room for a payload. -> handle_payload_begun(payload, ...)
struct BeginPayload {
  std::shared_ptr<const Manifest> manifest;
};

/// An open payload has grown to this: make room for more. If it is not open any more, keep what is here over a restart.
struct GrowPayload {
  std::shared_ptr<const Manifest> manifest;
};

/// Keep these digests over a restart.
struct PutDigestPart {
  PayloadId payload{};
  std::uint32_t part = 0;
  std::vector<ContentDigest> digests;
};

/// Store a verified chunk. -> handle_chunk_stored(payload, chunk, status)
struct StoreChunk {
  PayloadId payload{};
  ChunkIndex chunk{};
  std::shared_ptr<Buffer> bytes;
};

/// All chunks are stored: check the whole payload, and install it. -> handle_finished(payload, status)
struct FinishPayload {
  PayloadId payload{};
};

/// Discard what has arrived of a payload.
struct DiscardPayload {
  PayloadId payload{};
};

/// Make a payload of a version that is complete in the store: a patch, a packed payload, or the full one. Origin only.
/// -> OriginCore::handle_payload_begun(), handle_payload_grown(), handle_payload_made(payload, ...)
struct MakePayload {
  PayloadId payload{};
};

/// From now on what is held counts as of `run`: keep that over a restart. `anew`: what is held is of another run. Then
/// write that down, stop, and start again: with nothing of this run, and the version in use as it is. Worker only.
/// -> WorkerCore::handle_run_not_followed(), if it cannot be written down
struct FollowRun {
  RunId run{};
  bool anew = false;
};

/// The origin's list of revoked keys. Check its signature, keep it over a restart, and go by it. Worker only.
/// -> WorkerCore::set_revocations(), if it counts from now on
struct TakeRevocations {
  std::string list;
};

/// A machine without a certificate asks for one, with a join token. Origin only. -> OriginCore::handle_enrolled(conn,
/// ...)
struct Enroll {
  ConnId conn{};
  std::string host;  ///< that it comes from
  wire::Enroll request;
};

/// Read a chunk that is held, from the disk and not from memory, and hash it. -> handle_chunk_checked(payload, ...)
struct CheckChunk {
  PayloadId payload{};
  ChunkIndex chunk{};
};

/// Look whether the archive has a full payload whole. Worker only, with an archive. ->
/// WorkerCore::handle_archive_found(payload, request, ...)
struct FindArchived {
  std::uint32_t request = 0;
  std::shared_ptr<const Manifest> manifest;
};

/// Read chunks of a full payload from the archive. -> WorkerCore::handle_archive_chunk(request, ...) for each of them
/// in order, then handle_archive_ended(payload, request, status)
struct ReadArchived {
  std::uint32_t request = 0;
  std::shared_ptr<const Manifest> manifest;
  ChunkIndex first{};
  std::uint32_t chunks = 0;
  Rate rate{};  ///< of all that is read from the archive, from now on; without a limit none
};

/// The answer to that request is not wanted any more.
struct EndArchived {
  std::uint32_t request = 0;
};

/// A peer is turned away. For the audit log; the connection is closed by another action, if it is.
struct Refused {
  ConnId conn{};
  Refusal reason{};
  Error why;
};

/// Something that a person may want to read.
struct Log {
  enum class Level : std::uint8_t { kInfo, kWarning } level = Level::kInfo;
  std::string text;
  bool is_own = false;  ///< no peer can cause it again and again: it is written whoever spoke last
  std::string peer;     ///< whose doing it is, if not that of whoever spoke last
};
[[nodiscard]] inline Log info(std::string text) { return {Log::Level::kInfo, std::move(text), false, {}}; }
[[nodiscard]] inline Log warning(std::string text) { return {Log::Level::kWarning, std::move(text), false, {}}; }
/// A line about what became of a dial, or of a wait: nobody has spoken, and `peer` may cause it again and again.
[[nodiscard]] inline Log caused_by(std::string peer, Log log) {
  log.peer = std::move(peer);
  return log;
}
/// Said once for each publication.
[[nodiscard]] inline Log milestone(std::string text) { return {Log::Level::kInfo, std::move(text), true, {}}; }

}  // namespace action

/// The answer to action::Enroll.
struct EnrolledWorker {
  std::string name;
  std::string certificates;  ///< PEM
};

using Action = std::variant<action::Connect, action::Send, action::SendChunk, action::Close, action::BeginPayload,
                            action::GrowPayload, action::PutDigestPart, action::StoreChunk, action::FinishPayload,
                            action::DiscardPayload, action::MakePayload, action::FollowRun, action::TakeRevocations,
                            action::Enroll, action::Refused, action::CheckChunk, action::FindArchived,
                            action::ReadArchived, action::EndArchived, action::Log>;

/// What a core wants done, first in, first out. All parts of a core share one queue.
/// Invariant: no Send in it has a message that the other end's release does not know. Whoever pushes one must be right
/// without it, too.
class ActionQueue {
 public:
  void push(Action action) {
    if (const auto* send = std::get_if<action::Send>(&action)) {
      if (!protocols_.is_known(send->conn, send->message.kind_case())) return;
    } else if (const auto* close = std::get_if<action::Close>(&action)) {
      protocols_.forget(close->conn);
    }
    actions_.push_back(std::move(action));
  }
  [[nodiscard]] std::optional<Action> poll() {
    if (actions_.empty()) return std::nullopt;
    std::optional<Action> first(std::move(actions_.front()));
    actions_.pop_front();
    return first;
  }

  [[nodiscard]] AgreedProtocols& protocols() { return protocols_; }
  [[nodiscard]] const AgreedProtocols& protocols() const { return protocols_; }

 private:
  std::deque<Action> actions_;
  AgreedProtocols protocols_;
};

/// A chunk as it came off a connection. `digest` was computed over its bytes, and has not been compared yet.
struct ChunkArrival {
  PayloadId payload{};
  ChunkIndex chunk{};
  std::uint32_t size_bytes = 0;
  ContentDigest digest{};
  std::shared_ptr<Buffer> bytes;
};

/// What a store found on disk when a payload begins.
struct RestoredPayload {
  std::vector<ContentDigest> chunk_digests;  ///< of whole parts, from the first
  ChunkSet held;
};

}  // namespace weightcast
