#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "worker/engine/version_source.h"

namespace weightcast {

/// The digest that a script gives a version.
inline std::string scripted_digest(std::uint64_t version) { return "d1d1d1d1d1d1d1d1" + std::to_string(version); }

/// What a daemon would say, and which pins it would hold.
struct ScriptedVersions {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Result<std::optional<VersionEvent>>> events;
  std::map<std::uint64_t, std::filesystem::path> directories;
  std::multiset<std::uint64_t> pins;
  int busy_pins = 0;
  std::map<std::pair<std::uint64_t, std::uint64_t>, VersionList> lists;  // from one version to another

  void install(std::uint64_t version, const std::filesystem::path& directory, std::uint32_t run = 1) {
    const std::lock_guard lock(mutex);
    directories[version] = directory;
    events.emplace_back(VersionEvent{VersionEvent::Kind::kInstalled, {run, Version{version}}});
    changed.notify_all();
  }
  void say(VersionEvent::Kind kind) {
    const std::lock_guard lock(mutex);
    events.emplace_back(VersionEvent{kind, {}});
    changed.notify_all();
  }
  std::multiset<std::uint64_t> pinned() {
    const std::lock_guard lock(mutex);
    return pins;
  }
};

class ScriptedSource final : public VersionSource {
 public:
  explicit ScriptedSource(ScriptedVersions& script) : script_(script) {}
  Result<std::optional<VersionEvent>> next(std::chrono::milliseconds timeout) override {
    std::unique_lock lock(script_.mutex);
    script_.changed.wait_for(lock, timeout, [&] { return !script_.events.empty(); });
    if (script_.events.empty()) return std::optional<VersionEvent>();
    const auto event = script_.events.front();
    script_.events.pop_front();
    return event;
  }
  Result<PinnedVersion> pin(VersionName name) override {
    const std::lock_guard lock(script_.mutex);
    if (script_.busy_pins > 0) {
      --script_.busy_pins;
      return fail(Errc::kBusy, Op::kInstall, "later");
    }
    const auto found = script_.directories.find(name.version.value);
    if (found == script_.directories.end()) return fail(Errc::kNotFound, Op::kInstall, "no such version");
    script_.pins.insert(name.version.value);
    return PinnedVersion{found->second.string(), scripted_digest(name.version.value)};
  }
  Result<VersionList> changes(VersionName from, const std::string& digest, VersionName pinned) override {
    const std::lock_guard lock(script_.mutex);
    EXPECT_TRUE(script_.pins.contains(pinned.version.value));
    EXPECT_EQ(digest, scripted_digest(from.version.value));
    const auto found = script_.lists.find({from.version.value, pinned.version.value});
    if (found == script_.lists.end()) return fail(Errc::kTooFar, Op::kInstall, "not known");
    return found->second;
  }
  void unpin(VersionName name) override {
    const std::lock_guard lock(script_.mutex);
    const auto found = script_.pins.find(name.version.value);
    EXPECT_NE(found, script_.pins.end());
    script_.pins.erase(found);
  }

 private:
  ScriptedVersions& script_;
};

}  // namespace weightcast
