#pragma once

#include "tools/command.h"

namespace weightcast {

/// `export` and `import`, below `patch`: other tools' formats for the step from one version to the next.
void add_interop_commands(CLI::App& patch, CommandBody& selected);

}  // namespace weightcast
