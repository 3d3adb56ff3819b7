#include "transport/node/enrolment_desk.h"

#include <algorithm>
#include <memory>
#include <thread>

namespace weightcast {
namespace {

// A command that works on the directory holds its lock for milliseconds.
constexpr int kLockAttempts = 40;
constexpr auto kLockPause = std::chrono::milliseconds(50);

}  // namespace

bool EnrolmentDesk::may_begin() {
  const Instant now = jobs_.loop().now();
  allowance_ = std::min(kPerSecond, allowance_ + kPerSecond * to_seconds(now - counted_at_));
  counted_at_ = now;
  if (allowance_ < 1 || waiting_.size() >= kWaitingMax) return false;
  allowance_ -= 1;
  return true;
}

void EnrolmentDesk::handle(EnrolmentRequest request, Done done) {
  if (!may_begin()) {
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
