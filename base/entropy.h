#pragma once

#include <cstdint>

namespace weightcast {

/// A number of the kernel's that nobody can foresee: for seeds, and for names that nobody else has.
[[nodiscard]] std::uint64_t host_entropy();

}  // namespace weightcast
