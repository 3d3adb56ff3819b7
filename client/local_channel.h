#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "proto/local.pb.h"

namespace weightcast {

/// A blocking connection to DIR/api.sock that sends and receives whole local messages in frames (proto/frame.h).
class LocalChannel {
 public:
  using Clock = std::chrono::steady_clock;

  /// Errors: kNotFound, kTimedOut, kNotAllowed, kInvalidArgument (path too long for a socket).
  [[nodiscard]] static Result<std::unique_ptr<LocalChannel>> open(const std::string& state_dir,
                                                                  Clock::time_point deadline);
  ~LocalChannel();
  LocalChannel(const LocalChannel&) = delete;
  LocalChannel& operator=(const LocalChannel&) = delete;

  [[nodiscard]] Status send(const local::Message& message, Clock::time_point deadline);
  /// An ErrorReply comes back as the Error that it carries. A time-out in the middle of a message keeps what came.
  [[nodiscard]] Result<local::Message> receive(Clock::time_point deadline);

 private:
  explicit LocalChannel(int fd) : fd_(fd) {}
  Status wait(short events, Clock::time_point deadline, Op op) const;

  int fd_;
  std::string received_;  // the start of the next frame
};

}  // namespace weightcast
