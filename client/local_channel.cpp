#include "client/local_channel.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "proto/frame.h"

namespace weightcast {

Result<std::unique_ptr<LocalChannel>> LocalChannel::open(const std::string& state_dir, Clock::time_point deadline) {
  const std::string path = state_dir + "/api.sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return fail(Errc::kInvalidArgument, Op::kConnect,
                fmt::format("{}: longer than the {} bytes that a socket's path may have; use a shorter --state", path,
                            sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return fail_errno(errno, Op::kConnect, path);
  std::unique_ptr<LocalChannel> channel(new LocalChannel(fd));
  while (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno == EAGAIN && Clock::now() < deadline) {  // its backlog is full: a Unix socket cannot be polled for that
      ::poll(nullptr, 0, 10);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN) {
      return fail(Errc::kTimedOut, Op::kConnect, fmt::format("{}: the daemon did not answer in time", path));
    }
    if (errno == EACCES) {
      return fail(Errc::kNotAllowed, Op::kConnect, fmt::format("{}: belongs to another user; run as that user", path));
    }
    if (errno == ENOENT || errno == ECONNREFUSED) {
      return fail(
          Errc::kNotFound, Op::kConnect,
          fmt::format("{}: no daemon runs there; start one with 'weightcast daemon --state {}'", path, state_dir));
    }
    return fail_errno(errno, Op::kConnect, path);
  }
  return channel;
}

LocalChannel::~LocalChannel() { ::close(fd_); }

Status LocalChannel::wait(short events, Clock::time_point deadline, Op op) const {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return fail(Errc::kTimedOut, op, "the daemon did not answer in time");
    pollfd p{fd_, events, 0};
    const int ready = ::poll(&p, 1, static_cast<int>(std::min<long long>(left, 1'000'000)));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return fail_errno(errno, op, "local socket");
  }
}

Result<std::uint64_t> LocalChannel::send(local::Message request, Clock::time_point deadline) {
  if (broken_) {
    return fail(Errc::kClosed, Op::kSend,
                "local socket: an earlier request timed out before all of it was sent; open it again");
  }
  request.set_request_id(++last_request_id_);
  const std::string body = request.SerializeAsString();
  if (body.size() > kControlBytesMax) {
    return fail(
        Errc::kTooLarge, Op::kSend,
        fmt::format("local socket: a request of {} bytes, at most {} can be sent", body.size(), kControlBytesMax));
  }
  FrameHeader header;
  header.body_bytes = static_cast<std::uint32_t>(body.size());
  const FrameHeaderBytes head = encode_frame_header(header);
  std::string frame(reinterpret_cast<const char*>(head.data()), head.size());
  frame += body;
  broken_ = true;
  for (std::size_t sent = 0; sent < frame.size();) {
    const ssize_t n = ::send(fd_, frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
    if (n > 0) {
      sent += static_cast<std::size_t>(n);
    } else if (errno == EAGAIN) {
      if (const Status ready = wait(POLLOUT, deadline, Op::kSend); !ready.has_value()) {
        broken_ = sent > 0;
        return ready.error();
      }
    } else if (errno != EINTR) {
      return fail(Errc::kClosed, Op::kSend,
                  fmt::format("local socket: the daemon closed it ({})", std::strerror(errno)));
    }
  }
  broken_ = false;
  return last_request_id_;
}

Result<local::Message> LocalChannel::receive(std::uint64_t request_id, Clock::time_point deadline) {
  for (;;) {
    WC_ASSIGN(local::Message message, receive_any(deadline));
    if (message.request_id() == request_id) return message;
  }
}

Result<local::Message> LocalChannel::receive_any(Clock::time_point deadline) {
  for (;;) {
    if (received_.size() >= FrameHeader::kBytes) {
      WC_ASSIGN(const FrameHeader header, decode_frame_header(std::as_bytes(std::span(received_))));
      const std::size_t frame_bytes = FrameHeader::kBytes + header.body_bytes;
      if (received_.size() >= frame_bytes) {
        local::Message message;
        if (!message.ParseFromArray(received_.data() + FrameHeader::kBytes, static_cast<int>(header.body_bytes))) {
          return fail(Errc::kCorrupt, Op::kReceive, "local socket: not a message of this release");
        }
        received_.erase(0, frame_bytes);
        return message;
      }
    }
    char buffer[65536];
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    if (n > 0) {
      received_.append(buffer, static_cast<std::size_t>(n));
    } else if (n == 0) {
      return fail(Errc::kClosed, Op::kReceive, "local socket: the daemon ended");
    } else if (errno == EAGAIN) {
      WC_TRY(wait(POLLIN, deadline, Op::kReceive));
    } else if (errno != EINTR) {
      return fail_errno(errno, Op::kReceive, "local socket");
    }
  }
}

Status check_answer(const local::Message& answer) {
  if (!answer.has_error_reply()) return {};
  const local::ErrorReply& error = answer.error_reply();
  return fail(static_cast<Errc>(error.code()), static_cast<Op>(error.op()), error.detail());
}

LocalChannel::Clock::time_point deadline_after(Duration timeout) {
  constexpr Duration kLongest = std::chrono::hours(24 * 365);
  return LocalChannel::Clock::now() + std::clamp(timeout, Duration{}, kLongest);
}

}  // namespace weightcast
