#include "tools/observe/daemon_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.h"
#include "base/text.h"
#include "client/status_json.h"
#include "tools/observe/daemon_metrics.h"
#include "tools/observe/metrics_text.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

constexpr auto kStateAgeMax = 200ms;
constexpr auto kEventsEvery = 250ms;
constexpr auto kEventsEveryMax = 5s;
// The node's loop takes about as long to say a state as this thread to hear it.
constexpr int kCostShare = 200;
// By which whoever follows knows that this process runs and whether the daemon answers. A client that has gone is
// noticed by it, too, and nobody on the way takes the stream for a dead one.
constexpr auto kHeartbeatEvery = 2s;
constexpr std::int64_t kAskTimeout_ms = 5000;
constexpr std::string_view kPublications = "/publications/";

std::int64_t now_unix_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::chrono::nanoseconds thread_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

HttpResponse unavailable(const Error& why) {
  HttpResponse response = http_error(503, "the daemon does not answer: " + why.message());
  response.headers.push_back({"Retry-After", "1"});
  return response;
}

std::string event(std::string_view name, const std::string& json) {
  return fmt::format("event: {}\ndata: {}\n\n", name, json);
}

}  // namespace

DaemonView::DaemonView(std::string state_dir, std::string release, const OtlpExporter* exporter)
    : state_dir_(std::move(state_dir)),
      release_(std::move(release)),
      exporter_(exporter),
      meters_(now_unix_ms()),
      thread_([this] { run(); }) {}

DaemonView::~DaemonView() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    if (client_) client_->cancellation().request();
  }
  changed_.notify_all();
  thread_.join();
}

void DaemonView::handle(HttpRequest request, HttpResponder responder) {
  {
    const std::scoped_lock lock(mutex_);
    if (!stopping_ && asked_.size() < kRequestsWaitingMax) {
      asked_.push_back({std::move(request), std::move(responder)});
      changed_.notify_one();
      return;
    }
  }
  responder.send(http_error(503, "too many requests wait; try again later"));
}

void DaemonView::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto is_due = [this] { return stopping_ || !asked_.empty(); };
    if (followers_.empty()) {
      changed_.wait(lock, is_due);
    } else {
      changed_.wait_until(lock, tell_at_, is_due);
    }
    if (stopping_) return;
    std::deque<Asked> asked = std::exchange(asked_, {});
    lock.unlock();
    for (Asked& one : asked) answer(std::move(one));
    if (!followers_.empty() && Clock::now() >= tell_at_) tell_followers();
    lock.lock();
  }
}

void DaemonView::answer(Asked asked) {
  if (asked.responder.gone()) return;
  if (asked.request.path == "/events" && asked.request.method == "GET") return follow(std::move(asked.responder));
  asked.responder.send(answer_to(asked.request.path));
}

HttpResponse DaemonView::answer_to(const std::string& path) {
  if (path == "/healthz") return health();
  if (path == "/metrics") return metrics();
  if (path == "/status") {
    const auto now = state();
    if (!now.has_value()) return unavailable(now.error());
    return {.body = whole_text()};
  }
  if (path.starts_with(kPublications)) return publication(std::string_view(path).substr(kPublications.size()));
  return http_error(
      404,
      "there is nothing at this path; there are /, /status, /events, /publications/N, /metrics, /healthz, "
      "/plan and /learner");
}

Result<local::ReadyReply> DaemonView::readiness() {
  WC_ASSIGN(client::Client * client, daemon());
  return client->readiness(client::deadline_after(kAskTimeout_ms));
}

HttpResponse DaemonView::metrics() {
  const auto now = state();
  if (!now.has_value()) return unavailable(now.error());
  const auto ready = readiness();
  if (!ready.has_value()) return unavailable(ready.error());
  const auto exported = exporter_ != nullptr ? std::optional(exporter_->counts()) : std::nullopt;
  return {.content_type = std::string(MetricsText::kContentType),
          .body = daemon_metrics(**now, *ready, release_, exported, meters_)};
}

HttpResponse DaemonView::health() {
  const auto ready = readiness();
  if (!ready.has_value()) return unavailable(ready.error());
  return {.status = ready->ready ? 200u : 503u,
          .body = json_text({{"ready", ready->ready}, {"why", ready->why}, {"version", ready->version}})};
}

