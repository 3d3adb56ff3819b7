#include "transport/core/edge/parent_fault.h"

#include <algorithm>
#include <limits>

#include "transport/core/manifest/payload_wire.h"

namespace weightcast {

ParentFault parent_fault_from_wire(const wire::ParentFault& message) {
  ParentFault fault;
  fault.payload = payload_of(message);
  fault.epoch = Epoch{message.epoch()};
  fault.stripe = message.stripe();
  fault.parent = PeerId{message.parent_id()};
  fault.now_from = PeerId{message.now_from_id()};
  fault.kind = message.kind();
  if (message.has_damaged_chunk()) fault.damaged = ChunkIndex{message.damaged_chunk()};
  fault.starving = std::chrono::milliseconds(message.starving_ms());
  return fault;
}

wire::ParentFault parent_fault_to_wire(const ParentFault& fault) {
  wire::ParentFault message;
  set_payload(message, fault.payload);
  message.set_epoch(fault.epoch.value);
  message.set_stripe(fault.stripe);
  message.set_parent_id(fault.parent.value);
  message.set_now_from_id(fault.now_from.value);
  message.set_kind(fault.kind);
  if (fault.damaged) message.set_damaged_chunk(fault.damaged->value);
  message.set_starving_ms(static_cast<std::uint32_t>(std::clamp<std::int64_t>(
      fault.starving / std::chrono::milliseconds(1), 0, std::numeric_limits<std::uint32_t>::max())));
  return message;
}

}  // namespace weightcast
