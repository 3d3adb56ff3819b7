#include "client/publish_exchange.h"

#include <algorithm>

namespace weightcast {
namespace {

// The daemon keeps the time-out; this is how much longer a reply may take to arrive.
constexpr auto kGrace = std::chrono::seconds(2);

}  // namespace

Status send_publish(LocalChannel& channel, Version version, const std::string& path, local::SourceKind source,
                    const PublishOptions& options, LocalChannel::Clock::time_point deadline) {
  local::Message message;
  local::PublishRequest* request = message.mutable_publish_request();
  request->set_version(version.value);
  request->set_path(path);
  request->set_source(source);
  request->set_wait_fraction(options.wait_fraction);
  request->set_timeout_s(std::max(0.0, to_seconds(deadline - LocalChannel::Clock::now())));
  request->set_progress(options.on_progress != nullptr);
  request->set_allow_nonfinite(options.allow_nonfinite);
  return channel.send(message, deadline);
}

Result<double> receive_taken(LocalChannel& channel, Version version, LocalChannel::Clock::time_point deadline) {
  for (;;) {
    WC_ASSIGN(const local::Message reply, channel.receive(deadline + kGrace));
    if (reply.has_publish_taken() && reply.publish_taken().version() == version.value) {
      return reply.publish_taken().seconds();
    }
  }
}

Result<PublishOutcome> receive_outcome(LocalChannel& channel, Version version, double take_s,
                                       const PublishOptions& options, LocalChannel::Clock::time_point deadline) {
  for (;;) {
    WC_ASSIGN(const local::Message reply, channel.receive(deadline + kGrace));
    if (reply.has_publish_progress() && reply.publish_progress().version() == version.value) {
      if (options.on_progress) options.on_progress(reply.publish_progress());
    }
    if (!reply.has_publish_result() || reply.publish_result().version() != version.value) continue;
    const local::PublishResult& result = reply.publish_result();
    PublishOutcome outcome;
    outcome.version = Version{result.version()};
    outcome.kind = result.packed()                             ? "packed"
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
