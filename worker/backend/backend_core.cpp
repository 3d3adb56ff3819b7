#include "worker/backend/backend_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace weightcast {
namespace {

constexpr Duration kRetryMin = std::chrono::milliseconds(50);
constexpr Duration kRetryMax = std::chrono::seconds(5);
constexpr std::size_t kRecentMax = 16;

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
    case Where::kUnconfirmed: --unconfirmed_; break;
    case Where::kEarly: break;
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

void BackendCore::accept(Requests::iterator request, BackendAnswer answer) {
  EngineEvent event;
  event.tokens = std::move(answer.tokens);
  event.finished = answer.finished;
  emit(request, std::move(event));
}

void BackendCore::fail_request(Requests::iterator request, std::string why) {
  EngineEvent event;
  event.finished = FinishReason::kFailed;
  event.failure = std::move(why);
  emit(request, std::move(event));
}

void BackendCore::wait_again(Requests::iterator request) {
  if (request->second.where == Where::kUnconfirmed) --unconfirmed_;
  request->second.where = Where::kWaiting;
  request->second.is_cancelled = false;
  request->second.answer = {};
  // Before those that have not begun.
  waiting_.push_front(request->first);
}

void BackendCore::try_again(Requests::iterator request, const std::string& why) {
  if (++request->second.attempts < options_.attempts_max) return wait_again(request);
  if (request->second.where == Where::kUnconfirmed) --unconfirmed_;
  fail_request(request, fmt::format("{} (tried {} times)", why, request->second.attempts));
}

VersionName BackendCore::take_call(RequestId id) {
  const auto found = std::ranges::find_if(loaded_, [&](const auto& one) { return one.second.contains(id); });
  WC_CHECK(found != loaded_.end());
  found->second.erase(id);
  return found->first;
}

void BackendCore::handle_answer(Instant now, RequestId id, Result<BackendAnswer> answer) {
  --sent_;
  const VersionName adapter = options_.adapters_max > 0 ? take_call(id) : VersionName();
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
  if (options_.adapters_max > 0) {
    for (EngineToken& token : answer->tokens) token.version = adapter.version;
    note_well();
    return accept(found, std::move(*answer));
  }
  if (phase_ == Phase::kUnknown) return try_again(found, "the server's weights are not known");
  if (options_.says_versions) {
    if (!are_known(answer->tokens)) {
      try_again(found, "the answer is of a version that was not installed");
      return lose_weights(now, "it answers under a version that was not installed");
    }
    if (!options_.installs_itself && installing_ &&
        std::ranges::any_of(answer->tokens, [&](const EngineToken& token) { return token.version == *installing_; })) {
      found->second.answer = std::move(*answer);
      found->second.where = Where::kEarly;
      return;
    }
    note_well();
    return accept(found, std::move(*answer));
  }
  for (EngineToken& token : answer->tokens) token.version = last_->version;
  found->second.answer = std::move(*answer);
  found->second.where = Where::kUnconfirmed;
  found->second.arrival = arrivals_++;
  ++unconfirmed_;
}

bool BackendCore::are_known(const std::vector<EngineToken>& tokens) const {
  return std::ranges::all_of(tokens, [&](const EngineToken& token) {
    // A server that follows by itself may be ahead of what we have asked it.
    if (options_.installs_itself) return token.version >= *recent_.begin();
    return recent_.contains(token.version);
  });
}

void BackendCore::cancel_call(RequestId id, Request& request) {
  if (request.where != Where::kSent || request.is_cancelled) return;
  request.is_cancelled = true;
  cancels_.push_back({.kind = BackendAction::Kind::kCancel, .request = id});
}

void BackendCore::cancel_sent() {
  for (auto& [id, request] : requests_) cancel_call(id, request);
}

void BackendCore::cancel_calls_of(VersionName name) {
  for (const RequestId id : loaded_.at(name)) {
    if (const auto found = requests_.find(id); found != requests_.end()) cancel_call(id, found->second);
  }
}

Duration BackendCore::backoff() const {
  return std::min<Duration>(kRetryMax, kRetryMin * (1 << std::min<std::uint32_t>(failures_, 10)));
}

void BackendCore::note_trouble(Instant now, const std::string& why) {
  is_suspect_ = true;
  retry_at_ = now + backoff();
  ++failures_;
  if (why == said_) return;
  said_ = why;
  lines_.push_back("the server that generates: " + why);
}

void BackendCore::note_well() {
  failures_ = 0;
  if (!said_.empty()) lines_.emplace_back("the server that generates is well again");
  said_.clear();
}

void BackendCore::lose_weights(Instant now, const std::string& why) {
  phase_ = Phase::kUnknown;
  recent_.clear();
  cancel_sent();
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests_) {
    if (request.where == Where::kUnconfirmed) ids.push_back(id);
  }
  for (const RequestId id : ids) try_again(requests_.find(id), why);
  note_trouble(now, why);
  retry_at_ = now;
}

