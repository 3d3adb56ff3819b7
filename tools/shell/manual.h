#pragma once

#include <string>

#include "tools/shell/command_tree.h"

namespace weightcast {

/// The program's page of section 1, in man(7)'s macros. What stands there is what its help says.
[[nodiscard]] std::string manual_page(const DescribedCommand& program, const std::string& version);

}  // namespace weightcast
