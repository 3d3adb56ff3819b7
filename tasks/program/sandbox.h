#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/settings/words.h"

namespace weightcast {

/// Which sandbox is asked for. kAuto: kBwrap if that works here.
enum class SandboxKind { kNone, kAuto, kBwrap };
constexpr Words<3> words_of(SandboxKind) { return {"none", "auto", "bwrap"}; }

/// What a task's program runs in.
struct Sandbox {
  std::vector<std::string> words;  ///< that come before the program's own
  std::string description;         ///< "no sandbox"
};

/// The sandbox of that kind. In bwrap's the program reads all files that this user may read, writes none outside a /tmp
/// of its own, and has no network and no processes but its own. `environment` is the program's. Errors: kUnsupported,
/// which says why, if it is kBwrap and that does not work.
[[nodiscard]] Result<Sandbox> find_sandbox(SandboxKind kind, std::span<const std::string> environment);

}  // namespace weightcast
