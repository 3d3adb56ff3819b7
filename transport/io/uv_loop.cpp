#include "transport/io/uv_loop.h"

#include <fmt/format.h>
#include <sys/timerfd.h>
#include <uv.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/files/unique_fd.h"
#include "base/result.h"

namespace weightcast {
namespace {

// Longer than a connection may flush after its close().
constexpr Duration kDrainTimeout = std::chrono::milliseconds(1500);

template <typename Handle>
uv_handle_t* as_handle(Handle* handle) {
  return reinterpret_cast<uv_handle_t*>(handle);
}

}  // namespace

struct UvLoop::Impl {
  explicit Impl(UvLoop& owner) : self(owner), timer_fd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
    WC_CHECK(timer_fd.valid());
    WC_CHECK(uv_loop_init(&loop) == 0);
    WC_CHECK(uv_async_init(&loop, &wake, [](uv_async_t* h) { static_cast<Impl*>(h->data)->run_posted(); }) == 0);
    WC_CHECK(uv_check_init(&loop, &turn_end) == 0);
    WC_CHECK(uv_idle_init(&loop, &do_not_wait) == 0);
    WC_CHECK(uv_poll_init(&loop, &timer_poll, timer_fd.get()) == 0);
    wake.data = turn_end.data = timer_poll.data = this;
    uv_unref(as_handle(&wake));
    for (uv_signal_t& signal : signals) {
      WC_CHECK(uv_signal_init(&loop, &signal) == 0);
      signal.data = this;
      uv_unref(as_handle(&signal));
    }
    // Watched all the time; whether a timer is armed decides if the loop waits for it.
    const auto on_due = [](uv_poll_t* handle, int, int) { static_cast<Impl*>(handle->data)->handle_timer_fd(); };
    WC_CHECK(uv_poll_start(&timer_poll, UV_READABLE, on_due) == 0);
    uv_unref(as_handle(&timer_poll));
  }

  void run_posted() {
    std::vector<std::function<void()>> tasks;
    {
      const std::lock_guard lock(mutex);
      tasks.swap(posted);
    }
    for (const auto& task : tasks) task();
  }

  void handle_timer_fd() {
    std::uint64_t expirations = 0;
    if (::read(timer_fd.get(), &expirations, sizeof expirations) != sizeof expirations) return;  // set anew meanwhile
    timer_fd_due.reset();
    self.run_due_timers();
    follow_next_due();
  }

  // The descriptor is set when the earliest deadline comes before what it is set to. Where it comes later, the
  // descriptor fires early, once, and is set then: deadlines that move back with every chunk cost nothing.
  void follow_next_due() {
    const std::optional<Instant> due = self.next_due();
    due ? uv_ref(as_handle(&timer_poll)) : uv_unref(as_handle(&timer_poll));
    if (!due || (timer_fd_due && *timer_fd_due <= *due)) return;
    timer_fd_due = due;
    const std::int64_t ns = std::max<std::int64_t>(1, due->time_since_epoch().count());  // 0 would disarm
    itimerspec spec{};
    spec.it_value.tv_sec = ns / 1'000'000'000;
    spec.it_value.tv_nsec = ns % 1'000'000'000;
    WC_CHECK(::timerfd_settime(timer_fd.get(), TFD_TIMER_ABSTIME, &spec, nullptr) == 0);
  }

  void handle_turn_end() {
    if (self.run_deferred()) return;
    uv_check_stop(&turn_end);
    uv_idle_stop(&do_not_wait);
  }

  UvLoop& self;
  uv_loop_t loop{};
  uv_async_t wake{};
  uv_check_t turn_end{};
  uv_idle_t do_not_wait{};  // while it is active, the loop looks at its sockets without blocking
  std::array<uv_signal_t, 3> signals{};
  std::function<void(int)> on_signal;
  std::function<void()> on_hangup;

  UniqueFd timer_fd;
  uv_poll_t timer_poll{};
  std::optional<Instant> timer_fd_due;  // what it is set to

