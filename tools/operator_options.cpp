#include "tools/operator_options.h"

#include <utility>

#include "base/posix_file_system.h"

namespace weightcast {

void add_http_options(CLI::App& command, HttpFlags& flags, const std::string& help) {
  command.add_option("--http", flags.listen, help)->type_name("HOST:PORT");
  command.add_option("--http-token", flags.token_file,
                     "File, of this user alone, whose first line whoever asks over HTTP has to bring");
}

void take_http_settings(std::vector<Setting>& settings, HttpFlags& flags) {
  const auto take = [&](std::string_view key, std::string& into) {
    std::string found;
    for (const Setting& setting : settings) {
      if (setting.first == key) found = setting.second;
    }
    std::erase_if(settings, [&](const Setting& setting) { return setting.first == key; });
    if (into.empty()) into = std::move(found);
  };
  take("http", flags.listen);
  take("http-token", flags.token_file);
}

Result<std::optional<OperatorPortOptions>> operator_options(const HttpFlags& flags, const std::string& keys,
                                                            std::vector<std::string> revocation_directories,
                                                            std::function<void(const std::string&)> warn) {
  if (flags.listen.empty()) {
    if (flags.token_file.empty()) return std::optional<OperatorPortOptions>();
    return fail(Errc::kInvalidArgument, Op::kConfigure, "--http-token: for the port that --http HOST:PORT opens");
  }
  OperatorPortOptions options;
  Result<Endpoint> listen = Endpoint::parse(flags.listen);
  if (!listen.has_value()) {
    return fail(listen.error().code, Op::kConfigure, "--http " + flags.listen + ": " + listen.error().detail);
  }
  options.listen = *std::move(listen);
  options.keys = keys;
  options.token_file = flags.token_file;
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