void BackendCore::settle_early(bool is_installed) {
  installing_.reset();
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests_) {
    if (request.where == Where::kEarly) ids.push_back(id);
  }
  for (const RequestId id : ids) {
    const auto found = requests_.find(id);
    if (is_installed) {
      accept(found, std::move(found->second.answer));
    } else {
      wait_again(found);
    }
  }
}

void BackendCore::handle_installed(Instant now, VersionName name, Result<Version> outcome) {
  is_in_control_ = false;
  settle_early(outcome.has_value());
  if (outcome.has_value()) {
    policy_.handle_settled(name);
    last_ = {name.run, *outcome};
    recent_.insert(*outcome);
    while (recent_.size() > kRecentMax) recent_.erase(recent_.begin());
    phase_ = Phase::kServing;
    is_suspect_ = false;
    is_spoilt_ = false;
    retry_at_ = {};
    if (options_.adapters_max > 0 && options_.on_switch == BackendSwitch::kRestart) {
      for (const auto& [other, calls] : loaded_) {
        if (other != name) cancel_calls_of(other);
      }
    }
    return note_well();
  }
  if (options_.installs_itself && last_ && outcome.error().code == Errc::kTimedOut) {
    // It goes on under what it has, and is asked again.
    phase_ = Phase::kServing;
    retry_at_ = now + kRetryMin;
    return;
  }
  const bool is_beside = options_.adapters_max > 0;  // so it has changed nothing
  if (is_beside) {
    phase_ = was_known_ ? Phase::kServing : Phase::kUnknown;
  } else {
    phase_ = Phase::kUnknown;
    recent_.erase(name.version);
    cancel_sent();
  }
  const bool is_refused = !is_unreachable(outcome.error().code);
  std::string why = fmt::format("version {}: {}", name.version.value, outcome.error().message());
  if (is_refused && last_ && name != *last_) {
    policy_.handle_settled(name);
    const std::uint64_t before = last_->version.value;
    why += is_beside ? fmt::format("; version {} stays in use", before)
                     : fmt::format("; it is to use version {} again", before);
  } else if (is_refused && !last_) {
    // A server that breaks (5xx) may do better the next time.
    if (outcome.error().code != Errc::kBusy) policy_.handle_settled(name);
    is_spoilt_ = !is_beside;
    if (is_spoilt_) why += "; it is to use again what it was started with";
  }
  note_trouble(now, why);
}

void BackendCore::handle_unloaded(Instant now, VersionName name, Status outcome) {
  is_in_control_ = false;
  const bool may_pass =
      !outcome.has_value() && (is_unreachable(outcome.error().code) || outcome.error().code == Errc::kBusy);
  if (may_pass) return note_trouble(now, outcome.error().message());
  loaded_.erase(name);
  if (!outcome.has_value()) note_trouble(now, outcome.error().message());
}

void BackendCore::handle_unready(Instant now, VersionName name, const Error& why) {
  is_in_control_ = false;
  settle_early(false);
  phase_ = Phase::kUnknown;
  recent_.erase(name.version);
  if (is_first_install_) loaded_.erase(name);
  cancel_sent();
  note_trouble(now, why.message());
}

void BackendCore::handle_restored(Instant now, Status outcome) {
  is_in_control_ = false;
  if (!outcome.has_value()) return note_trouble(now, outcome.error().message());
  is_spoilt_ = false;
  retry_at_ = now + backoff();
}

void BackendCore::handle_skipped(Instant now, VersionName name, const Error& why) {
  is_in_control_ = false;
  settle_early(false);
  phase_ = was_known_ ? Phase::kServing : Phase::kUnknown;
  if (!last_ || name.version != last_->version) recent_.erase(name.version);
  if (is_first_install_) loaded_.erase(name);
  policy_.handle_settled(name);
  const std::string line = fmt::format("version {} is not used: {}", name.version.value, why.message());
  if (std::exchange(said_, line) != line) lines_.push_back(line);
  if (!was_known_) retry_at_ = now + kRetryMax;
}

void BackendCore::handle_checked(Instant now, Result<Version> outcome) {
  is_in_control_ = false;
  if (phase_ == Phase::kUnknown) return;
  if (!outcome.has_value()) return note_trouble(now, outcome.error().message());
  const bool fits = options_.installs_itself ? *outcome >= last_->version : *outcome == last_->version;
  if (!fits) {
    return lose_weights(now, outcome->value == 0 ? fmt::format("it has forgotten version {}", last_->version.value)
                                                 : fmt::format("it has version {}, and {} was installed",
                                                               outcome->value, last_->version.value));
  }
  is_suspect_ = false;
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests_) {
    if (request.where == Where::kUnconfirmed && request.arrival < checked_to_) ids.push_back(id);
  }
  if (!ids.empty()) note_well();
  for (const RequestId id : ids) {
    const auto found = requests_.find(id);
    --unconfirmed_;
    accept(found, std::move(found->second.answer));
  }
}

