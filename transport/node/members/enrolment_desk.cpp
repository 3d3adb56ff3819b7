#include "transport/node/members/enrolment_desk.h"

#include <memory>
#include <thread>

namespace weightcast {
namespace {

// A command that works on the directory holds its lock for milliseconds.
constexpr int kLockAttempts = 40;
constexpr auto kLockPause = std::chrono::milliseconds(50);

}  // namespace

bool EnrolmentAllowance::spend(Instant now, const std::string& host) {
  if (!hosts_.contains(host) && hosts_.size() >= kHostsMax) hosts_.clear();
  // What one host asks in vain costs the others nothing.
  Budget& of_host = hosts_.try_emplace(host, kPerSecondOfHost, kBurstOfHost).first->second;
  return of_host.spend(now) && all_.spend(now);
}

void EnrolmentDesk::handle(EnrolmentRequest request, const std::string& host, Done done) {
  if (waiting_.size() >= kWaitingMax || !allowance_.spend(jobs_.loop().now(), host)) {
    return jobs_.post([done = std::move(done)] {
      done(fail(Errc::kBusy, Op::kVerify, "too many machines enrol at once; try again in a second"));
    });
  }
  waiting_.emplace_back(std::move(request), std::move(done));
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
