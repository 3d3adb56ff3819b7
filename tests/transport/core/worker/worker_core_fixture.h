#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "tests/transport/core/payload_fixture.h"
#include "tests/transport/core/worker_fixture.h"
#include "transport/core/worker/worker_core.h"

namespace weightcast {

/// One worker that has joined, spoken to message by message.
struct WorkerCoreTest : testing::Test {
  using Kind = wire::Message::KindCase;

  WorkerConfig config = worker_config();
  WorkerCore worker{config};
  Instant now{std::chrono::hours(1)};
  ConnId origin{};
  std::vector<action::Connect> dialled;
  std::vector<action::Send> said;
  std::vector<ConnId> closed;
  std::vector<Version> begun;

  void run() {
    for (const Action& action : drain([&] { return worker.poll_action(); })) {
      note(action);
      if (const auto* connect = std::get_if<action::Connect>(&action)) dialled.push_back(*connect);
      if (const auto* send = std::get_if<action::Send>(&action)) said.push_back(*send);
      if (const auto* close = std::get_if<action::Close>(&action)) closed.push_back(close->conn);
      if (const auto* begin = std::get_if<action::BeginPayload>(&action)) begun.push_back(begin->manifest->version);
    }
  }
  /// For a test that asks for more of what the worker does.
  virtual void note(const Action& /*action*/) {}
  /// Until it receives something, a hundred deadlines on at most.
  void run_until_receiving() {
    for (int i = 0; i < 100 && worker.receiving() == kNoVersion; ++i) {
      now = std::max(now, *worker.poll_deadline());
      worker.handle_timeout(now);
      run();
    }
  }
  void SetUp() override { start(); }
  /// Another process by `config`, which has not started yet.
  void renew() {
    std::destroy_at(&worker);
    std::construct_at(&worker, config);
  }
  /// This version lies on its disk, whole.
  void restore(std::uint64_t version) {
    worker.restore(manifest_of(Version{version}, 100), chunk_digests(Version{version}, 100));
  }
  /// It joins its origin.
  void start() {
    worker.start(now);
    run();
    join();
  }
  void join() {
    origin = dialled.back().conn;
    worker.handle_connected(now, origin);
    wire::Message joined;
    joined.mutable_joined()->set_peer_id(5);
    tell(joined);
  }
  void lose_origin() {
    worker.handle_closed(now, origin, fail(Errc::kClosed, Op::kReceive, "reset"));
    now = *worker.poll_deadline();
    worker.handle_timeout(now);
    run();
  }
  void tell(const wire::Message& message) {
    worker.handle_message(now, origin, message);
    run();
  }
  void announce(const std::shared_ptr<const Manifest>& manifest, std::uint64_t epoch) {
    tell(announce_message(*manifest, epoch));
  }
  void announce(std::uint64_t version, std::uint64_t epoch) { announce(manifest_of(Version{version}, 100), epoch); }
  ConnId accept_child() {
    const ConnId child = worker.next_conn();
    worker.handle_accepted(now, child, "host");
    worker.handle_message(now, child, hello_message("child"));
    return child;
  }
  /// The origin says that there is no such version any more.
  void withdraw(std::uint64_t version) {
    wire::Message message;
    set_payload(*message.mutable_not_available(), Version{version});
    tell(message);
  }
  /// Empty if it has said nothing of that kind.
  wire::Message last_said(Kind kind) {
    for (auto send = said.rbegin(); send != said.rend(); ++send) {
      if (send->message.kind_case() == kind) return send->message;
    }
    return {};
  }
};

}  // namespace weightcast
