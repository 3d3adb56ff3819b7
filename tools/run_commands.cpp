#include "tools/run_commands.h"

#include <cstdio>

#include "base/text.h"

namespace weightcast {

int run_commands(CLI::App& app, const CommandBody& selected, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForAllHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::ParseError& error) {
    app.exit(error);
    return 2;
  }
  const Status status = selected();
  if (status.has_value()) return 0;
  std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), printable(status.error().message()).c_str());
  return 1;
}

}  // namespace weightcast
