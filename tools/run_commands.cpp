#include "tools/run_commands.h"

#include <cstdio>
#include <exception>

#include "base/exception_error.h"
#include "base/text.h"

namespace weightcast {
namespace {

/// Turns what a library throws into an error, so that a command ends with one line.
Status caught(const CommandBody& selected) {
  try {
    return selected();
  } catch (const std::exception& exception) {
    return exception_error(exception, "a library says", "it takes more memory than there is");
  }
}

}  // namespace

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
  const Status status = caught(selected);
  if (status.has_value()) return 0;
  std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), printable(status.error().message()).c_str());
  return 1;
}

}  // namespace weightcast
