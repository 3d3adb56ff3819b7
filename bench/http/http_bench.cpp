#include "bench/http/http_bench.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>

#include "base/files/descriptors.h"
#include "base/files/unique_fd.h"
#include "base/json_of.h"
#include "bench/fleet/tcp.h"
#include "bench/times.h"
#include "transport/http/client.h"
#include "transport/http/server.h"

namespace weightcast::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr Duration kCallLimit = std::chrono::seconds(30);
constexpr std::string_view kEvent = "data: {\"token\": 1234, \"logprob\": -0.25, \"text\": \" some\"}\n\n";

Result<UniqueFd> dial(const Endpoint& server, std::string_view request) {
  WC_ASSIGN(UniqueFd fd, tcp_connect(server));
  WC_TRY(tcp_send_all(fd, std::as_bytes(std::span(request))));
  return fd;
}

/// The server, and a thread that writes to its streams.
class Served {
 public:
  Status start(std::size_t connections_max, std::uint64_t event_ms) {
    HttpServerOptions options;
    options.limits.connections_max = connections_max;
    WC_ASSIGN(server, HttpServer::start(std::move(options), [this](HttpRequest request, HttpResponder responder) {
                if (request.path == "/health") {
                  responder.send({.body = "{\"status\": \"ok\"}\n"});
                  return;
                }
                const std::scoped_lock lock(mutex);
                auto& list = request.path == "/stream" ? streams : floods;
                list.push_back(responder.stream({.content_type = "text/event-stream"}));
              }));
    writer = std::thread([this, event_ms] { write_all(event_ms); });
    return {};
  }
  ~Served() {
    stopping = true;
    if (writer.joinable()) writer.join();
  }

  void write_all(std::uint64_t event_ms) {
    const std::string large(64 * 1024, 'x');
    for (auto next = Clock::now(); !stopping; next += std::chrono::milliseconds(event_ms)) {
      {
        const std::scoped_lock lock(mutex);
        for (HttpStream& stream : streams) stream.write(kEvent);
        std::erase_if(floods, [&](HttpStream& stream) {
          const bool goes_on = stream.write(large);
          cut += goes_on ? 0 : 1;
          return !goes_on;
        });
      }
      std::this_thread::sleep_until(next);
    }
  }

  std::unique_ptr<HttpServer> server;
  std::mutex mutex;
  std::deque<HttpStream> streams, floods;
  std::thread writer;
  std::atomic<bool> stopping = false;
  std::atomic<std::uint64_t> cut = 0;
};

}  // namespace

Result<HttpBenchResult> run_http_bench(const HttpBenchOptions& options) {
  WC_TRY(raise_descriptor_limit());
  // Two for the probes.
  const std::size_t connections = options.idle + options.streams + options.never_read + 2;
  Served served;
  WC_TRY(served.start(connections * 4 / 3 + 1, options.event_ms));  // of one host three quarters
  const Endpoint server = served.server->endpoint();

  std::vector<UniqueFd> idle, streams;
  for (std::size_t i = 0; i < options.idle; ++i) {
    WC_ASSIGN(idle.emplace_back(), dial(server, "GET /health HTTP/1.1\r\n\r\n"));
  }
  for (std::size_t i = 0; i < options.streams; ++i) {
    WC_ASSIGN(streams.emplace_back(), dial(server, "GET /stream HTTP/1.1\r\n\r\n"));
  }
  std::atomic<bool> stopping = false;
  std::atomic<std::uint64_t> events = 0;
  std::thread reads([&] {
    std::vector<pollfd> polled;
    for (const UniqueFd& fd : streams) polled.push_back({fd.get(), POLLIN, 0});
    std::string buffer(64 * 1024, '\0');
    while (!stopping) {
      ::poll(polled.data(), polled.size(), 50);
      for (const pollfd& one : polled) {
        if (one.revents == 0) continue;
        const ssize_t got = ::recv(one.fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
        for (ssize_t i = 0; i < got; ++i) events += buffer[static_cast<std::size_t>(i)] == '}' ? 1 : 0;
      }
    }
  });
  std::thread floods([&] {
    std::vector<UniqueFd> open;
    std::uint64_t dialled = 0;
    while (!stopping) {
      // As many at a time: one is dialled for each that the server has cut.
      while (!stopping && dialled < options.never_read + served.cut) {
        auto fd = dial(server, "GET /flood HTTP/1.1\r\n\r\n");
        if (!fd.has_value()) break;
        open.push_back(std::move(*fd));
        if (open.size() > options.never_read) open.erase(open.begin());
        ++dialled;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });

  HttpBenchResult result;
  std::vector<double> times_ms;
  Status failed;
  {
    WC_ASSIGN(const auto kept, HttpClient::make({.server = server}));
    const auto begin = Clock::now();
    const double cpu_before = process_cpu_s();
    while (failed.has_value() && seconds_since(begin) < options.seconds) {
      for (const bool is_kept : {true, false}) {
        std::unique_ptr<HttpClient> own;
        if (!is_kept) {
          WC_ASSIGN(own, HttpClient::make({.server = server}));
        }
        const auto asked = Clock::now();
        const auto response = (is_kept ? *kept : *own).call({.target = "/health"}, kCallLimit);
        times_ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - asked).count());
        if (!response.has_value()) failed = response.error();
        if (response.has_value() && response->status != 200) {
          failed = fail(Errc::kBusy, Op::kReceive, fmt::format("/health answers {}", response->status));
        }
        if (!failed.has_value()) break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    result.connections = served.server->stats().connections;
    result.server_cpu_share = (process_cpu_s() - cpu_before) / seconds_since(begin);
  }
  stopping = true;
  reads.join();
  floods.join();
  WC_TRY(failed);
  // Streams up to the cap, since idle connections make way.
  std::vector<UniqueFd> fill;
  for (std::size_t i = 0; i < options.idle + options.never_read + 66; ++i) {
    WC_ASSIGN(UniqueFd fd, dial(server, "GET /stream HTTP/1.1\r\n\r\n"));
    char answer[16] = {};
    if (::recv(fd.get(), answer, 12, MSG_WAITALL) == 12) {
      result.above_cap_status = static_cast<unsigned>(std::atoi(answer + 9));
    }
    fill.push_back(std::move(fd));
    if (result.above_cap_status == 503) break;
  }
  std::sort(times_ms.begin(), times_ms.end());
  const auto at = [&](double share) {
    return times_ms[std::min(times_ms.size() - 1,
                             static_cast<std::size_t>(share * static_cast<double>(times_ms.size())))];
  };
  result.probes = times_ms.size();
  result.p50_ms = at(0.5);
  result.p99_ms = at(0.99);
  result.max_ms = times_ms.back();
  result.events = events;
  result.streams_cut = served.cut;
  return result;
}

nlohmann::json to_json(const HttpBenchOptions& options, const HttpBenchResult& result) {
  return merged(WC_JSON_OF(options.idle, options.streams, options.never_read, options.seconds, result.connections,
                           result.probes, result.p50_ms, result.p99_ms, result.max_ms, result.events,
                           result.streams_cut, result.above_cap_status),
                {{"cpu_share", result.server_cpu_share}});
}

}  // namespace weightcast::bench
