#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "worker/backend/backend_core.h"

namespace weightcast {

inline BackendAnswer answer_of(std::size_t tokens, Version version = kNoVersion) {
  BackendAnswer answer;
  answer.tokens.assign(tokens, {.token = 7, .log_prob = -1, .version = version, .top = {}});
  return answer;
}
inline Error error(Errc code) { return fail(code, Op::kReceive, "so it is"); }

/// One core, and what it asked for.
class BackendCoreFixture : public testing::Test {
 protected:
  void make() { core_.emplace(options_); }
  std::vector<BackendAction> poll() {
    std::vector<BackendAction> actions;
    while (const auto action = core_->poll_action(now_)) actions.push_back(*action);
    return actions;
  }
  RequestId add(std::uint64_t tag = 0) {
    EngineRequest request;
    request.prompt = {1, 2};
    request.tag = tag;
    return core_->add(request).value();
  }
  std::string lines() {
    std::string all;
    while (const auto line = core_->poll_line()) all += *line + "\n";
    return all;
  }

  BackendCoreOptions options_;
  std::optional<BackendCore> core_;
  Instant now_{std::chrono::hours(1)};
};

}  // namespace weightcast