  std::mutex mutex;
  std::vector<std::function<void()>> posted;

  std::size_t offloaded = 0;  // not done yet
  int posts_expected = 0;
  std::atomic<std::thread::id> thread;  // the loop's, while it runs
};

UvLoop::UvLoop(unsigned threads) : threads_(threads), impl_(std::make_unique<Impl>(*this)), uv_(&impl_->loop) {
  // libuv reads it when the first job comes. Its default is 4; who runs the process may have set another.
  if (threads > 2) WC_CHECK(::setenv("UV_THREADPOOL_SIZE", std::to_string(threads + 2).c_str(), 0) == 0);
}

UvLoop::~UvLoop() {
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
  uv_close(as_handle(&impl_->wake), nullptr);
  uv_close(as_handle(&impl_->turn_end), nullptr);
  uv_close(as_handle(&impl_->do_not_wait), nullptr);
  uv_close(as_handle(&impl_->timer_poll), nullptr);
  for (uv_signal_t& signal : impl_->signals) uv_close(as_handle(&signal), nullptr);
  uv_run(uv_, UV_RUN_NOWAIT);

  const bool closed = uv_loop_close(uv_) == 0;
  if (closed && dependants() == 0) return;
  std::string names = dependants() == 0 ? "" : fmt::format(" {} timers or deferred actions", dependants());
  const auto collect = [](uv_handle_t* handle, void* out) {
    *static_cast<std::string*>(out) += fmt::format(" {}", uv_handle_type_name(handle->type));
  };
  if (!closed) uv_walk(uv_, collect, &names);
  die(fmt::format("the event loop is destroyed with open handles:{}", names).c_str(), __FILE__, __LINE__);
}

Instant UvLoop::now() const { return Instant{Duration{static_cast<std::int64_t>(uv_hrtime())}}; }

