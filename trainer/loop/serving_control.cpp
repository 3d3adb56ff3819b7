#include "trainer/loop/serving_control.h"

#include <fmt/format.h>

#include "base/text.h"
#include "weightcast/weightcast.hpp"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

constexpr wc::Milliseconds kAnswerTime = 1s;
constexpr Duration kPause = 10s;
constexpr Duration kRepeat = 10s;
constexpr std::size_t kRequestsMax = 64;  // of one call: the learner waits for each answer

}  // namespace

ServingControl::ServingControl(std::string state_dir, std::function<void(std::string)> warn)
    : state_dir_(std::move(state_dir)), warn_(std::move(warn)) {}
ServingControl::~ServingControl() = default;

void ServingControl::tell(Instant now, const std::map<std::string, bool>& wanted) {
  if (retry_at_ && now < *retry_at_) return;
  retry_at_.reset();
  try {
    if (!client_) client_ = std::make_unique<wc::Client>(state_dir_, kAnswerTime);
    if (!again_at_ || now >= *again_at_) {
      told_.clear();
      again_at_ = now + kRepeat;
      client_->serve("", false, true, kAnswerTime);
    }
    std::size_t requests = 0;
    for (const auto& [name, is_wanted] : wanted) {
      const auto told = told_.find(name);
      if (told != told_.end() && told->second == is_wanted) continue;
      if (requests++ == kRequestsMax) break;
      tell_one(name, is_wanted);
      told_[name] = is_wanted;
    }
    is_failing_ = false;
  } catch (const wc::Error& error) {
    client_.reset();
    again_at_.reset();
    retry_at_ = now + kPause;
    if (!is_failing_) warn_(fmt::format("the origin is not told which workers serve: {}", error.what()));
    is_failing_ = true;
  }
}

void ServingControl::tell_one(const std::string& name, bool wanted) {
  try {
    client_->serve(name, wanted, true, kAnswerTime);
  } catch (const wc::Error& error) {
    if (error.code() != WC_NOT_FOUND) throw;
    if (!unknown_.insert(name).second) return;
    warn_(
        fmt::format("worker {} rolls out, but no daemon of that name has joined the origin: whether it gets versions "
                    "does not follow provision; give both the same name",
                    printable(name)));
  }
}

}  // namespace weightcast
