#include "tests/vllm/vllm_server.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "base/json_text.h"
#include "base/steady_clock.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

/// Nobody listens on it a moment later, unless another takes it first.
std::uint16_t free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  WC_CHECK(::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0);
  WC_CHECK(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  ::close(fd);
  return ntohs(address.sin_port);
}

/// A process and those that it started.
void add_family(pid_t pid, std::vector<pid_t>& family) {
  family.push_back(pid);
  const std::string all = "/proc/" + std::to_string(pid) + "/task";
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator(all, error)) {
    std::ifstream children(task.path() / "children");
    for (pid_t child = 0; children >> child;) add_family(child, family);
  }
}

}  // namespace

VllmServer::VllmServer(const std::filesystem::path& model, const std::filesystem::path& log,
                       std::vector<std::string> flags, const std::vector<std::string>& variables)
    : log_(log.string()), endpoint_{"127.0.0.1", free_port()} {
  const char* program = std::getenv("WEIGHTCAST_VLLM");
  WC_CHECK(program != nullptr);  // tests/vllm/run.sh sets it
  const std::string scratch = log_ + ".d";
  arguments_ = {"/usr/bin/env",
                "VLLM_SERVER_DEV_MODE=1",
                "VLLM_CPU_KVCACHE_SPACE=1",
                "VLLM_CPU_OMP_THREADS_BIND=nobind",
                "OMP_NUM_THREADS=1",
                "HF_HUB_OFFLINE=1",
                "VLLM_NO_USAGE_STATS=1",
                "VLLM_CONFIG_ROOT=" + scratch,
                "VLLM_CACHE_ROOT=" + scratch};
  arguments_.insert(arguments_.end(), variables.begin(), variables.end());
  arguments_.insert(arguments_.end(), {program, "serve", model.string(), "--host", endpoint_.host, "--port",
                                       std::to_string(endpoint_.port), "--enforce-eager"});
  arguments_.insert(arguments_.end(), flags.begin(), flags.end());
  start();
}

VllmServer::~VllmServer() {
  if (!process_) return;
  process_->signal(SIGTERM);
  if (!process_->wait(30s)) kill();
}

void VllmServer::start() { process_.emplace(arguments_, log_, log_); }

void VllmServer::kill() {
  std::vector<pid_t> family;
  add_family(process_->pid(), family);
  for (const pid_t pid : family) ::kill(pid, SIGKILL);
  static_cast<void>(process_->wait(30s));
  process_.reset();
}

bool VllmServer::wait_until_ready(Duration limit) {
  for (const Instant end = steady_now() + limit; steady_now() < end && process_->running();) {
    const auto health = call({.target = "/health"});
    if (health.has_value() && health->status == 200) return true;
    std::this_thread::sleep_for(200ms);
  }
  return false;
}

Result<HttpResponse> VllmServer::call(HttpCall call) {
  WC_ASSIGN(const auto client, HttpClient::make({.server = endpoint_}));
  return client->call(call, 60s);
}

nlohmann::json VllmServer::get(const std::string& target) {
  const auto response = call({.target = target});
  return response.has_value() && response->status == 200 ? parse_json(response->body) : nlohmann::json();
}

nlohmann::json VllmServer::post(const std::string& target, const nlohmann::json& body) {
  const auto response =
      call({.method = "POST", .target = target, .content_type = "application/json", .body = json_text(body)});
  return response.has_value() && response->status == 200 ? parse_json(response->body) : nlohmann::json();
}

double VllmServer::metric(const std::string& name, const std::string& label) {
  const auto response = call({.target = "/metrics"});
  double sum = 0;
  std::istringstream lines(response.has_value() ? response->body : "");
  for (std::string line; std::getline(lines, line);) {
    const bool is_its = line.starts_with(name + "{") && line.find(label) != std::string::npos;
    if (is_its) sum += std::stod(line.substr(line.rfind(' ')));
  }
  return sum;
}

}  // namespace weightcast
