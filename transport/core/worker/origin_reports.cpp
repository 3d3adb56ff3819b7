#include "transport/core/worker/origin_reports.h"

#include <string>
#include <utility>

#include "proto/limits.h"
#include "transport/core/manifest/payload_wire.h"

namespace weightcast {

void OriginReports::send_progress(Instant now, const Progress& progress) {
  wire::Message message;
  wire::Heartbeat* beat = message.mutable_heartbeat();
  beat->set_installed_version(held_.installed().value);
  if (progress.receiving != PayloadId{}) payload_to_wire(progress.receiving, *beat->mutable_receiving());
  beat->set_chunks_verified(progress.chunks_verified);
  beat->set_chunks_total(progress.chunks_total);
  beat->set_bytes_received(progress.bytes_received);
  beat->set_bytes_sent(progress.bytes_sent);
  beat->set_receive_bytes_per_s(progress.receive_bytes_per_s);
  beat->mutable_stripes_missing()->Assign(progress.stripes_missing.begin(), progress.stripes_missing.end());
  if (progress.taken_after) {
    beat->set_taken_version(held_.installed().value);
    beat->set_taken_after_s(to_seconds(*progress.taken_after));
  }
  origin_.send_heartbeat(now, std::move(message));
}

void OriginReports::send_installed(std::uint64_t bytes_received, double seconds,
                                   const std::optional<InstallPhases>& phases) {
  wire::Message message;
  wire::Installed* done = message.mutable_installed();
  const Manifest* manifest = held_.installed_manifest();
  set_payload(*done, manifest != nullptr ? manifest->id() : PayloadId{held_.installed()});
  if (manifest != nullptr) done->set_snapshot_digest(std::string(bytes_of(manifest->snapshot_digest)));
  done->set_bytes_received(bytes_received);
  done->set_seconds(seconds);
  if (phases) *done->mutable_phases() = install_phases_to_wire(*phases);
  origin_.send(std::move(message));
}

void OriginReports::send_failed(PayloadId payload, const Error& why) {
  wire::Message message;
  set_payload(*message.mutable_install_failed(), payload);
  message.mutable_install_failed()->set_code(static_cast<std::uint32_t>(why.code));
  message.mutable_install_failed()->set_detail(why.detail.substr(0, kReasonBytesMax));
  origin_.send(std::move(message));
}

void OriginReports::send_faults(const std::vector<ParentFault>& faults) {
  for (const ParentFault& fault : faults) {
    wire::Message message;
    *message.mutable_parent_fault() = parent_fault_to_wire(fault);
    origin_.send(std::move(message));
  }
}

}  // namespace weightcast
