#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "proto/local.pb.h"

namespace weightcast {

/// A blocking connection to DIR/api.sock that sends and receives whole local messages in frames (proto/frame.h). Each
/// request gets a number, which its answers carry.
class LocalChannel {
 public:
  using Clock = std::chrono::steady_clock;

  /// Errors: kNotFound, kTimedOut, kNotAllowed, kInvalidArgument (path too long for a socket).
  [[nodiscard]] static Result<std::unique_ptr<LocalChannel>> open(const std::string& state_dir,
                                                                  Clock::time_point deadline);
  ~LocalChannel();
  LocalChannel(const LocalChannel&) = delete;
  LocalChannel& operator=(const LocalChannel&) = delete;

  /// Numbers the request and sends it. Errors: kTimedOut; kClosed (the daemon ended; or an earlier request was sent in
  /// part only, so that nothing can follow it); kTooLarge (a request above kControlBytesMax).
  [[nodiscard]] Result<std::uint64_t> send(local::Message request, Clock::time_point deadline);
  /// The next answer to that request; those to earlier ones are passed over. An ErrorReply is an answer, too: see
  /// check_answer(). A time-out in the middle of a message keeps what came. Errors: kTimedOut, kClosed, kCorrupt.
  [[nodiscard]] Result<local::Message> receive(std::uint64_t request_id, Clock::time_point deadline);

 private:
  explicit LocalChannel(int fd) : fd_(fd) {}
  Result<local::Message> receive_any(Clock::time_point deadline);
  Status wait(short events, Clock::time_point deadline, Op op) const;

  int fd_;
  std::uint64_t last_request_id_ = 0;
  bool broken_ = false;   // the last request is with the daemon in part
  std::string received_;  // the start of the next frame
};

/// The Error that an ErrorReply carries.
[[nodiscard]] Status check_answer(const local::Message& answer);

/// `timeout` from now; a year at most, so that any Duration of a caller's makes a deadline.
[[nodiscard]] LocalChannel::Clock::time_point deadline_after(Duration timeout);

}  // namespace weightcast
