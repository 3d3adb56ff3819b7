#include "transport/node/members/enrolment_desk.h"

#include <memory>
#include <thread>
#include <utility>

#include "transport/security/join_token.h"

namespace weightcast {
namespace {

// A command that works on the directory holds its lock for milliseconds.
constexpr int kLockAttempts = 40;
constexpr auto kLockPause = std::chrono::milliseconds(50);

Error too_many() { return fail(Errc::kBusy, Op::kVerify, "too many machines enrol at once; try again in a second"); }

Status check_token(const Result<OpenTokens>& tokens, const EnrolmentRequest& request) {
  if (!tokens.has_value()) return tokens.error();
  WC_TRY(tokens->find(request.token_id, request.token_secret, unix_now_s()));
  return {};
}

}  // namespace

bool EnrolmentAllowance::spend(Instant now, const std::string& host) {
  if (!hosts_.contains(host) && hosts_.size() >= kHostsMax) hosts_.clear();
  Budget& of_host = hosts_.try_emplace(host, kPerSecondOfHost, kBurstOfHost).first->second;
  return of_host.spend(now) && all_.spend(now);
}

void EnrolmentDesk::handle(EnrolmentRequest request, const std::string& host, Done done) {
  if (asked_.size() >= kAskedMax) {
    return jobs_.post([done = std::move(done)] { done(too_many()); });
  }
  asked_.push_back({std::move(request), host, std::move(done)});
  look_at_tokens();
}

void EnrolmentDesk::look_at_tokens() {
  if (looking_ || asked_.empty()) return;
  looking_ = true;
  const auto looked_at = std::make_shared<std::vector<Asked>>(std::exchange(asked_, {}));
  const auto found = std::make_shared<std::vector<Status>>();
  jobs_.run(
      [this, looked_at, found] {
        // Without the directory's lock: the file is replaced as a whole, and enrol() looks again.
        const Result<OpenTokens> tokens = OpenTokens::read(directory_);
        for (const Asked& one : *looked_at) found->push_back(check_token(tokens, one.request));
      },
      [this, looked_at, found] {
        looking_ = false;
        for (std::size_t i = 0; i < looked_at->size(); ++i) {
          if (Asked& one = (*looked_at)[i]; (*found)[i].has_value()) {
            admit(std::move(one));
          } else {
            one.done((*found)[i].error());
          }
        }
        look_at_tokens();
      });
}

void EnrolmentDesk::admit(Asked asked) {
  if (waiting_.size() >= kWaitingMax || !allowance_.spend(jobs_.loop().now(), asked.host)) {
    return asked.done(too_many());
  }
  waiting_.emplace_back(std::move(asked.request), std::move(asked.done));
  begin_next();
}

void EnrolmentDesk::begin_next() {
  if (busy_ || waiting_.empty()) return;
  busy_ = true;
  auto [request, done] = std::move(waiting_.front());
  waiting_.pop_front();
  const auto result = std::make_shared<Result<Enrolled>>(fail(Errc::kBusy, Op::kLock, directory_.native()));
  jobs_.run(
      [this, request = std::move(request), result] {
        for (int attempt = 0; attempt < kLockAttempts && !jobs_.cancelled(); ++attempt) {
          *result = enrol(directory_, request, unix_now_s());
          if (result->has_value() || result->error().code != Errc::kBusy) return;
          std::this_thread::sleep_for(kLockPause);
        }
      },
      [this, result, done = std::move(done)] {
        busy_ = false;
        begin_next();
        done(std::move(*result));
      });
}

}  // namespace weightcast
