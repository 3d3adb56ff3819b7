#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/units.h"
#include "proto/limits.h"
#include "transport/io/net/frame_connection.h"
#include "transport/io/work_thread.h"

namespace weightcast {

/// The frames of one connection that have come whole and are not delivered yet, in their order. Other threads hash
/// large chunks meanwhile; what comes after such a chunk waits for it. Loop thread only. Dropping a frame cancels what
/// is done for it. Invariant: no chunk is given out without its digest.
class ArrivedFrames {
 public:
  /// Chunks of this size and more are hashed by other threads: to wake one and to hear from it costs some 20 us, and
  /// to hash this much 140 us.
  static constexpr std::size_t kHashedApartBytesMin = 256 * kKiB;
  /// Nothing more is read while so much waits: two chunks of any size, so that one can be read while another is hashed.
  static constexpr std::size_t kBytesMax = 2 * kChunkBytesMax;

  using Frame = std::variant<std::string, ReceivedChunk>;

  /// `hashing` outlives it. `on_hashed` runs on the loop, never from inside a call, when a digest is there.
  ArrivedFrames(OffloadThreads* hashing, std::function<void()> on_hashed)
      : hashing_(hashing), on_hashed_(std::move(on_hashed)) {}

  void add(std::string control);
  void add_hashed(ReceivedChunk chunk);
  /// Has the chunk hashed.
  void add_unhashed(ReceivedChunk chunk);

  [[nodiscard]] bool empty() const { return frames_.empty(); }
  [[nodiscard]] bool full() const { return bytes_ >= kBytesMax; }

  /// What to do about a digest that is not there yet.
  enum class Missing : std::uint8_t { kWait, kHashHere };
  /// The first frame. Nothing if there is none, or if it has to wait.
  [[nodiscard]] std::optional<Frame> take(Missing missing);
  void clear();

 private:
  struct Hash {
    explicit Hash(BufferRef of) : bytes(std::move(of)) {}
    const BufferRef bytes;
    ContentDigest digest{};  // the other thread's until `done`
    std::atomic<bool> done = false;
  };
  struct Arrived {
    Frame frame;
    std::shared_ptr<Hash> hash;  // null: nothing to wait for
    std::size_t bytes;
  };

  void add(Frame frame, std::shared_ptr<Hash> hash, std::size_t bytes);

  OffloadThreads* hashing_;
  std::function<void()> on_hashed_;
  std::list<Arrived> frames_;  // a list takes no memory while it is empty
  std::size_t bytes_ = 0;
};

}  // namespace weightcast
