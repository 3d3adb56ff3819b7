#include "client/ready.h"

#include <algorithm>
#include <thread>

#include "client/client.h"

namespace weightcast::client {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPauseMin(10);
constexpr milliseconds kPauseMax(200);

bool may_come(Errc code) { return code == Errc::kNotFound || code == Errc::kClosed || code == Errc::kTimedOut; }

}  // namespace

Status wait_until_ready(const std::string& state_dir, bool has_version, Deadline deadline) {
  std::unique_ptr<Client> client;
  std::string missing;
  for (milliseconds pause = kPauseMin;; pause = std::min(2 * pause, kPauseMax)) {
    const auto look = [&]() -> Status {
      if (!client) {
        WC_ASSIGN(client, Client::open(state_dir, deadline));
      }
      WC_ASSIGN(const local::ReadyReply reply, client->readiness(deadline));
      missing = reply.ready ? "" : reply.why;
      if (reply.ready && has_version && reply.version == 0) missing = "no version is in use yet";
      return {};
    };
    if (const Status looked = look(); !looked.has_value()) {
      client.reset();
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