HttpResponse DaemonView::publication(std::string_view number) {
  const auto version = parse_number<std::uint64_t>(number);
  if (!version || *version == 0) return http_error(404, "/publications/N: N is a version's number");
  const auto client = daemon();
  if (!client.has_value()) return unavailable(client.error());
  const auto history = (*client)->history(*version, client::deadline_after(kAskTimeout_ms));
  if (history.has_value()) return {.body = to_json(*history)};
  const Errc code = history.error().code;
  if (code == Errc::kNotFound || code == Errc::kNotAllowed) return http_error(404, history.error().detail);
  return unavailable(history.error());
}

void DaemonView::follow(HttpResponder responder) {
  if (followers_.size() >= kFollowersMax) {
    return responder.send(http_error(503, fmt::format("{} clients follow already", followers_.size())));
  }
  // All that follow know the same, so what is about to be told is told to the others first.
  if (!followers_.empty()) tell_followers();
  if (followers_.empty()) {
    const auto now = state();
    if (!now.has_value()) return responder.send(unavailable(now.error()));
    told_ = **now;
    answered_at_ = beat_at_ = Clock::now();
    tell_at_ = beat_at_ + kEventsEvery;
  }
  HttpStream stream =
      responder.stream({.content_type = "text/event-stream", .headers = {{"Cache-Control", "no-store"}}});
  if (stream.write("retry: 2000\n\n" + event("state", json_text(whole_json(*told_))))) {
    followers_.push_back(std::move(stream));
  }
}

void DaemonView::tell_followers() {
  const std::chrono::nanoseconds before = thread_time();
  std::string text;
  // A daemon that does not answer is asked again; who follows keeps what was told last, and hears that it is old.
  const auto now = state();
  if (now.has_value()) {
    answered_at_ = Clock::now();
    if (const auto change = change_json(*told_, **now)) {
      told_ = **now;
      text = event("change", json_text(*change));
    }
  }
  if (Clock::now() - beat_at_ >= kHeartbeatEvery) {
    beat_at_ = Clock::now();
    text += event("heartbeat", json_text({{"unix_ms", now_unix_ms()},
                                          {"silent_s", std::chrono::duration<double>(beat_at_ - answered_at_).count()},
                                          {"why", now.has_value() ? "" : now.error().message()}}));
  }
  if (!text.empty()) std::erase_if(followers_, [&](HttpStream& follower) { return !follower.write(text); });
  const auto every =
      std::clamp<std::chrono::nanoseconds>(kCostShare * (thread_time() - before), kEventsEvery, kEventsEveryMax);
  tell_at_ = Clock::now() + every;
}

Result<client::Client*> DaemonView::daemon() {
  if (!client_) {
    WC_ASSIGN(auto opened, client::Client::open(state_dir_, client::deadline_after(kAskTimeout_ms)));
    // All of its calls are one to whoever ends this object.
    static_cast<void>(opened->cancellation().begin());
    const std::scoped_lock lock(mutex_);
    client_ = std::move(opened);
  }
  return client_.get();
}

Result<FleetState> DaemonView::ask() {
  WC_ASSIGN(client::Client * client, daemon());
  const auto deadline = client::deadline_after(kAskTimeout_ms);
  FleetState now;
  now.unix_ms = now_unix_ms();
  WC_ASSIGN(now.status, client->status(deadline));
  WC_ASSIGN(now.versions, client->versions(deadline));
  auto history = client->history(0, deadline);
  if (history.has_value()) {
    now.history = *std::move(history);
  } else if (history.error().code != Errc::kNotAllowed) {  // a worker has none
    return history.error();
  }
  return now;
}

Result<const FleetState*> DaemonView::state() {
  if (!state_ || Clock::now() - state_at_ >= kStateAgeMax) {
    WC_ASSIGN(state_, ask());
    meters_.handle(state_->history.publications);
    state_at_ = Clock::now();
    whole_text_.reset();
  }
  return &*state_;
}

const std::string& DaemonView::whole_text() {
  if (!whole_text_) whole_text_ = json_text(whole_json(*state_));
  return *whole_text_;
}

}  // namespace weightcast
