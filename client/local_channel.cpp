#include "client/local_channel.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "proto/frame.h"

namespace weightcast::client {
namespace {

// A Unix socket whose backlog is full cannot be polled for room.
constexpr int kConnectRetry_ms = 10;

Error timed_out(Op op) { return fail(Errc::kTimedOut, op, "the daemon did not answer in time"); }

std::string to_frame(const std::string& body) {
  FrameHeader header;
  header.body_bytes = static_cast<std::uint32_t>(body.size());
  const FrameHeaderBytes head = encode_frame_header(header);
  return std::string(reinterpret_cast<const char*>(head.data()), head.size()) + body;
}

}  // namespace

Deadline deadline_after(std::int64_t timeout_ms) {
  constexpr std::int64_t kLongest_ms = std::int64_t{365} * 24 * 3600 * 1000;
  return Clock::now() + std::chrono::milliseconds(std::clamp<std::int64_t>(timeout_ms, 0, kLongest_ms));
}

Status wait_for(int fd, short events, Deadline deadline, const Cancellation& cancellation, Op op) {
  for (;;) {
    if (cancellation.cancelled()) return fail(Errc::kCancelled, op, "the call was cancelled");
    pollfd watched[2] = {{fd, events, 0}, {cancellation.fd(), POLLIN, 0}};
    const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int ready = ::poll(watched, 2, static_cast<int>(std::clamp<long long>(left_ms, 0, 1'000'000)));
    if (ready < 0 && errno != EINTR) return fail_errno(errno, op, "local socket");
    if (ready > 0 && watched[1].revents != 0) {
      cancellation.drain();
      continue;
    }
    if (ready > 0) return {};
    if (Clock::now() >= deadline) return timed_out(op);
  }
}

Result<std::unique_ptr<LocalChannel>> LocalChannel::open(const std::string& state_dir, Deadline deadline,
                                                         const Cancellation& cancellation) {
  const std::string path = state_dir + "/api.sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return fail(Errc::kInvalidArgument, Op::kConnect,
                fmt::format("{}: longer than {} bytes, which is what a local socket can have; use a shorter state "
                            "directory",
                            path, sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return fail_errno(errno, Op::kConnect, path);
  while (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN) {
      if (Clock::now() >= deadline) {
        return fail(Errc::kTimedOut, Op::kConnect, fmt::format("{}: the daemon did not answer in time", path));
      }
      const Deadline retry = std::min(deadline, Clock::now() + std::chrono::milliseconds(kConnectRetry_ms));
      // Nothing to wait for but cancellation.
      const Status waited = wait_for(-1, 0, retry, cancellation, Op::kConnect);
      if (!waited.has_value() && waited.error().code != Errc::kTimedOut) return waited.error();
      continue;
    }
    if (errno == EACCES) {
      return fail(Errc::kNotAllowed, Op::kConnect, fmt::format("{}: belongs to another user; run as that user", path));
    }
    if (errno == ENOENT || errno == ECONNREFUSED) {
      return fail(
          Errc::kNotFound, Op::kConnect,
          fmt::format(
              "{0}: no daemon runs there; start one with 'weightcast daemon --role origin --state {1}' beside the "
              "trainer, or 'weightcast daemon --role worker --origin HOST:PORT --state {1}' on another host",
              path, state_dir));
    }
    return fail_errno(errno, Op::kConnect, path);
  }
  return std::unique_ptr<LocalChannel>(new LocalChannel(std::move(fd), cancellation));
}

Result<std::size_t> LocalChannel::send_some(std::string_view bytes, std::span<const int> descriptors,
                                            Deadline deadline) {
  iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  WC_CHECK(descriptors.size() <= kDescriptorsMax);
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsMax * sizeof(int))] = {};
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  for (;;) {
    const ssize_t sent = ::sendmsg(fd(), &message, MSG_NOSIGNAL);
    if (sent > 0) return static_cast<std::size_t>(sent);
    if (errno == EAGAIN) {
      WC_TRY(wait_for(fd(), POLLOUT, deadline, cancellation_, Op::kSend));
    } else if (errno != EINTR) {
      return fail(Errc::kClosed, Op::kSend,
                  fmt::format("local socket: the daemon closed it ({})", std::strerror(errno)));
    }
  }
}

Result<std::uint64_t> LocalChannel::send(local::Message request, Deadline deadline, std::span<const int> descriptors) {
  if (broken_) {
    return fail(Errc::kClosed, Op::kSend,
                "local socket: an earlier request was not sent whole; the connection is lost");
  }
  request.request_id = ++last_request_id_;
  const std::string body = local::encode(request);
  if (body.size() > kControlBytesMax) {
    return fail(
        Errc::kTooLarge, Op::kSend,
        fmt::format("local socket: a request of {} bytes, at most {} can be sent", body.size(), kControlBytesMax));
  }
  const std::string frame = to_frame(body);
  for (std::size_t sent = 0; sent < frame.size();) {
    // Descriptors travel with the first byte.
    WC_ASSIGN(const std::size_t more, send_some(std::string_view(frame).substr(sent),
                                                sent == 0 ? descriptors : std::span<const int>(), deadline));
    sent += more;
    broken_ = sent < frame.size();
  }
  return last_request_id_;
}

bool LocalChannel::has_message() const {
  if (received_.size() < FrameHeader::kBytes) return false;
  const Result<FrameHeader> header = decode_frame_header(std::as_bytes(std::span(received_)));
  return !header.has_value() || received_.size() >= FrameHeader::kBytes + header->body_bytes;
}

Result<std::optional<local::Message>> LocalChannel::take_message() {
  if (!has_message()) return std::optional<local::Message>();
  WC_ASSIGN(const FrameHeader header, decode_frame_header(std::as_bytes(std::span(received_))));
  WC_ASSIGN(local::Message message,
            local::decode(std::string_view(received_).substr(FrameHeader::kBytes, header.body_bytes)));
  received_.erase(0, FrameHeader::kBytes + header.body_bytes);
  return std::optional(std::move(message));
}

Result<std::optional<local::Message>> LocalChannel::poll() {
  for (;;) {
    WC_ASSIGN(std::optional<local::Message> message, take_message());
    if (message) return message;
    char buffer[65536];
    const ssize_t got = ::recv(fd(), buffer, sizeof buffer, 0);
    if (got > 0) {
      received_.append(buffer, static_cast<std::size_t>(got));
    } else if (got == 0) {
      return fail(Errc::kClosed, Op::kReceive, "local socket: the daemon ended");
    } else if (errno == EAGAIN) {
      return std::optional<local::Message>();
    } else if (errno != EINTR) {
      return fail(Errc::kClosed, Op::kReceive,
                  fmt::format("local socket: the daemon closed it ({})", std::strerror(errno)));
    }
  }
}

Result<local::Message> LocalChannel::receive(Deadline deadline) {
  for (;;) {
    WC_ASSIGN(std::optional<local::Message> message, poll());
    if (message) return *std::move(message);
    WC_TRY(wait_for(fd(), POLLIN, deadline, cancellation_, Op::kReceive));
  }
}

Error error_of(const local::ErrorReply& reply) {
  return fail(static_cast<Errc>(reply.code), static_cast<Op>(reply.op), reply.detail);
}

Error unknown_answer() {
  return fail(Errc::kUnsupported, Op::kReceive,
              "local socket: an answer that this release does not know; daemon and library are of different releases");
}

}  // namespace weightcast::client
