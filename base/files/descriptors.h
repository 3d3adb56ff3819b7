#pragma once

#include "base/result.h"

namespace weightcast {

/// Raises this process's limit of open files as far as it may: each connection takes a descriptor, and the usual limit
/// of 1024 ends a fleet at some 500. At the start, before anything is sized by it. Errors: kIo, kNotAllowed; then the
/// limit is as it was.
[[nodiscard]] Status raise_descriptor_limit();

}  // namespace weightcast
