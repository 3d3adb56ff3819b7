#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"

namespace weightcast {

/// A device as configurations name it: "cpu", or "cuda:N" of which "cuda" is short for N = 0.
struct DeviceName {
  std::optional<std::int8_t> cuda;  ///< the GPU's number; absent for the CPU
};

/// Errors: kInvalidArgument, with what is allowed.
[[nodiscard]] Result<DeviceName> parse_device_name(std::string_view name);

}  // namespace weightcast
