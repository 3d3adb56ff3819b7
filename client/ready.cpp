#include "client/ready.h"

#include <algorithm>
#include <thread>

namespace weightcast::client {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPauseMin(10);
constexpr milliseconds kPauseMax(200);

bool may_come(Errc code) { return code == Errc::kNotFound || code == Errc::kClosed || code == Errc::kTimedOut; }

/// Errors: those of the connection.
Result<local::ReadyReply> ask(LocalChannel& channel, Deadline deadline) {
  WC_ASSIGN(const std::uint64_t request, channel.send({.kind = local::ReadyRequest{}}, deadline));
  for (;;) {
    WC_ASSIGN(const local::Message message, channel.receive(deadline));
    if (message.request_id != request) continue;
    if (const auto* reply = message.get<local::ReadyReply>()) return *reply;
    return fail(
        Errc::kUnsupported, Op::kReceive,
        "local socket: an answer that this release does not know; daemon and library are of different releases");
  }
}

}  // namespace

Status wait_until_ready(const std::string& state_dir, bool has_version, Deadline deadline) {
  const Cancellation none;
  std::unique_ptr<LocalChannel> channel;
  std::string missing;
  for (milliseconds pause = kPauseMin;; pause = std::min(2 * pause, kPauseMax)) {
    const auto look = [&]() -> Status {
      if (!channel) {
        WC_ASSIGN(channel, LocalChannel::open(state_dir, deadline, none));
      }
      WC_ASSIGN(const local::ReadyReply reply, ask(*channel, deadline));
      missing = reply.ready ? "" : reply.why;
      if (reply.ready && has_version && reply.version == 0) missing = "no version is in use yet";
      return {};
    };
    if (const Status looked = look(); !looked.has_value()) {
      channel.reset();
      if (!may_come(looked.error().code)) return looked;
      // The last question may be cut off by the deadline: what was missing before says more.
      if (missing.empty() || looked.error().code != Errc::kTimedOut) missing = looked.error().detail;
    }
    if (missing.empty()) return {};
    if (Clock::now() >= deadline) return fail(Errc::kTimedOut, Op::kConnect, "not ready in time: " + missing);
    std::this_thread::sleep_until(std::min(deadline, Clock::now() + pause));
  }
}

}  // namespace weightcast::client
