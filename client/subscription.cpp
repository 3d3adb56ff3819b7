#include "client/subscription.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>

namespace weightcast::client {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBackoffMin(50);
constexpr milliseconds kBackoffMax(2000);
// A socket that has just been connected takes a request of some bytes at once.
constexpr milliseconds kReconnectTimeout(50);

void watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

/// Whether the daemon may come back.
bool is_temporary(Errc code) {
  return code == Errc::kNotFound || code == Errc::kTimedOut || code == Errc::kClosed || code == Errc::kCancelled;
}

}  // namespace

Subscription::Subscription(std::string state_dir)
    : state_dir_(std::move(state_dir)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)),
      marked_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      backoff_(kBackoffMin) {
  watch(fd(), timer_.get());
  watch(fd(), marked_.get());
}

Result<std::unique_ptr<Subscription>> Subscription::open(std::string state_dir, Deadline deadline) {
  std::unique_ptr<Subscription> subscription(new Subscription(std::move(state_dir)));
  if (std::min({subscription->fd(), subscription->timer_.get(), subscription->marked_.get(),
                subscription->cancellation_.fd()}) < 0) {
    return fail(Errc::kIo, Op::kConnect, "no descriptor is left in this process; raise 'ulimit -n'");
  }
  WC_TRY(subscription->connect(deadline));
  return subscription;
}

Status Subscription::connect(Deadline deadline) {
  WC_ASSIGN(std::unique_ptr<LocalChannel> channel, LocalChannel::open(state_dir_, deadline, cancellation_));
  WC_ASSIGN(request_, channel->send({.kind = local::SubscribeRequest{}}, deadline));
  channel_ = std::move(channel);
  watch(fd(), channel_->fd());
  // acquire() connects before it is time.
  const itimerspec never{};
  ::timerfd_settime(timer_.get(), 0, &never, nullptr);
  return {};
}

void Subscription::reconnect_later() {
  channel_.reset();
  abandoned_.clear();
  lost_.merge(acquired_);
  itimerspec due{};
  due.it_value.tv_sec = backoff_.count() / 1000;
  due.it_value.tv_nsec = backoff_.count() % 1000 * 1'000'000;
  ::timerfd_settime(timer_.get(), 0, &due, nullptr);
  backoff_ = std::min(2 * backoff_, kBackoffMax);
}

void Subscription::mark() {
  std::uint64_t count = 1;
  [[maybe_unused]] const ssize_t moved = !events_.empty() || (channel_ && channel_->has_message())
                                             ? ::write(marked_.get(), &count, sizeof count)
                                             : ::read(marked_.get(), &count, sizeof count);
}

Result<std::optional<Event>> Subscription::poll() {
  if (!channel_) {
    std::uint64_t expirations = 0;
    if (::read(timer_.get(), &expirations, sizeof expirations) < 0) return std::optional<Event>();  // not due
    const Status connected = connect(Clock::now() + kReconnectTimeout);
    if (!connected.has_value()) {
      reconnect_later();
      if (is_temporary(connected.error().code)) return std::optional<Event>();
      return connected.error();
    }
  }
  for (;;) {
    const Result<std::optional<local::Message>> message = channel_->poll();
    if (!message.has_value() ||
        (*message && (*message)->request_id == request_ && (*message)->get<local::ErrorReply>())) {
      reconnect_later();
      if (!message.has_value() && message.error().code == Errc::kClosed) return std::optional<Event>(Disconnected{});
      return message.has_value() ? error_of(*(*message)->get<local::ErrorReply>()) : message.error();
    }
    if (!*message) return std::optional<Event>();
    if (std::optional<Event> event = event_of(**message)) return event;
  }
}

std::optional<Event> Subscription::event_of(const local::Message& message) {
  const auto* installed = message.get<local::VersionInstalled>();
  if (abandoned_.erase(message.request_id) > 0 && installed != nullptr) {
    // What cannot be sent ends the connection, sooner or later, and the pin with it.
    static_cast<void>(
        channel_->send({.kind = local::ReleaseRequest{installed->version}}, Clock::now() + kReconnectTimeout));
  }
  if (message.request_id != request_) return std::nullopt;
  backoff_ = kBackoffMin;
  if (installed != nullptr) return *installed;
  if (const auto* preparing = message.get<local::VersionPreparing>()) return *preparing;
  return std::nullopt;
}

