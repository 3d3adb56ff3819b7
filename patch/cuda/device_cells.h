#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/digest/checksum.h"
#include "base/result.h"

namespace weightcast {

/// Changed cells of a range: where they stand, in growing order, and their new bits. What a host needs, with its own
/// copy of the old cells, to code the same segment that it would from both copies.
struct DeviceChanges {
  std::vector<std::uint32_t> indices;
  /// indices.size() cells of the range's width.
  std::vector<std::byte> cells;
};

/// Whether there is a CUDA device that this process may use.
[[nodiscard]] bool cuda_available();

/// Compares `count` < 2^32 cells of `cell_bytes` (1, 2, 4, 8) at two device addresses, aligned to the cell's width, on
/// the device, and copies what differs to the host. Blocks until done. Errors: kInvalidArgument (another width, too
/// many cells), kIo (CUDA's own words; kNoSpace where the device's memory is full).
[[nodiscard]] Result<DeviceChanges> find_changes_on_device(const void* before, const void* after, std::size_t count,
                                                           unsigned cell_bytes);

/// Writes the changes into `count` cells at a device address. Blocks until done: the weights are a mixture until then.
/// Errors: as above; kInvalidArgument where an index is not below `count` or the lengths disagree, before anything is
/// written.
[[nodiscard]] Status apply_changes_on_device(void* cells, std::size_t count, unsigned cell_bytes,
                                             const DeviceChanges& changes);

}  // namespace weightcast
