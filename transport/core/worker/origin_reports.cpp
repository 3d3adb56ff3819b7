#include "transport/core/worker/origin_reports.h"

#include <string>
#include <utility>

#include "proto/limits.h"
#include "transport/core/manifest/payload_wire.h"

namespace weightcast {

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
