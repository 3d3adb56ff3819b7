#include "tools/run_commands.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "base/text.h"

namespace weightcast {
namespace {

/// Turns what a library throws into an error, so that a command ends with one line: memory that is not to be had.
Status caught(const CommandBody& selected) {
  try {
    return selected();
  } catch (const std::exception& exception) {
    const std::string_view words = exception.what();
    return fail(Errc::kTooLarge, Op::kConfigure,
                fmt::format("a library says: {}; is there memory enough?", words.substr(0, words.find('\n'))));
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
