#include "transport/io/event_loop.h"

#include <fmt/format.h>
#include <sys/timerfd.h>
#include <uv.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <ctime>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"
#include "transport/io/unique_fd.h"

namespace weightcast {
namespace {

// Longer than a connection may flush after its close().
constexpr Duration kDrainTimeout = std::chrono::milliseconds(1500);

constexpr int kDeferredRoundsMax = 4;

template <typename Handle>
uv_handle_t* as_handle(Handle* handle) {
  return reinterpret_cast<uv_handle_t*>(handle);
}

}  // namespace

struct EventLoop::Impl {
  Impl() {
    WC_CHECK(uv_loop_init(&loop) == 0);
    WC_CHECK(uv_async_init(&loop, &wake, [](uv_async_t* h) { static_cast<Impl*>(h->data)->run_posted(); }) == 0);
    WC_CHECK(uv_check_init(&loop, &turn_end) == 0);
    WC_CHECK(uv_idle_init(&loop, &do_not_wait) == 0);
    wake.data = turn_end.data = this;
    uv_unref(as_handle(&wake));
    for (uv_signal_t& signal : signals) {
      WC_CHECK(uv_signal_init(&loop, &signal) == 0);
      signal.data = this;
      uv_unref(as_handle(&signal));
    }
  }

  void run_posted() {
    std::vector<std::function<void()>> tasks;
    {
      const std::lock_guard lock(mutex);
      tasks.swap(posted);
    }
    for (const auto& task : tasks) task();
  }

  [[nodiscard]] bool turn_has_more() const { return !scheduled.empty() || !posted_here.empty(); }

  /// Something is to run at the end of this turn.
  void want_turn_end() {
    const auto run = [](uv_check_t* handle) { static_cast<Impl*>(handle->data)->run_deferred(); };
    uv_check_start(&turn_end, run);
    uv_idle_start(&do_not_wait, [](uv_idle_t*) {});
  }

  void run_deferred() {
    // What an action schedules runs in the same turn, so that a chunk that came in goes out without asking the kernel
    // in between; but only so often, lest actions that schedule each other keep the loop from its sockets.
    for (int round = 0; round < kDeferredRoundsMax && turn_has_more(); ++round) {
      running.swap(scheduled);
      for (Deferred*& next : running) {
        if (next == nullptr) continue;  // destroyed by an action before it
        const auto action = next->action_;
        next->scheduled_ = false;
        next = nullptr;
        (*action)();
      }
      running.clear();
      std::vector<std::function<void()>> tasks;
      tasks.swap(posted_here);
      for (const auto& task : tasks) task();
    }
    if (!turn_has_more()) {
      uv_check_stop(&turn_end);
      uv_idle_stop(&do_not_wait);
    }
  }

  uv_loop_t loop{};
  uv_async_t wake{};
  uv_check_t turn_end{};
  uv_idle_t do_not_wait{};  // while it is active, the loop looks at its sockets without blocking
  std::array<uv_signal_t, 2> signals{};
  std::function<void(int)> on_signal;

  std::mutex mutex;
  std::vector<std::function<void()>> posted;

