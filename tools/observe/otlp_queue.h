#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "base/time.h"
#include "proto/local_messages.h"

namespace weightcast {

/// Which publications a collector of spans gets, and when: each once, in the order in which they ended. Pure: the time
/// is an argument. Invariant: at most kWaitingMax wait; beyond it the oldest is dropped.
class OtlpQueue {
 public:
  static constexpr std::size_t kWaitingMax = 64;
  /// From the end of a publication until it is sent: engines take a version after it is installed.
  static constexpr Duration kSettle = std::chrono::seconds(5);
  /// Between two attempts; doubles with each that fails.
  static constexpr Duration kRetryMin = std::chrono::seconds(1);
  static constexpr Duration kRetryMax = std::chrono::seconds(60);

  enum class Outcome : std::uint8_t {
    kSent,
    kRetry,    ///< the collector is not there, or has no room now
    kRefused,  ///< it will never take it
  };

  /// Those published before `begun_unix_ms` that have ended when handle_history() is called for the first time are not
  /// sent: they are of an earlier run of the daemon.
  explicit OtlpQueue(std::int64_t begun_unix_ms) : begun_unix_ms_(begun_unix_ms) {}

  /// What the origin remembers now.
  void handle_history(Instant now, std::span<const local::PublicationEntry> publications);
  /// What became of the version that poll_version() gave.
  void handle_outcome(Instant now, Outcome outcome);

  /// The version to send now, if any.
  [[nodiscard]] std::optional<std::uint64_t> poll_version(Instant now) const;
  [[nodiscard]] std::uint64_t sent() const { return sent_; }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  /// A number that was given up may be published again.
  using Publication = std::pair<std::uint64_t, std::int64_t>;  // version, published_unix_ms
  struct Waiting {
    std::uint64_t version = 0;
    Instant due{};
  };

  std::int64_t begun_unix_ms_;
  std::optional<std::set<Publication>> ended_;  // of those that the origin remembered the last time
  std::deque<Waiting> waiting_;
  Instant retry_at_{};
  Duration backoff_ = kRetryMin;
  std::uint64_t sent_ = 0, dropped_ = 0;
};

}  // namespace weightcast
