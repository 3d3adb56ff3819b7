#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "proto/limits.h"
#include "proto/wire.pb.h"
#include "tests/e2e/hostile/hostile_worker.h"
#include "tests/transport/core/worker_fixture.h"
#include "transport/core/manifest/payload_wire.h"

namespace weightcast {

/// Connections of one member to its origin, each dialled anew when it is closed, on a thread of their own.
class GreedyMember {
 public:
  using Say = std::function<void(FrameConnection&)>;

  /// On each connection `begin` says what comes first, `on_chunk` what follows each chunk, and `on_sent` what follows
  /// each time that all has left that was said; null: nothing.
  GreedyMember(const ClusterKeys& keys, const std::string& name, std::string origin, std::size_t connections, Say begin,
               Say on_chunk, Say on_sent)
      : network_(loop_, Rate{}, Rate{}, {},
                 TlsContext::make(keys.read(keys.has(name) ? keys.file_of(name) : keys.issue(name)))),
        origin_(Endpoint::parse(origin).value()),
        begin_(std::move(begin)),
        on_chunk_(std::move(on_chunk)),
        on_sent_(std::move(on_sent)) {
    for (std::size_t i = 0; i < connections; ++i) dial(*connections_.emplace(connections_.end(), loop_));
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~GreedyMember() {
    loop_.post([this] { loop_.stop(); });
    thread_.join();
  }
  GreedyMember(const GreedyMember&) = delete;
  GreedyMember& operator=(const GreedyMember&) = delete;

  [[nodiscard]] std::uint64_t chunk_bytes() const { return chunk_bytes_; }
  [[nodiscard]] int closed() const { return closed_; }

 private:
  struct One {
    explicit One(UvLoop& loop) : next(loop, [this] { act(); }) {}
    std::unique_ptr<Network::Attempt> attempt;
    std::unique_ptr<FrameConnection> connection;
    std::function<void()> act;
    Timer next;
  };

  void dial(One& one) {
    one.attempt = network_.dial(origin_, [this, &one](Result<std::unique_ptr<FrameConnection>> dialled) {
      one.act = [this, &one] { dial(one); };
      if (!dialled.has_value()) return one.next.arm(loop_.now() + std::chrono::milliseconds(100));
      one.connection = std::move(*dialled);
      const auto go_on = [this, &one](const Say& what) {
        if (!what) return;
        one.act = [&one, &what] { what(*one.connection); };
        one.next.arm(loop_.now());
      };
      one.connection->set_handlers({.on_control = [](const std::string&) { return Status{}; },
                                    .on_chunk =
                                        [this, go_on](const ReceivedChunk& chunk) {
                                          chunk_bytes_ += chunk.bytes->size();
                                          go_on(on_chunk_);
                                        },
                                    .on_closed =
                                        [this, &one](const Error&) {
                                          ++closed_;
                                          one.act = [this, &one] { dial(one); };
                                          one.next.arm(loop_.now() + std::chrono::milliseconds(10));
                                        },
                                    .on_control_sent = [this, go_on] { go_on(on_sent_); }});
      begin_(*one.connection);
    });
  }

  UvLoop loop_;
  SocketNetwork network_;
  const Endpoint origin_;
  const Say begin_, on_chunk_, on_sent_;
  std::atomic<std::uint64_t> chunk_bytes_ = 0;
  std::atomic<int> closed_ = 0;
  std::list<One> connections_;
  std::thread thread_;
};

inline void say(FrameConnection& to, const wire::Message& message) { to.send_control(message.SerializeAsString()); }

inline void say_hello(FrameConnection& to, const std::string& name) { say(to, hello_message(name, 0)); }

inline wire::Message subscribe_to(Version version) {
  wire::Message message;
  set_payload(*message.mutable_subscribe(), version);
  message.mutable_subscribe()->add_stripe_weights(1);
  return message;
}

/// A member that subscribes to that version on so many connections, and again whenever a chunk has come.
inline std::unique_ptr<GreedyMember> take_copies_of(Version version, const ClusterKeys& keys, const std::string& name,
                                                    const std::string& origin, std::size_t connections) {
  const auto subscribe = [version](FrameConnection& to) { say(to, subscribe_to(version)); };
  return std::make_unique<GreedyMember>(
      keys, name, origin, connections,
      [name, subscribe](FrameConnection& to) {
        say_hello(to, name);
        subscribe(to);
      },
      [version, subscribe](FrameConnection& to) {
        wire::Message unsubscribe;
        set_payload(*unsubscribe.mutable_unsubscribe(), version);
        say(to, unsubscribe);
        subscribe(to);
      },
      nullptr);
}

/// Legal, and of no use: a bitmap that says that nothing is here. With it a frame has 0.4 to 1 MiB.
inline wire::Message large_message(std::size_t bytes) {
  wire::Message large = subscribe_to(Version{99});
  large.mutable_subscribe()->set_chunks_held(std::string(bytes, '\0'));
  return large;
}

}  // namespace weightcast
