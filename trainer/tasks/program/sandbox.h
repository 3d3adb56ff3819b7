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
  std::string system_call_filter;  ///< what ChildProcess::start() passes on; empty: nothing
};

struct SandboxWanted {
  SandboxKind kind = SandboxKind::kNone;
  std::vector<std::string> hidden = {};  ///< files and directories that the program must not see
};

/// The sandbox of that kind, for `program`, a command and its arguments. In bwrap's the program reads files that this
/// user may read, but for `hidden`, keys in usual places, /run, /dev/shm and state directories of nodes on this host;
/// it writes none outside a /tmp of its own, has no network, no Unix sockets but pairs of its own, and no processes but
/// its own. Where this process is root the program is the user nobody. `environment` is the program's.
/// Errors: kUnsupported, which says why, if bwrap is asked for and does not work, or hides the program from itself.
[[nodiscard]] Result<Sandbox> find_sandbox(const SandboxWanted& wanted, std::span<const std::string> program,
                                           std::span<const std::string> environment);

}  // namespace weightcast