UnixMillis UvLoop::unix_ms() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Duration UvLoop::processor_time() const {
  timespec used{};
  (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

void UvLoop::run() {
  impl_->thread = std::this_thread::get_id();
  uv_run(uv_, UV_RUN_DEFAULT);
  impl_->thread = std::thread::id{};
}

void UvLoop::run_until(Instant deadline) {
  Timer wake_up(*this, [] {});
  wake_up.arm(deadline);
  impl_->thread = std::this_thread::get_id();
  uv_run(uv_, UV_RUN_ONCE);
  impl_->thread = std::thread::id{};
}

void UvLoop::stop() { uv_stop(uv_); }

void UvLoop::handle_due_changed() { impl_->follow_next_due(); }

void UvLoop::handle_deferred() {
  uv_check_start(&impl_->turn_end, [](uv_check_t* handle) { static_cast<Impl*>(handle->data)->handle_turn_end(); });
  uv_idle_start(&impl_->do_not_wait, [](uv_idle_t*) {});
}

void UvLoop::post(std::function<void()> task) {
  // Its own thread is awake: waking it through the kernel would cost more than most tasks.
  if (std::this_thread::get_id() == impl_->thread) return defer(std::move(task));
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->posted.push_back(std::move(task));
  }
  WC_CHECK(uv_async_send(&impl_->wake) == 0);
}

namespace {

/// A job on libuv's pool; libuv's until its callback has run.
class UvJob final : public EventLoop::Job {
 public:
  UvJob(std::function<void()> work, std::function<void()> done) : work_(std::move(work)), done_(std::move(done)) {}

  static void start(uv_loop_t* loop, std::size_t* running, const std::shared_ptr<UvJob>& job) {
    job->uv_.data = job.get();
    job->running_ = running;
    job->self_ = job;
    const auto run = [](uv_work_t* uv) { static_cast<UvJob*>(uv->data)->run(); };
    const auto finish = [](uv_work_t* uv, int) { static_cast<UvJob*>(uv->data)->finish(); };
    WC_CHECK(uv_queue_work(loop, &job->uv_, run, finish) == 0);
    ++*running;
  }

  void wait() override {
    std::unique_lock lock(mutex_);
    ended_changed_.wait(lock, [this] { return ended_; });
  }

 private:
  void run() {
    work_();
    work_ = nullptr;  // what it holds goes on this thread, before anybody who waits goes on
    const std::lock_guard lock(mutex_);
    ended_ = true;
    ended_changed_.notify_all();
  }

  void finish() {
    const std::shared_ptr<UvJob> self = std::move(self_);
    --*running_;
    done_();
  }

  uv_work_t uv_{};
  std::size_t* running_ = nullptr;
  std::function<void()> work_;
  std::function<void()> done_;
  std::shared_ptr<UvJob> self_;
  std::mutex mutex_;
  std::condition_variable ended_changed_;
  bool ended_ = false;
};

}  // namespace

std::shared_ptr<EventLoop::Job> UvLoop::offload(std::function<void()> work, std::function<void()> done) {
  auto job = std::make_shared<UvJob>(std::move(work), std::move(done));
  UvJob::start(uv_, &impl_->offloaded, job);
  return job;
}

void UvLoop::expect_posts(int change) {
  impl_->posts_expected += change;
  impl_->posts_expected > 0 ? uv_ref(as_handle(&impl_->wake)) : uv_unref(as_handle(&impl_->wake));
}

std::size_t UvLoop::jobs_under_way() const { return impl_->offloaded; }

void UvLoop::on_terminate(std::function<void(int signal)> handler) {
  impl_->on_signal = std::move(handler);
  const auto call = [](uv_signal_t* handle, int signal) { static_cast<Impl*>(handle->data)->on_signal(signal); };
  WC_CHECK(uv_signal_start(&impl_->signals[0], call, SIGINT) == 0);
  WC_CHECK(uv_signal_start(&impl_->signals[1], call, SIGTERM) == 0);
}

void UvLoop::on_hangup(std::function<void()> handler) {
  impl_->on_hangup = std::move(handler);
  const auto call = [](uv_signal_t* handle, int) { static_cast<Impl*>(handle->data)->on_hangup(); };
  WC_CHECK(uv_signal_start(&impl_->signals[2], call, SIGHUP) == 0);
}

// --- FdWatch ---------------------------------------------------------------------------------------------------------

struct FdWatch::Impl {
  uv_poll_t poll{};
  int events = 0;
  std::function<void(Ready)> on_ready;
  std::optional<Deferred> refused;  // the kernel does not watch it: tells that
};

FdWatch::FdWatch(UvLoop& loop, int fd, std::function<void(Ready)> on_ready) : impl_(new Impl) {
  impl_->on_ready = std::move(on_ready);
  impl_->poll.data = impl_;
  // No memory, too many watches, or a descriptor of a kind that cannot be watched.
  if (uv_poll_init(loop.uv(), &impl_->poll, fd) != 0) {
    impl_->refused.emplace(loop, [impl = impl_, tell = impl_->on_ready] {
      impl->events = 0;
      tell({.failed = true});
    });
  }
}

FdWatch::~FdWatch() {
  if (impl_->refused) {
    delete impl_;
    return;
  }
  uv_close(as_handle(&impl_->poll), [](uv_handle_t* handle) { delete static_cast<Impl*>(handle->data); });
}

void FdWatch::watch(bool readable, bool writable) {
  const int events = (readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0);
  if (events == impl_->events) return;
  impl_->events = events;
  if (impl_->refused) {
    if (events != 0) impl_->refused->schedule();
    return;
  }
  const auto on_ready = [](uv_poll_t* poll, int status, int ready) {
    auto* impl = static_cast<Impl*>(poll->data);
    if (status < 0) impl->events = 0;  // libuv has stopped watching
    impl->on_ready(
        {.readable = (ready & UV_READABLE) != 0, .writable = (ready & UV_WRITABLE) != 0, .failed = status < 0});
  };
  WC_CHECK((events == 0 ? uv_poll_stop(&impl_->poll) : uv_poll_start(&impl_->poll, events, on_ready)) == 0);
}

}  // namespace weightcast
