#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/files/unique_fd.h"
#include "client/cancellation.h"
#include "client/change_list.h"
#include "client/local_channel.h"

namespace weightcast::client {

struct Disconnected {};
using Event = std::variant<local::VersionInstalled, local::VersionPreparing, Disconnected>;

/// What is behind a wc_subscription. Used by one thread at a time, but for cancellation(). Invariant: fd() is readable
/// while next() has something to do: a message of the daemon's, its end, or the time to connect again.
class Subscription {
 public:
  /// Errors: those of LocalChannel::open().
  [[nodiscard]] static Result<std::unique_ptr<Subscription>> open(std::string state_dir, Deadline deadline);

  [[nodiscard]] Result<Event> next(Deadline deadline);
  /// `version` 0: the one in use. Connects again, once, where the connection has ended; next() then tells Disconnected.
  [[nodiscard]] Result<local::VersionInstalled> acquire(std::uint64_t version, Deadline deadline);
  [[nodiscard]] Status release(std::uint64_t version, Deadline deadline);
  /// The cells in which `version`, which is acquired, differs from `base`, of that digest; with `old_values` also what
  /// they were.
  [[nodiscard]] Result<std::unique_ptr<ChangeList>> changes(std::uint64_t base, std::string base_digest,
                                                            std::uint64_t version, bool old_values, Deadline deadline);
  /// An epoll instance over the socket, the timer and the mark below.
  [[nodiscard]] int fd() const { return epoll_.get(); }

  Cancellation& cancellation() { return cancellation_; }

 private:
  explicit Subscription(std::string state_dir);
  Status connect(Deadline deadline);
  void reconnect_later();
  /// Where `error` says that the connection has ended: forgets it, and has next() tell so. Returns `error`.
  Error note_end(Error error);
  Result<local::VersionInstalled> acquire_once(std::uint64_t version, Deadline deadline);
  Result<std::optional<Event>> poll();
  /// The event that a message is, if it is one. Gives up a pin that nobody waited for to the end.
  std::optional<Event> event_of(const local::Message& message);
  /// The daemon's answer. Events that come before it wait for next(). Errors: those of LocalChannel::receive().
  Result<local::Message> answer_to(std::uint64_t request, Deadline deadline);
  void mark();

  const std::string state_dir_;
  Cancellation cancellation_;
  const UniqueFd epoll_;
  const UniqueFd timer_;   // due when it is time to connect again
  const UniqueFd marked_;  // an eventfd, readable while a message waits that has left the socket already
  std::unique_ptr<LocalChannel> channel_;
  std::uint64_t request_ = 0;
  std::chrono::milliseconds backoff_;
  std::deque<Event> events_;               // that came while something else was waited for
  std::set<std::uint64_t> abandoned_;      // requests for a pin whose caller has given up
  std::multiset<std::uint64_t> acquired_;  // on this connection
  std::multiset<std::uint64_t> lost_;      // on earlier ones: released by their end
};

}  // namespace weightcast::client