  std::size_t offloaded = 0;  // not done yet
  std::vector<Deferred*> scheduled;
  std::vector<Deferred*> running;
  std::vector<std::function<void()>> posted_here;  // by the loop's own thread
  std::atomic<std::thread::id> thread;             // the loop's, while it runs
};

EventLoop::EventLoop() : impl_(std::make_unique<Impl>()), uv_(&impl_->loop) {}

EventLoop::~EventLoop() {
  uv_close(as_handle(&impl_->wake), nullptr);
  uv_close(as_handle(&impl_->turn_end), nullptr);
  uv_close(as_handle(&impl_->do_not_wait), nullptr);
  for (uv_signal_t& signal : impl_->signals) uv_close(as_handle(&signal), nullptr);

  bool in_time = true;
  uv_timer_t limit;
  uv_timer_init(uv_, &limit);
  limit.data = &in_time;
  uv_unref(as_handle(&limit));
  const auto expire = [](uv_timer_t* timer) { *static_cast<bool*>(timer->data) = false; };
  uv_timer_start(&limit, expire, std::chrono::ceil<std::chrono::milliseconds>(kDrainTimeout).count(), 0);
  while ((in_time || impl_->offloaded > 0) && uv_run(uv_, UV_RUN_ONCE) != 0) {
  }
  uv_close(as_handle(&limit), nullptr);
  uv_run(uv_, UV_RUN_NOWAIT);

  if (uv_loop_close(uv_) == 0) return;
  std::string names;
  const auto collect = [](uv_handle_t* handle, void* out) {
    *static_cast<std::string*>(out) += fmt::format(" {}", uv_handle_type_name(handle->type));
  };
  uv_walk(uv_, collect, &names);
  die(fmt::format("the event loop is destroyed with open handles:{}", names).c_str(), __FILE__, __LINE__);
}

Instant EventLoop::now() const { return Instant{Duration{static_cast<std::int64_t>(uv_hrtime())}}; }

void EventLoop::run() {
  impl_->thread = std::this_thread::get_id();
  uv_run(uv_, UV_RUN_DEFAULT);
  impl_->thread = std::thread::id{};
}

void EventLoop::run_until(Instant deadline) {
  Timer wake_up(*this, [] {});
  wake_up.arm(deadline);
  impl_->thread = std::this_thread::get_id();
  uv_run(uv_, UV_RUN_ONCE);
  impl_->thread = std::thread::id{};
}

void EventLoop::stop() { uv_stop(uv_); }

void EventLoop::post(std::function<void()> task) {
  if (std::this_thread::get_id() == impl_->thread) {
    // Its thread is awake: waking it through the kernel would cost more than most tasks.
    impl_->posted_here.push_back(std::move(task));
    impl_->want_turn_end();
    return;
  }
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->posted.push_back(std::move(task));
  }
  WC_CHECK(uv_async_send(&impl_->wake) == 0);
}

void EventLoop::offload(std::function<void()> work, std::function<void()> done) {
  struct Request {
    uv_work_t uv{};
    std::size_t* running = nullptr;
    std::function<void()> work;
    std::function<void()> done;
  };
  auto request = std::make_unique<Request>();
  request->uv.data = request.get();
  request->running = &impl_->offloaded;
  request->work = std::move(work);
  request->done = std::move(done);
  const auto run_work = [](uv_work_t* uv) { static_cast<Request*>(uv->data)->work(); };
  const auto run_done = [](uv_work_t* uv, int) {
    const std::unique_ptr<Request> owned(static_cast<Request*>(uv->data));
    --*owned->running;
    owned->done();
  };
  WC_CHECK(uv_queue_work(uv_, &request->uv, run_work, run_done) == 0);
  ++impl_->offloaded;
  static_cast<void>(request.release());  // libuv's until run_done
}

void EventLoop::on_terminate(std::function<void(int signal)> handler) {
  impl_->on_signal = std::move(handler);
  const auto call = [](uv_signal_t* handle, int signal) { static_cast<Impl*>(handle->data)->on_signal(signal); };
  WC_CHECK(uv_signal_start(&impl_->signals[0], call, SIGINT) == 0);
  WC_CHECK(uv_signal_start(&impl_->signals[1], call, SIGTERM) == 0);
}

// --- FdWatch ---------------------------------------------------------------------------------------------------------

struct FdWatch::Impl {
  uv_poll_t poll{};
  int events = 0;
  std::function<void(Ready)> on_ready;
};

FdWatch::FdWatch(EventLoop& loop, int fd, std::function<void(Ready)> on_ready) : impl_(new Impl) {
  impl_->on_ready = std::move(on_ready);
  impl_->poll.data = impl_;
  WC_CHECK(uv_poll_init(loop.uv(), &impl_->poll, fd) == 0);
}

FdWatch::~FdWatch() {
  uv_close(as_handle(&impl_->poll), [](uv_handle_t* handle) { delete static_cast<Impl*>(handle->data); });
}

