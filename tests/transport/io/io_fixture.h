#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/io/net/frame_connection.h"
#include "transport/io/net/io_threads.h"

namespace weightcast {

/// A node's worth of transport, and a loop to run it on.
struct Net {
  UvLoop loop;
  BufferPool buffers{16 * kMiB};
  Pacer uplink;
  Pacer downlink;
  SocketOptions socket;
  std::shared_ptr<TlsContext> tls;
  std::optional<OffloadThreads> hashing;  ///< none before it is emplaced
  std::optional<IoThreads> io;            ///< the same

  explicit Net(Rate up = {}, Rate down = {}, std::shared_ptr<TlsContext> with_tls = nullptr)
      : uplink(loop, up), downlink(loop, down), tls(std::move(with_tls)) {}

  [[nodiscard]] ConnectionContext context() {
    return {loop, buffers, uplink, downlink, socket, tls, hashing ? &*hashing : nullptr, io ? &*io : nullptr};
  }

  /// Turns the loop until `done` holds, for a minute at most.
  template <typename Condition>
  [[nodiscard]] testing::AssertionResult run_until(Condition done, Duration limit = std::chrono::seconds(60)) {
    const Instant deadline = loop.now() + limit;
    while (!done()) {
      if (loop.now() >= deadline)
        return testing::AssertionFailure() << "did not happen in " << to_seconds(limit) << " s";
      loop.run_until(deadline);
    }
    return testing::AssertionSuccess();
  }

  /// Turns the loop for `span`.
  void run_for(Duration span) {
    const Instant deadline = loop.now() + span;
    while (loop.now() < deadline) loop.run_until(deadline);
  }
};

/// One end of a connection, with what it received.
struct End {
  std::unique_ptr<FrameConnection> connection;
  std::vector<std::string> controls;
  std::vector<ReceivedChunk> chunks;
  std::string order;  ///< 'm' per control message, 'c' per chunk
  std::optional<Error> closed;

  void adopt(std::unique_ptr<FrameConnection> adopted) {
    connection = std::move(adopted);
    connection->set_handlers({.on_control = [this](std::string body) -> Status {
                                controls.push_back(std::move(body));
                                order += 'm';
                                return {};
                              },
                              .on_chunk =
                                  [this](ReceivedChunk chunk) {
                                    chunks.push_back(std::move(chunk));
                                    order += 'c';
                                  },
                              .on_closed = [this](const Error& error) { closed = error; }});
  }
};

}  // namespace weightcast
