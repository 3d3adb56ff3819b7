#pragma once

#include <exception>
#include <string_view>

#include "base/result.h"

namespace weightcast {

/// What a library threw, as an error: "WHAT: the first line of its words", and "; MEMORY_ADVICE" where memory was not
/// to be had. That is kTooLarge: std::bad_alloc, or what LibTorch's allocators of either device say. All else is
/// kIo: trying again may help. Both are Op::kConfigure.
[[nodiscard]] Error exception_error(const std::exception& exception, std::string_view what,
                                    std::string_view memory_advice);

}  // namespace weightcast
