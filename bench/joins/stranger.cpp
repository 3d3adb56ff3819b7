#include "bench/joins/stranger.h"

#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "proto/limits.h"
#include "proto/wire.pb.h"
#include "transport/io/net/socket_network.h"
#include "transport/io/uv_loop.h"

namespace weightcast::bench {
namespace {

constexpr Duration kStrangersTurn = std::chrono::milliseconds(20);
constexpr Duration kReopenAfter = std::chrono::seconds(1);

}  // namespace

/// On the stranger's own thread.
class Stranger::Work {
 public:
  Work(Stranger& stranger, Endpoint origin, NodeKeys keys, const Options& options)
      : stranger_(stranger),
        origin_(std::move(origin)),
        options_(options),
        plain_(loop_, Rate{}, Rate{}, {}),
        encrypted_(loop_, Rate{}, Rate{}, {}, TlsContext::make(std::move(keys))),
        join_due_(loop_, [this] { join(); }) {
    for (std::size_t i = 0; i < options_.half_open; ++i) half_open_.push_back(std::make_unique<HalfOpen>(*this));
    for (const auto& one : half_open_) one->dial();
    if (options_.joins_per_s > 0) join();
  }

  void run() {
    while (!stranger_.stop_) loop_.run_until(loop_.now() + kStrangersTurn);
  }

 private:
  struct HalfOpen {
    explicit HalfOpen(Work& owner) : work(owner), again(owner.loop_, [this] { dial(); }) {}
    void dial() {
      connection.reset();
      attempt = work.plain_.dial(work.origin_, [this](Result<std::unique_ptr<FrameConnection>> dialled) {
        if (!dialled.has_value()) return again.arm(work.loop_.now() + kReopenAfter);
        connection = std::move(*dialled);
        ++work.stranger_.connections_;
        ++work.stranger_.open_;
        connection->set_handlers({.on_control = [](const std::string&) { return Status{}; },
                                  .on_chunk = [](const ReceivedChunk&) {},
                                  .on_closed =
                                      [this](const Error&) {
                                        --work.stranger_.open_;
                                        again.arm(work.loop_.now() + kReopenAfter);
                                      }});
      });
    }
    Work& work;
    std::unique_ptr<weightcast::Network::Attempt> attempt;
    std::unique_ptr<FrameConnection> connection;
    Timer again;
  };
  struct Join {
    std::unique_ptr<weightcast::Network::Attempt> attempt;
    std::unique_ptr<FrameConnection> connection;
  };

  void join() {
    next_join_ = std::max(next_join_, loop_.now() - std::chrono::seconds(1)) + from_seconds(1 / options_.joins_per_s);
    join_due_.arm(next_join_);
    joins_.emplace_back();
    const auto mine = std::prev(joins_.end());
    const auto end = [this, mine] {
      ++stranger_.refused_;
      loop_.post([this, mine] { joins_.erase(mine); });  // its own callback is running
    };
    mine->attempt = encrypted_.dial(origin_, [mine, end](Result<std::unique_ptr<FrameConnection>> dialled) {
      if (!dialled.has_value()) return end();
      mine->connection = std::move(*dialled);
      mine->connection->set_handlers({.on_control = [](const std::string&) { return Status{}; },
                                      .on_chunk = [](const ReceivedChunk&) {},
                                      .on_closed = [end](const Error&) { end(); }});
      wire::Message message;
      message.mutable_join()->set_protocol(kProtocolVersion);
      message.mutable_join()->set_name("stranger");
      mine->connection->send_control(message.SerializeAsString());
    });
  }

  Stranger& stranger_;
  const Endpoint origin_;
  const Options options_;
  UvLoop loop_;
  SocketNetwork plain_, encrypted_;
  std::vector<std::unique_ptr<HalfOpen>> half_open_;
  std::list<Join> joins_;
  Instant next_join_{};
  Timer join_due_;
};

Stranger::Stranger(const Network& network, NodeIndex host, Endpoint origin, NodeKeys keys, const Options& options)
    : thread_([this, &network, host, origin = std::move(origin), keys = std::move(keys), options]() mutable {
        static_cast<void>(network.on_host(host, [&]() -> Status {
          Work(*this, std::move(origin), std::move(keys), options).run();
          return {};
        }));
      }) {}

Stranger::~Stranger() {
  stop_ = true;
  thread_.join();
}

}  // namespace weightcast::bench
