#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "transport/http/message.h"
#include "transport/http/server.h"

namespace weightcast {

/// One request and its answer, between the connection, on the server's thread, and whoever answers, on any.
class HttpExchange {
 public:
  /// `all_unsent` counts what waits in the streams of the whole server, and outlives none of them.
  HttpExchange(const HttpLimits& limits, std::shared_ptr<std::atomic<std::size_t>> all_unsent,
               std::function<void()> notify)
      : stream_bytes_max_(limits.stream_bytes_max),
        streams_bytes_max_(limits.streams_bytes_max),
        all_unsent_(std::move(all_unsent)),
        notify_(std::move(notify)) {}
  ~HttpExchange() { set_unsent(0); }
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  // ---- whoever answers

  void answer(HttpResponse head, bool is_stream) {
    const std::scoped_lock lock(mutex_);
    WC_CHECK(!answered_);
    answered_ = true;
    head_ = std::move(head);
    is_stream_ = is_stream;
    ended_ = !is_stream;
    tell();
  }
  bool write(std::string_view bytes) {
    const std::scoped_lock lock(mutex_);
    if (closed_ || ended_ || overflowed_) return false;
    // The more all streams hold, the less each may (Choudhury and Hahne, "Dynamic queue length thresholds", 1998):
    // those that nobody reads share the room, and one that is read has little waiting and stays.
    const std::size_t all = all_unsent_->load();
    const std::size_t left = streams_bytes_max_ - std::min(streams_bytes_max_, all);
    if (unsent_bytes_ + bytes.size() > std::min(stream_bytes_max_, left)) {
      overflowed_ = true;
      tell();
      return false;
    }
    set_unsent(unsent_bytes_ + bytes.size());
    pending_ += bytes;
    tell();
    return true;
  }
  void end() {
    const std::scoped_lock lock(mutex_);
    if (ended_) return;
    ended_ = true;
    tell();
  }
  void give_up() {
    const std::scoped_lock lock(mutex_);
    if (answered_) return;
    answered_ = ended_ = true;
    head_ = http_error(500, "the request was given up without an answer");
    tell();
  }
  void on_gone(std::function<void()> gone) {
    {
      const std::scoped_lock lock(mutex_);
      if (!gone_) {
        on_gone_ = std::move(gone);
        return;
      }
    }
    gone();
  }
  [[nodiscard]] bool gone() const {
    const std::scoped_lock lock(mutex_);
    return gone_;
  }

  // ---- the connection

  struct Answer {
    std::optional<HttpResponse> head;  ///< once
    bool is_stream = false;
    std::string bytes;  ///< of the stream, since the last call
    bool ended = false;
    bool overflowed = false;
  };
  /// The parts of the answer that are new; absent if none are.
  std::optional<Answer> take() {
    const std::scoped_lock lock(mutex_);
    // Without news the connection has nothing to do.
    if (!std::exchange(told_, false) || !answered_) return std::nullopt;
    Answer answer{std::nullopt, is_stream_, std::exchange(pending_, {}), ended_, overflowed_};
    if (!head_taken_) answer.head = std::move(head_);
    head_taken_ = true;
    return answer;
  }
  void handle_sent(std::size_t unsent_bytes) {
    const std::scoped_lock lock(mutex_);
    set_unsent(unsent_bytes + pending_.size());
  }
  /// Nobody waits for the answer. With `closed` it could not be sent, either.
  void handle_gone(bool closed) {
    std::function<void()> call;
    {
      const std::scoped_lock lock(mutex_);
      closed_ = closed_ || closed;
      if (closed_) set_unsent(0);
      gone_ = true;
      call = std::exchange(on_gone_, nullptr);
      if (closed_) notify_ = nullptr;
    }
    if (call) call();
  }
  void handle_answered() {
    const std::scoped_lock lock(mutex_);
    on_gone_ = nullptr;
    notify_ = nullptr;
    closed_ = true;
    set_unsent(0);
  }

 private:
  void set_unsent(std::size_t bytes) {
    *all_unsent_ += bytes - unsent_bytes_;  // modulo, as both are unsigned
    unsent_bytes_ = bytes;
  }
  void tell() {
    if (told_ || !notify_) return;
    told_ = true;
    notify_();
  }

  const std::size_t stream_bytes_max_, streams_bytes_max_;
  const std::shared_ptr<std::atomic<std::size_t>> all_unsent_;
  mutable std::mutex mutex_;
  std::function<void()> notify_;  // posts to the server's thread
  std::function<void()> on_gone_;
  bool told_ = false;
  bool answered_ = false, head_taken_ = false, is_stream_ = false, ended_ = false;
  bool overflowed_ = false, gone_ = false, closed_ = false;
  HttpResponse head_;
  std::string pending_;
  std::size_t unsent_bytes_ = 0;
};

}  // namespace weightcast
