#pragma once

namespace CLI {
class App;
}

namespace weightcast::bench {

/// Adds `predict` to `weightcast-bench`.
void add_predict_command(CLI::App& app);

}  // namespace weightcast::bench
