// Arbitrary bytes as a --config file: options of this program, or a usage error.
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "tools/config_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const int file = ::memfd_create("config", 0);
  WC_CHECK(file >= 0 && ::write(file, data, size) == static_cast<ssize_t>(size));
  std::string name;
  unsigned port = 0;
  bool flag = false;
  std::vector<std::string> many;
  CLI::App app;
  weightcast::add_config_option(app);
  app.add_option("--name", name);
  app.add_option("--port", port)->check(CLI::Range(1u, 65535u));
  app.add_option("--many", many);
  app.add_flag("--flag", flag);
  try {
    app.parse(
        std::vector<std::string>{"/proc/self/fd/" + std::to_string(file), "--config"});  // backwards, as CLI11 has it
    WC_CHECK(port <= 65535);
  } catch (const CLI::ParseError&) {
  }
  ::close(file);
  return 0;
}
