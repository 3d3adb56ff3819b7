#include "worker/backend/backend_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace weightcast {
namespace {

constexpr Duration kRetryMin = std::chrono::milliseconds(50);
constexpr Duration kRetryMax = std::chrono::seconds(5);
constexpr Duration kAskOften = std::chrono::milliseconds(20);  // while a newer version is published
constexpr Duration kAskSeldom = std::chrono::seconds(1);
// The server and this worker hear of a version from the daemon at different times.
constexpr Duration kEarlyTime = std::chrono::seconds(5);
constexpr std::size_t kPublishedMax = 64;

/// The server did not answer, or not in HTTP; any other error is its answer.
bool is_unreachable(Errc code) {
  return code == Errc::kIo || code == Errc::kClosed || code == Errc::kTimedOut || code == Errc::kNotFound ||
         code == Errc::kCancelled || code == Errc::kNotAllowed;
}

}  // namespace

Result<RequestId> BackendCore::add(EngineRequest request) {
  if (request.prompt.empty() || request.tokens_max == 0) {
    return fail(Errc::kInvalidArgument, Op::kSend, request.prompt.empty() ? "the prompt is empty" : "tokens_max is 0");
  }
  if (waiting_.size() >= options_.waiting_max) {
    return fail(Errc::kBusy, Op::kSend, fmt::format("{} requests wait", waiting_.size()));
  }
  const RequestId id{next_id_++};
  requests_[id].request = std::move(request);
  waiting_.push_back(id);
  return id;
}

const EngineRequest* BackendCore::request(RequestId id) const {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : &found->second.request;
}

Status BackendCore::abort(RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return fail(Errc::kNotFound, Op::kSend, "no such request");
  switch (found->second.where) {
    case Where::kWaiting: std::erase(waiting_, id); break;
    case Where::kSent: cancels_.push_back({.kind = BackendAction::Kind::kCancel, .request = id}); break;
    case Where::kEarly: --early_; break;
  }
  EngineEvent event;
  event.finished = FinishReason::kAborted;
  event.failure = "it was aborted";
  emit(found, std::move(event));
  return {};
}

void BackendCore::emit(Requests::iterator request, EngineEvent event) {
  event.id = request->first;
  event.tag = request->second.request.tag;
  events_.push_back(std::move(event));
  requests_.erase(request);
}

void BackendCore::accept(Requests::iterator request) {
  if (request->second.where == Where::kEarly) --early_;
  EngineEvent event;
  event.tokens = std::move(request->second.answer.tokens);
  event.finished = request->second.answer.finished;
  emit(request, std::move(event));
}

void BackendCore::fail_request(Requests::iterator request, std::string why) {
  EngineEvent event;
  event.finished = FinishReason::kFailed;
  event.failure = std::move(why);
  emit(request, std::move(event));
}

void BackendCore::wait_again(Requests::iterator request) {
  if (request->second.where == Where::kEarly) --early_;
  request->second.where = Where::kWaiting;
  request->second.is_cancelled = false;
  request->second.answer = {};
  // Before those that have not begun.
  waiting_.push_front(request->first);
}

void BackendCore::try_again(Requests::iterator request, const std::string& why) {
  if (++request->second.attempts < options_.attempts_max) return wait_again(request);
  fail_request(request, fmt::format("{} (tried {} times)", why, request->second.attempts));
}

void BackendCore::handle_answer(Instant now, RequestId id, Result<BackendAnswer> answer) {
  --sent_;
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;  // it was aborted
  if (found->second.is_cancelled) return wait_again(found);
  if (!answer.has_value()) {
    const Error& error = answer.error();
    if (error.code == Errc::kCancelled) return wait_again(found);
    if (!is_unreachable(error.code) && error.code != Errc::kBusy) return fail_request(found, error.message());
    // Calls that end together are one failure.
    if (!is_suspect_) note_trouble(now, error.message());
    // While nobody listens, requests are not to blame.
    return error.code == Errc::kIo ? wait_again(found) : try_again(found, error.message());
  }
  // Of a server that says no versions, and took another one meanwhile.
  if (std::ranges::any_of(answer->tokens, [](const EngineToken& token) { return token.version == kNoVersion; })) {
    ask_at_ = now;
    return wait_again(found);
  }
  found->second.answer = std::move(*answer);
  if (are_published(found->second.answer.tokens)) return accept(found);
  found->second.where = Where::kEarly;
  found->second.early_until = now + kEarlyTime;
  ++early_;
  ask_at_ = now;
}

void BackendCore::settle_early(Instant now) {
  if (early_ == 0) return;
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests_) {
    if (request.where == Where::kEarly) ids.push_back(id);
  }
  for (const RequestId id : ids) {
    const auto found = requests_.find(id);
    if (are_published(found->second.answer.tokens)) {
      accept(found);
    } else if (now >= found->second.early_until) {
      wait_again(found);
    }
  }
}

