#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weightcast {

/// What a task's program runs in.
struct Sandbox {
  std::vector<std::string> words;  ///< that come before the program's own
  std::string description;         ///< "no sandbox"
};

/// The sandbox of that name: none, bwrap, or auto, which is bwrap if that works here. In bwrap's the program reads all
/// files that this user may read, writes none outside a /tmp of its own, and has no network and no processes but its
/// own. `environment` is the program's. Errors: kUnsupported, which says why, if it is bwrap and that does not work.
[[nodiscard]] Result<Sandbox> find_sandbox(std::string_view name, std::span<const std::string> environment);

}  // namespace weightcast
