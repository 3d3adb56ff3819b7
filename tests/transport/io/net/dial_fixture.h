#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/transport/io/io_fixture.h"
#include "transport/io/net/dial.h"
#include "transport/io/net/listener.h"

namespace weightcast {

using Dialed = std::optional<Result<std::unique_ptr<FrameConnection>>>;

inline Dial::Done store_in(Dialed& result) {
  return [&result](Result<std::unique_ptr<FrameConnection>> c) { result.emplace(std::move(c)); };
}

inline Listener::OnConnection ignore() {
  return [](std::unique_ptr<FrameConnection>) {};
}

/// A listener that keeps what it accepts.
struct Acceptor {
  explicit Acceptor(Net& net, const std::string& host = "127.0.0.1") {
    auto made = Listener::tcp(net.context(), {host, 0}, [this](std::unique_ptr<FrameConnection> c) {
      ends.push_back(std::make_unique<End>());
      ends.back()->adopt(std::move(c));
    });
    EXPECT_TRUE(made.has_value());
    listener = std::move(*made);
  }
  [[nodiscard]] End& first() { return *ends.front(); }
  [[nodiscard]] bool first_closed() const { return !ends.empty() && ends.front()->closed.has_value(); }

  std::vector<std::unique_ptr<End>> ends;
  std::unique_ptr<Listener> listener;
};

}  // namespace weightcast
