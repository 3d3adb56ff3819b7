#pragma once

#include <cstdint>
#include <optional>

#include "base/ids.h"
#include "base/time.h"
#include "proto/wire.pb.h"

namespace weightcast {

/// What a child says to the origin of a parent that it left, or stays with.
struct ParentFault {
  PayloadId payload{};
  Epoch epoch{};
  std::uint32_t stripe = 0;  ///< of the plan
  PeerId parent{};
  PeerId now_from{};  ///< the next parent; `parent` itself if the child stays
  wire::FaultKind kind = wire::FAULT_KIND_UNSPECIFIED;
  std::optional<ChunkIndex> damaged;  ///< CORRUPT: does not match its digest
  Duration starving{};  ///< STARVED and WAITING, if the child stays: since the last chunk

  bool operator==(const ParentFault&) const = default;
  [[nodiscard]] bool stays() const { return now_from == parent; }
};

/// Whatever a peer sends is taken; it may name what does not exist.
[[nodiscard]] ParentFault parent_fault_from_wire(const wire::ParentFault& message);
/// Times are told in milliseconds.
[[nodiscard]] wire::ParentFault parent_fault_to_wire(const ParentFault& fault);

}  // namespace weightcast
