#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace weightcast {

// For who asked for something by a name of its own, such as "forget": what an origin or a pool calls to plan is that
// for him. All other operations keep their word.

[[nodiscard]] std::string_view operation_of(const Error& error, std::string_view asked);
/// Error::message() with that word.
[[nodiscard]] std::string message_of(const Error& error, std::string_view asked);

}  // namespace weightcast
