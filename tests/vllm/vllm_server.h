#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/settings/endpoint.h"
#include "base/time.h"
#include "tests/e2e/fleet/process.h"
#include "transport/http/client.h"

namespace weightcast {

/// `vllm serve MODEL`, the one that $WEIGHTCAST_VLLM names, on a free port of loopback. Ended with this object.
class VllmServer {
 public:
  /// Its output goes to `log`. It takes most of a minute: wait_until_ready(). `variables`: NAME=VALUE, of its
  /// environment.
  VllmServer(const std::filesystem::path& model, const std::filesystem::path& log, std::vector<std::string> flags,
             const std::vector<std::string>& variables = {});
  ~VllmServer();

  /// False if it has ended, or is not ready within `limit`.
  [[nodiscard]] bool wait_until_ready(Duration limit);
  [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }
  /// SIGKILL, to its processes of all kinds.
  void kill();
  /// Again, on the same port.
  void start();

  /// The body of the answer; null unless its status is 200.
  [[nodiscard]] nlohmann::json get(const std::string& target);
  [[nodiscard]] nlohmann::json post(const std::string& target, const nlohmann::json& body);
  /// The sum of a metric's samples whose line has `label` in it.
  [[nodiscard]] double metric(const std::string& name, const std::string& label = "");

 private:
  [[nodiscard]] Result<HttpResponse> call(HttpCall call);

  std::vector<std::string> arguments_;
  std::string log_;
  Endpoint endpoint_;
  std::optional<Process> process_;
};

}  // namespace weightcast