std::optional<VersionName> BackendCore::to_install() const {
  if (const auto next = policy_.next()) return next;
  if (phase_ == Phase::kUnknown) return last_;
  return std::nullopt;
}

std::optional<BackendAction> BackendCore::next_control(Instant now) {
  if (is_in_control_ || now < retry_at_) return std::nullopt;
  if (is_spoilt_) {
    is_in_control_ = true;
    return BackendAction{.kind = BackendAction::Kind::kRestore};
  }
  if (options_.adapters_max > 0) return next_adapter_control(now);
  const std::optional<VersionName> wanted = to_install();
  const bool needs_quiet = !options_.installs_itself && !goes_on(options_.on_switch);
  if (phase_ == Phase::kServing && wanted) {
    phase_ = Phase::kDraining;
    drain_until_ = now + options_.drain_time_max;
    if (needs_quiet && options_.on_switch == BackendSwitch::kRestart) cancel_sent();
  }
  if (phase_ == Phase::kDraining && needs_quiet && now >= drain_until_) cancel_sent();
  const bool is_quiet = !needs_quiet || sent_ == 0;
  if (wanted && is_quiet && (phase_ == Phase::kUnknown || unconfirmed_ == 0)) {
    const BackendAction install = begin_install(*wanted);
    if (needs_quiet) phase_ = Phase::kUnknown;
    // Answers that go on under it may come before the install's own.
    if (was_known_ && !needs_quiet) recent_.insert(wanted->version);
    return install;
  }
  if (phase_ != Phase::kUnknown && (is_suspect_ || unconfirmed_ > 0)) return begin_check();
  return std::nullopt;
}

std::optional<BackendAction> BackendCore::next_adapter_control(Instant now) {
  // A server that was started anew is examined before it gets another version.
  if (phase_ != Phase::kUnknown && is_suspect_) return begin_check();
  const std::optional<VersionName> wanted = to_install();
  if (wanted && (loaded_.size() < options_.adapters_max || loaded_.contains(*wanted))) {
    is_first_install_ = loaded_.try_emplace(*wanted).second;
    return begin_install(*wanted);
  }
  for (const auto& [name, calls] : loaded_) {
    if (!calls.empty() || name == last_) continue;
    is_in_control_ = true;
    return BackendAction{.kind = BackendAction::Kind::kUnload, .version = name};
  }
  if (!wanted) return std::nullopt;
  if (phase_ == Phase::kServing) {
    phase_ = Phase::kDraining;
    drain_until_ = now + options_.drain_time_max;
  } else if (now >= drain_until_) {
    // Of two or more, one is not the last.
    const auto oldest = std::ranges::find_if(loaded_, [&](const auto& one) { return one.first != last_; });
    cancel_calls_of(oldest->first);
  }
  return std::nullopt;
}

BackendAction BackendCore::begin_install(VersionName name) {
  is_in_control_ = true;
  was_known_ = phase_ != Phase::kUnknown;
  installing_ = name.version;
  return {.kind = BackendAction::Kind::kInstall, .version = name, .is_anew = !was_known_};
}

BackendAction BackendCore::begin_check() {
  is_in_control_ = true;
  checked_to_ = arrivals_;
  return {.kind = BackendAction::Kind::kCheck};
}

std::optional<BackendAction> BackendCore::poll_action(Instant now) {
  if (const auto control = next_control(now)) return control;
  if (!cancels_.empty()) {
    const BackendAction cancel = cancels_.front();
    cancels_.pop_front();
    return cancel;
  }
  const bool serves_on = options_.installs_itself || options_.adapters_max > 0;
  const bool may_send = phase_ == Phase::kServing || (phase_ == Phase::kDraining && serves_on);
  if (!may_send || is_suspect_ || waiting_.empty() || sent_ >= options_.running_max) return std::nullopt;
  const RequestId id = waiting_.front();
  waiting_.pop_front();
  requests_.at(id).where = Where::kSent;
  ++sent_;
  BackendAction send{.kind = BackendAction::Kind::kSend, .request = id};
  if (options_.adapters_max > 0) {
    loaded_.at(*last_).insert(id);
    send.version = *last_;
  }
  return send;
}

std::vector<EngineEvent> BackendCore::take_events() { return std::exchange(events_, {}); }

std::optional<std::string> BackendCore::poll_line() {
  if (lines_.empty()) return std::nullopt;
  std::string line = std::move(lines_.front());
  lines_.pop_front();
  return line;
}

std::optional<Version> BackendCore::version() const {
  if (phase_ == Phase::kUnknown || !last_) return std::nullopt;
  return last_->version;
}

}  // namespace weightcast
