#pragma once

namespace CLI {
class App;
}

namespace weightcast::bench {

void add_patch_command(CLI::App& app);

}  // namespace weightcast::bench
