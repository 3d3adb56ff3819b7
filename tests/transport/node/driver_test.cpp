#include "transport/node/driver.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "tests/transport/io/store/store_fixture.h"
#include "transport/core/core.h"

namespace weightcast {
namespace {

/// Dials once, and counts what it hears of that.
class DiallingCore final : public Core {
 public:
  DiallingCore() : Core(Timeouts{}, ProtocolRange{}) {}

  void start(Instant) override { actions_.push(action::Connect{conn, "127.0.0.1", 1}); }
  void stop(std::string_view) override {}
  void close() { actions_.push(action::Close{conn}); }
  void handle_connected(Instant, ConnId, const std::optional<PeerIdentity>&) override { ++heard; }
  void handle_closed(Instant, ConnId, const Error&) override { ++heard; }
  void handle_message(Instant, ConnId, const wire::Message&) override { ++heard; }
  void handle_chunk(Instant, ConnId, const ChunkArrival&) override { ++heard; }
  void handle_version_lost(Instant, Version, std::shared_ptr<const Manifest>, const Error&) override {}

  const ConnId conn = conn_ids_.next();
  int heard = 0;

 protected:
  void handle_damaged(Instant, PayloadId, const Error&) override {}
};

/// Leaves it to the test when a dial ends.
class SlowNetwork final : public Network {
 public:
  std::unique_ptr<Attempt> dial(const Endpoint&, OnDialled on_dialled) override {
    dialled = std::move(on_dialled);
    return std::make_unique<Attempt>();
  }
  Result<std::unique_ptr<Listener>> listen(const Endpoint&, Listener::OnConnection) override {
    return fail(Errc::kUnsupported, Op::kConnect, "not here");
  }
  Result<std::unique_ptr<Listener>> listen_locally(const std::string&, Listener::OnConnection) override {
    return fail(Errc::kUnsupported, Op::kConnect, "not here");
  }

  OnDialled dialled;
};

class DriverTest : public OneStore {
 protected:
  void SetUp() override {
    open();
    driver_.emplace(core_, *store_, loop_, network_, DriverLimits{});
    driver_->start();
    ASSERT_TRUE(network_.dialled);
  }
  void TearDown() override { driver_.reset(); }

  DiallingCore core_;
  SlowNetwork network_;
  std::optional<Driver> driver_;
};

TEST_F(DriverTest, ADialThatEndsIsTold) {
  network_.dialled(fail(Errc::kTimedOut, Op::kConnect, "nobody answers"));
  EXPECT_EQ(core_.heard, 1);
}

// The attempt lives until the next turn, as its own callback may be running.
TEST_F(DriverTest, ADialThatEndsAfterItsCloseIsNotTold) {
  core_.close();
  driver_->pump();
  network_.dialled(fail(Errc::kTimedOut, Op::kConnect, "nobody answers"));
  EXPECT_EQ(core_.heard, 0);
}

}  // namespace
}  // namespace weightcast