void FdWatch::watch(bool readable, bool writable) {
  const int events = (readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0);
  if (events == impl_->events) return;
  impl_->events = events;
  const auto on_ready = [](uv_poll_t* poll, int status, int ready) {
    auto* impl = static_cast<Impl*>(poll->data);
    if (status < 0) impl->events = 0;  // libuv has stopped watching
    impl->on_ready(
        {.readable = (ready & UV_READABLE) != 0, .writable = (ready & UV_WRITABLE) != 0, .failed = status < 0});
  };
  WC_CHECK((events == 0 ? uv_poll_stop(&impl_->poll) : uv_poll_start(&impl_->poll, events, on_ready)) == 0);
}

// --- Timer -----------------------------------------------------------------------------------------------------------

struct Timer::Impl {
  Impl(EventLoop& loop, std::function<void()> action)
      : fd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)), on_due(std::move(action)) {
    WC_CHECK(fd.valid());
    poll.data = this;
    WC_CHECK(uv_poll_init(loop.uv(), &poll, fd.get()) == 0);
    // Watched all its life, because a system call per arm() is enough; whether it is armed decides if the loop waits.
    const auto on_readable = [](uv_poll_t* handle, int, int) { static_cast<Impl*>(handle->data)->handle_expired(); };
    WC_CHECK(uv_poll_start(&poll, UV_READABLE, on_readable) == 0);
    uv_unref(as_handle(&poll));
  }

  void handle_expired() {
    std::uint64_t expirations = 0;
    if (::read(fd.get(), &expirations, sizeof expirations) != sizeof expirations) return;  // armed anew meanwhile
    set_armed(false);
    on_due();
  }

  void set_armed(bool value) {
    armed = value;
    if (armed) {
      uv_ref(as_handle(&poll));
    } else {
      uv_unref(as_handle(&poll));
    }
  }

  void set_time(Instant due) const {
    const std::int64_t ns = std::max<std::int64_t>(1, due.time_since_epoch().count());  // 0 would disarm
    itimerspec spec{};
    spec.it_value.tv_sec = ns / 1'000'000'000;
    spec.it_value.tv_nsec = ns % 1'000'000'000;
    WC_CHECK(::timerfd_settime(fd.get(), TFD_TIMER_ABSTIME, &spec, nullptr) == 0);
  }

  uv_poll_t poll{};
  UniqueFd fd;
  std::function<void()> on_due;
  bool armed = false;
};

Timer::Timer(EventLoop& loop, std::function<void()> on_due) : impl_(new Impl(loop, std::move(on_due))) {}

Timer::~Timer() {
  uv_close(as_handle(&impl_->poll), [](uv_handle_t* handle) { delete static_cast<Impl*>(handle->data); });
}

void Timer::arm(Instant due) {
  impl_->set_time(due);
  impl_->set_armed(true);
}

void Timer::disarm() {
  if (!impl_->armed) return;
  const itimerspec never{};
  WC_CHECK(::timerfd_settime(impl_->fd.get(), 0, &never, nullptr) == 0);
  impl_->set_armed(false);
}

bool Timer::armed() const { return impl_->armed; }

// --- Deferred --------------------------------------------------------------------------------------------------------

Deferred::Deferred(EventLoop& loop, std::function<void()> action)
    : loop_(loop), action_(std::make_shared<const std::function<void()>>(std::move(action))) {}

Deferred::~Deferred() {
  if (!scheduled_) return;
  Deferred* const gone = nullptr;
  std::ranges::replace(loop_.impl_->scheduled, this, gone);
  std::ranges::replace(loop_.impl_->running, this, gone);
}

void Deferred::schedule() {
  if (scheduled_) return;
  scheduled_ = true;
  EventLoop::Impl& loop = *loop_.impl_;
  loop.scheduled.push_back(this);
  if (loop.scheduled.size() == 1) loop.want_turn_end();
}

}  // namespace weightcast
