#pragma once

#include <string>

#include "tools/shell/command_tree.h"

namespace weightcast {

/// What a shell reads to complete the program's commands, options and their choices; for other values it offers files.
enum class Shell { kBash, kZsh, kFish };
[[nodiscard]] std::string completion_script(const DescribedCommand& program, Shell shell);

}  // namespace weightcast