bool BackendCore::is_published(Version version) const {
  return std::ranges::find(published_, version) != published_.end();
}

bool BackendCore::are_published(const std::vector<EngineToken>& tokens) const {
  return std::ranges::all_of(tokens, [&](const EngineToken& token) { return is_published(token.version); });
}

void BackendCore::cancel_sent() {
  for (auto& [id, request] : requests_) {
    if (request.where != Where::kSent || request.is_cancelled) continue;
    request.is_cancelled = true;
    cancels_.push_back({.kind = BackendAction::Kind::kCancel, .request = id});
  }
}

Duration BackendCore::backoff() const {
  return std::min<Duration>(kRetryMax, kRetryMin * (1 << std::min<std::uint32_t>(failures_, 10)));
}

void BackendCore::say(const std::string& why) {
  if (std::exchange(said_, why) != why) lines_.push_back("the server that generates: " + why);
}

void BackendCore::note_trouble(Instant now, const std::string& why) {
  is_suspect_ = true;
  ask_at_ = now + backoff();
  ++failures_;
  say(why);
}

void BackendCore::note_well() {
  failures_ = 0;
  is_suspect_ = false;
  if (!said_.empty()) lines_.emplace_back("the server that generates is well again");
  said_.clear();
}

void BackendCore::handle_published(Instant now, VersionName name) {
  std::erase(published_, name.version);
  published_.push_back(name.version);
  if (published_.size() > kPublishedMax) published_.pop_front();
  newest_ = newest_ ? std::max(*newest_, name) : name;
  if (!is_suspect_) ask_at_ = now;
  settle_early(now);
}

void BackendCore::handle_asked(Instant now, Result<Version> outcome) {
  is_in_control_ = false;
  if (!outcome.has_value()) return note_trouble(now, outcome.error().message());
  server_ = *outcome == kNoVersion ? std::nullopt : std::optional(*outcome);
  is_suspect_ = false;
  failures_ = 0;
  if (version()) {
    unpublished_since_.reset();
    ask_at_ = now + (*server_ == newest_->version ? kAskSeldom : kAskOften);
    return note_well();
  }
  ask_at_ = now + kAskOften;
  if (!newest_ || options_.is_told) return;  // it is to get one
  if (!unpublished_since_) unpublished_since_ = now;
  if (now - *unpublished_since_ < kEarlyTime) return;
  say(server_ ? fmt::format("it has version {}, which this host's daemon does not; it has to follow that daemon",
                            server_->value)
              : std::string("it has no version of this host's daemon yet"));
}

void BackendCore::handle_installed(Instant now, VersionName name, const Status& outcome) {
  is_in_control_ = false;
  draining_until_.reset();
  if (outcome.has_value()) {
    server_ = name.version;
    return note_well();
  }
  // Nobody knows which weights it has, and it is told again.
  server_.reset();
  cancel_sent();
  install_at_ = now + backoff();
  note_trouble(now, fmt::format("version {}: {}", name.version.value, outcome.error().message()));
}

std::optional<BackendAction> BackendCore::next_control(Instant now) {
  if (is_in_control_) return std::nullopt;
  if (now >= ask_at_) {
    is_in_control_ = true;
    return BackendAction{.kind = BackendAction::Kind::kAsk, .is_anew = is_suspect_};
  }
  if (!options_.is_told || is_suspect_ || !newest_ || now < install_at_ || server_ == newest_->version) {
    return std::nullopt;
  }
  if (!draining_until_) draining_until_ = now + options_.drain_time_max;
  if (sent_ > 0) {
    if (now >= *draining_until_) cancel_sent();
    return std::nullopt;
  }
  is_in_control_ = true;
  return BackendAction{.kind = BackendAction::Kind::kInstall, .version = *newest_};
}

std::optional<BackendAction> BackendCore::poll_action(Instant now) {
  settle_early(now);
  if (const auto control = next_control(now)) return control;
  if (!cancels_.empty()) {
    const BackendAction cancel = cancels_.front();
    cancels_.pop_front();
    return cancel;
  }
  const bool may_send = !is_suspect_ && !draining_until_ && version();
  if (!may_send || waiting_.empty() || sent_ >= options_.running_max) return std::nullopt;
  const RequestId id = waiting_.front();
  waiting_.pop_front();
  requests_.at(id).where = Where::kSent;
  ++sent_;
  return BackendAction{.kind = BackendAction::Kind::kSend, .request = id, .version = {.version = *server_}};
}

std::vector<EngineEvent> BackendCore::take_events() { return std::exchange(events_, {}); }

std::optional<std::string> BackendCore::poll_line() {
  if (lines_.empty()) return std::nullopt;
  std::string line = std::move(lines_.front());
  lines_.pop_front();
  return line;
}

std::optional<Version> BackendCore::version() const {
  return server_ && is_published(*server_) ? server_ : std::nullopt;
}

}  // namespace weightcast
