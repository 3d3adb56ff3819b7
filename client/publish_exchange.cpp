#include "client/publish_exchange.h"

#include <algorithm>

namespace weightcast {
namespace {

// The daemon keeps the time-out of an outcome; this is how much longer its answer may take to arrive.
constexpr auto kGrace = std::chrono::seconds(2);

}  // namespace

Result<std::uint64_t> send_publish(LocalChannel& channel, Version version, const std::string& path,
                                   const PublishOptions& options, LocalChannel::Clock::time_point deadline) {
  local::Message message;
  local::PublishRequest* request = message.mutable_publish_request();
  request->set_version(version.value);
  request->set_path(path);
  request->set_wait_fraction(options.wait_fraction);
  request->set_timeout_s(std::max(0.0, to_seconds(deadline - LocalChannel::Clock::now())));
  request->set_progress(options.on_progress != nullptr);
  request->set_allow_nonfinite(options.allow_nonfinite);
  return channel.send(std::move(message), deadline);
}

Result<Taken> receive_taken(LocalChannel& channel, std::uint64_t request, LocalChannel::Clock::time_point deadline) {
  for (;;) {
    WC_ASSIGN(const local::Message answer, channel.receive(request, deadline));
    if (answer.has_publish_taken()) return Taken{{}, answer.publish_taken().seconds()};
    if (answer.has_error_reply()) return Taken{check_answer(answer), 0};
  }
}

Result<PublishOutcome> receive_outcome(LocalChannel& channel, std::uint64_t request, double take_s,
                                       const PublishOptions& options, LocalChannel::Clock::time_point deadline) {
  for (;;) {
    WC_ASSIGN(const local::Message answer, channel.receive(request, deadline + kGrace));
    WC_TRY(check_answer(answer));
    if (answer.has_publish_progress() && options.on_progress) options.on_progress(answer.publish_progress());
    if (!answer.has_publish_result()) continue;
    const local::PublishResult& result = answer.publish_result();
    PublishOutcome outcome;
    outcome.version = Version{result.version()};
    outcome.kind = result.kind() == wire::PAYLOAD_KIND_PACKED  ? "packed"
                   : result.kind() == wire::PAYLOAD_KIND_PATCH ? "patch"
                   : result.kind() == wire::PAYLOAD_KIND_FULL  ? "full"
                                                               : "undecided";
    outcome.payload_bytes = result.payload_bytes();
    outcome.workers = result.workers();
    outcome.installed = result.installed();
    if (result.has_t50_s()) outcome.t50_s = result.t50_s();
    if (result.has_t90_s()) outcome.t90_s = result.t90_s();
    if (result.has_t100_s()) outcome.t100_s = result.t100_s();
    outcome.reached = result.reached();
    outcome.topology = result.topology();
    outcome.predicted_s = result.predicted_s();
    outcome.origin_egress_bytes = result.origin_egress_bytes();
    outcome.take_s = take_s;
    outcome.missing.assign(result.missing().begin(), result.missing().end());
    return outcome;
  }
}

}  // namespace weightcast
