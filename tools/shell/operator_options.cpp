#include "tools/shell/operator_options.h"

#include <utility>

#include "base/files/posix_file_system.h"

namespace weightcast {

Result<std::optional<OperatorPortOptions>> operator_options(const OperatorSettings& settings, const std::string& keys,
                                                            std::vector<std::string> revocation_directories,
                                                            std::function<void(const std::string&)> warn) {
  if (!settings.http) {
    if (settings.http_token.empty()) return std::optional<OperatorPortOptions>();
    return fail(Errc::kInvalidArgument, Op::kConfigure, "--http-token: for the port that --http HOST:PORT opens");
  }
  OperatorPortOptions options;
  options.listen = *settings.http;
  options.keys = keys;
  options.token_file = settings.http_token;
  options.revocation_directories = std::move(revocation_directories);
  options.warn = [warn = std::move(warn)](const std::string& why) { warn("HTTP: " + why); };
  WC_TRY(OperatorPort::check(options));
  return std::optional(std::move(options));
}

Status write_http_address(const OperatorPort& port, const std::string& directory) {
  PosixFileSystem files;
  return replace_file(files, directory + "/http_address", port.endpoint().to_string() + "\n", Synced::kNothing);
}

}  // namespace weightcast
