#pragma once

#include <memory>
#include <utility>

#include "transport/core/worker/worker_core.h"

namespace weightcast::sim {

/// A worker's core to which everything goes through; a subclass spoils one thing.
class CoreProxy : public Core {
 public:
  explicit CoreProxy(std::unique_ptr<WorkerCore> worker) : worker_(std::move(worker)) {}

  void start(Instant now) override { worker_->start(now); }
  void stop(std::string_view reason) override { worker_->stop(reason); }
  ConnId next_conn() override { return worker_->next_conn(); }
  void handle_accepted(Instant now, ConnId conn, std::string_view host) override {
    worker_->handle_accepted(now, conn, host);
  }
  void handle_connected(Instant now, ConnId conn) override { worker_->handle_connected(now, conn); }
  void handle_closed(Instant now, ConnId conn, const Error& why) override { worker_->handle_closed(now, conn, why); }
  void handle_message(Instant now, ConnId conn, const wire::Message& message) override {
    worker_->handle_message(now, conn, message);
  }
  void handle_chunk(Instant now, ConnId conn, const ChunkArrival& chunk) override {
    worker_->handle_chunk(now, conn, chunk);
  }
  void handle_chunk_sent(Instant now, ConnId conn) override { worker_->handle_chunk_sent(now, conn); }
  void handle_chunk_unreadable(Instant now, PayloadId payload, ChunkIndex chunk) override {
    worker_->handle_chunk_unreadable(now, payload, chunk);
  }
  void handle_chunk_checked(Instant now, PayloadId payload, ChunkIndex chunk, Result<Digest> digest) override {
    worker_->handle_chunk_checked(now, payload, chunk, std::move(digest));
  }
  void handle_payload_begun(Instant now, PayloadId payload, Result<RestoredPayload> restored) override {
    worker_->handle_payload_begun(now, payload, std::move(restored));
  }
  void handle_chunk_stored(Instant now, PayloadId payload, ChunkIndex chunk, Status status) override {
    worker_->handle_chunk_stored(now, payload, chunk, std::move(status));
  }
  void handle_finished(Instant now, PayloadId payload, Status status) override {
    worker_->handle_finished(now, payload, std::move(status));
  }
  const Holdings& holdings() const override { return worker_->holdings(); }
  void handle_timeout(Instant now) override { worker_->handle_timeout(now); }
  std::optional<Action> poll_action() override { return worker_->poll_action(); }
  std::optional<Instant> poll_deadline() const override { return worker_->poll_deadline(); }

 protected:
  std::unique_ptr<WorkerCore> worker_;
};

}  // namespace weightcast::sim
