#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/files/unique_fd.h"
#include "base/result.h"
#include "client/cancellation.h"
#include "proto/local_messages.h"

namespace weightcast::client {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

/// `timeout_ms` from now: at least nothing, a year at most.
[[nodiscard]] Deadline deadline_after(std::int64_t timeout_ms);

/// Waits until `fd` is ready for `events` or the call is cancelled. Errors: kTimedOut, kCancelled, kIo.
[[nodiscard]] Status wait_for(int fd, short events, Deadline deadline, const Cancellation& cancellation, Op op);

/// A connection to DIR/api.sock that sends and receives whole local messages in frames (proto/frame.h). Used by one
/// thread at a time. After an error other than kTimedOut, kCancelled and kTooLarge it is of no more use.
class LocalChannel {
 public:
  static constexpr std::size_t kDescriptorsMax = 2;  ///< of one request

  /// Errors: kNotFound (no daemon runs there), kTimedOut, kCancelled, kNotAllowed (another user's), kInvalidArgument
  /// (the path is too long for a socket), kIo.
  [[nodiscard]] static Result<std::unique_ptr<LocalChannel>> open(const std::string& state_dir, Deadline deadline,
                                                                  const Cancellation& cancellation);

  /// Numbers the request and sends it, with `descriptors`, at most kDescriptorsMax. After an error the daemon has no
  /// part of the request that it would act on. Errors: kTimedOut, kCancelled; kClosed (the daemon ended; or an earlier
  /// request was sent in part, so that nothing can follow it); kTooLarge.
  [[nodiscard]] Result<std::uint64_t> send(local::Message request, Deadline deadline,
                                           std::span<const int> descriptors = {});
  /// The next message. A time-out in the middle of one keeps what came. Errors: kTimedOut, kCancelled, kClosed,
  /// kCorrupt.
  [[nodiscard]] Result<local::Message> receive(Deadline deadline);
  /// One that is there already. Errors: kClosed, kCorrupt.
  [[nodiscard]] Result<std::optional<local::Message>> poll();

  [[nodiscard]] int fd() const { return fd_.get(); }
  /// Whether poll() would give a message that has been read from the socket already.
  [[nodiscard]] bool has_message() const;

 private:
  LocalChannel(UniqueFd fd, const Cancellation& cancellation) : fd_(std::move(fd)), cancellation_(cancellation) {}
  Result<std::size_t> send_some(std::string_view bytes, std::span<const int> descriptors, Deadline deadline);
  Result<std::optional<local::Message>> take_message();

  const UniqueFd fd_;
  const Cancellation& cancellation_;
  std::uint64_t last_request_id_ = 0;
  bool broken_ = false;   // the last request is with the daemon in part
  std::string received_;  // the start of the next frame
};

/// The Error that an ErrorReply carries.
[[nodiscard]] Error error_of(const local::ErrorReply& reply);
/// The Error for an answer of a kind that the request does not have.
[[nodiscard]] Error unknown_answer();

}  // namespace weightcast::client