Result<local::Message> Subscription::answer_to(std::uint64_t request, Deadline deadline) {
  for (;;) {
    Result<local::Message> message = channel_->receive(deadline);
    if (!message.has_value() || message->request_id == request) {
      mark();
      return message;
    }
    if (std::optional<Event> event = event_of(*message)) events_.push_back(*std::move(event));
  }
}

Error Subscription::note_end(Error error) {
  if (error.code == Errc::kClosed) {
    reconnect_later();
    events_.push_back(Disconnected{});
    mark();
  }
  return error;
}

Result<local::VersionInstalled> Subscription::acquire(std::uint64_t version, Deadline deadline) {
  const bool was_connected = channel_ != nullptr;
  Result<local::VersionInstalled> pinned = acquire_once(version, deadline);
  // The daemon ended since the last call. Another one may run by now.
  if (was_connected && !channel_) return acquire_once(version, deadline);
  return pinned;
}

Result<local::VersionInstalled> Subscription::acquire_once(std::uint64_t version, Deadline deadline) {
  if (!channel_) WC_TRY(connect(deadline));
  const Result<std::uint64_t> request = channel_->send({.kind = local::AcquireRequest{version}}, deadline);
  if (!request.has_value()) return note_end(request.error());
  Result<local::Message> answer = answer_to(*request, deadline);
  if (!answer.has_value()) {
    abandoned_.insert(*request);
    return note_end(answer.error());
  }
  if (const auto* error = answer->get<local::ErrorReply>()) return error_of(*error);
  auto* pinned = std::get_if<local::VersionInstalled>(&answer->kind);
  if (pinned == nullptr) return unknown_answer();
  acquired_.insert(pinned->version);
  return std::move(*pinned);
}

Result<std::unique_ptr<ChangeList>> Subscription::changes(std::uint64_t base, std::string base_digest,
                                                          std::uint64_t version, bool old_values, Deadline deadline) {
  if (!channel_ || acquired_.count(version) == 0) {
    return fail(Errc::kNotFound, Op::kReceive, fmt::format("version {}: it was not acquired here", version));
  }
  WC_ASSIGN(std::unique_ptr<ChangeList> list, ChangeList::create());
  const int descriptor = list->fd();
  WC_ASSIGN(const std::uint64_t request,
            channel_->send({.kind = local::ChangesRequest{base, version, std::move(base_digest), old_values}}, deadline,
                           std::span(&descriptor, 1)));
  WC_ASSIGN(const local::Message answer, answer_to(request, deadline));
  if (const auto* error = answer.get<local::ErrorReply>()) return error_of(*error);
  const auto* told = answer.get<local::ChangesReply>();
  if (told == nullptr) return unknown_answer();
  WC_TRY(list->read(told->bytes));
  if (old_values && !std::ranges::all_of(list->changes(), &wc_change::old_values)) {
    return fail(Errc::kUnsupported, Op::kReceive, "the daemon tells no old values; it is of an older release");
  }
  return list;
}

Status Subscription::release(std::uint64_t version, Deadline deadline) {
  if (const auto lost = lost_.find(version); lost != lost_.end()) {
    lost_.erase(lost);
    return {};
  }
  const auto pinned = acquired_.find(version);
  if (pinned == acquired_.end()) {
    return fail(Errc::kNotFound, Op::kInstall, "version " + std::to_string(version) + ": it was not acquired here");
  }
  const Result<std::uint64_t> sent = channel_->send({.kind = local::ReleaseRequest{version}}, deadline);
  // A connection that has ended has released it.
  if (!sent.has_value() && sent.error().code != Errc::kClosed) return sent.error();
  acquired_.erase(pinned);
  return {};
}

Result<Event> Subscription::next(Deadline deadline) {
  for (;;) {
    if (!events_.empty()) {
      Event event = std::move(events_.front());
      events_.pop_front();
      mark();
      return event;
    }
    const Result<std::optional<Event>> event = poll();
    mark();
    if (!event.has_value()) return event.error();
    if (*event) return **event;
    const Status waited = wait_for(fd(), POLLIN, deadline, cancellation_, Op::kReceive);
    if (waited.has_value()) continue;
    if (waited.error().code != Errc::kTimedOut) return waited.error();
    return fail(Errc::kTimedOut, Op::kReceive, "no event came in time");
  }
}

}  // namespace weightcast::client
