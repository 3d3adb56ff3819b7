#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/steady_clock.h"
#include "tests/worker/engine/scripted_versions.h"
#include "tests/worker/engine/written_models.h"
#include "worker/backend/backend.h"

namespace weightcast {

/// A worker's backend, the versions that its daemon would install, and what it says and answers. The server is the
/// derived fixture's, which ends the backend before it.
class DrivenBackend : public testing::Test {
 protected:
  /// `limit`: of all that a test waits for.
  explicit DrivenBackend(Duration limit = std::chrono::seconds(60)) : limit_(limit) {}

  Result<std::unique_ptr<Backend>> try_start(BackendOptions options) {
    return Backend::start(files_, std::make_unique<ScriptedSource>(script_), std::move(options),
                          [this](const std::string& line) {
                            const std::lock_guard lock(mutex_);
                            said_ += line + "\n";
                          });
  }
  void start(BackendOptions options) {
    auto started = try_start(std::move(options));
    ASSERT_TRUE(started.has_value()) << started.error().message();
    backend_ = *std::move(started);
  }
  std::string refusal(BackendOptions options) {
    const auto started = try_start(std::move(options));
    return started.has_value() ? "taken" : started.error().message();
  }
  std::string said() {
    const std::lock_guard lock(mutex_);
    return said_;
  }
  bool step_until(const std::function<bool()>& done) { return step_until(done, limit_); }
  bool step_until(const std::function<bool()>& done, Duration limit) {
    const Instant end = steady_now() + limit;
    while (!done()) {
      if (steady_now() > end) return false;
      for (EngineEvent& event : backend_->step()) events_.push_back(std::move(event));
    }
    return true;
  }
  bool says(const std::string& what) {
    return step_until([&] { return said().find(what) != std::string::npos; });
  }
  EngineEvent next_event() {
    EXPECT_TRUE(step_until([&] { return !events_.empty(); })) << said();
    if (events_.empty()) return {};
    EngineEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  /// The next version that it takes into use.
  Version wait_for_version() {
    std::optional<Version> taken;
    EXPECT_TRUE(step_until([&] { return (taken = backend_->take_version()).has_value(); })) << said();
    return taken.value_or(kNoVersion);
  }
  static std::vector<TokenId> prompt_of(std::uint64_t tag) { return {1, 2, static_cast<TokenId>(tag)}; }
  void add(std::uint64_t tag, std::size_t tokens = 6) {
    EngineRequest request;
    request.prompt = prompt_of(tag);
    request.tokens_max = tokens;
    request.tag = tag;
    ASSERT_TRUE(backend_->add(request).has_value());
  }

  const Duration limit_;
  PosixFileSystem files_;
  ScriptedVersions script_;
  std::mutex mutex_;
  std::string said_;
  std::deque<EngineEvent> events_;
  std::unique_ptr<Backend> backend_;
};

}  // namespace weightcast
