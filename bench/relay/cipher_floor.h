#pragma once

#include <cstdint>

#include "base/result.h"

namespace weightcast::bench {

/// Processor seconds to encrypt and decrypt so many bytes once each with AES-128-GCM, in records of 16 KiB and in
/// place, as the connections' encryption does. One thread; nothing else is done with the bytes.
[[nodiscard]] Result<double> cipher_floor_s(std::uint64_t bytes);

}  // namespace weightcast::bench
