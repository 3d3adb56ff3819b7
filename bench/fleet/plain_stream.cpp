#include "bench/fleet/plain_stream.h"

#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "base/rate_limiter.h"
#include "bench/fleet/interrupt.h"
#include "bench/fleet/tcp.h"
#include "bench/times.h"

namespace weightcast::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kWriteBytes = 256 * kKiB;

Instant instant_now() { return Instant(Clock::now().time_since_epoch()); }

Status send_stream(const UniqueFd& socket, std::uint64_t bytes, Rate cap) {
  const std::vector<std::byte> data(kWriteBytes, std::byte{0x5a});
  RateLimiter limiter(cap);
  while (bytes > 0) {
    WC_TRY(check_interrupt());
    std::size_t size = std::min<std::uint64_t>(bytes, data.size());
    if (cap.limited()) {
      size = std::min(size, limiter.quantum_bytes());
      const Instant now = instant_now();
      if (limiter.available(now) < size) {
        std::this_thread::sleep_for(std::max<Duration>(limiter.ready_at(now, size) - now, Duration(1)));
        continue;
      }
      limiter.consume(now, size);
    }
    WC_TRY(tcp_send_all(socket, Bytes(data).first(size)));
    bytes -= size;
  }
  return {};
}

Result<std::uint64_t> drain(const UniqueFd& socket) {
  std::vector<std::byte> into(kWriteBytes);
  std::uint64_t received = 0;
  for (;;) {
    WC_ASSIGN(const std::size_t n, tcp_receive(socket, into));
    if (n == 0) return received;
    received += n;
  }
}

}  // namespace

Rate lower(Rate a, Rate b) {
  if (!a.limited()) return b;
  if (!b.limited()) return a;
  return std::min(a, b);
}

Result<PlainStream> time_plain_stream(const Network& network, NodeIndex from, NodeIndex to, std::uint64_t bytes,
                                      Rate cap) {
  if (network.keeps_rates()) cap = Rate{};
  TcpListener listener;
  UniqueFd sender;
  WC_TRY(network.on_host(to, [&]() -> Status {
    WC_ASSIGN(listener, tcp_listen({network.endpoint(to).host, 0}));
    return {};
  }));
  WC_TRY(network.on_host(from, [&]() -> Status {
    WC_ASSIGN(sender, tcp_connect(listener.endpoint));
    return {};
  }));
  WC_ASSIGN(const UniqueFd receiver, tcp_accept(listener.socket));

  const double cpu_before_s = process_cpu_s();
  const auto start = Clock::now();
  Status sent;
  std::thread sending([&] {
    sent = send_stream(sender, bytes, cap);
    sender.reset();
  });
  const Result<std::uint64_t> received = drain(receiver);
  const double seconds = to_seconds(Clock::now() - start);
  sending.join();
  WC_TRY(sent);
  if (!received.has_value()) return received.error();
  if (*received != bytes) return fail(Errc::kClosed, Op::kReceive, "a plain stream ended early");
  return PlainStream{seconds, process_cpu_s() - cpu_before_s};
}

}  // namespace weightcast::bench
