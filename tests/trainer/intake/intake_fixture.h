#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files/posix_file_system.h"
#include "tests/patch/temp_dir.h"
#include "tests/trainer/replay/replay_fixture.h"
#include "trainer/intake/intake.h"
#include "transport/http/client.h"

namespace weightcast {

/// A learner's port over a buffer whose learner is at version 1, with groups of two and batches of four.
class IntakeTest : public testing::Test {
 protected:
  using Json = nlohmann::json;
  static constexpr Duration kLimit = std::chrono::minutes(1);

  void open(RolloutIntake::Options options = {}, bool resumed = false, const ReplayOptions& replay = replay_options()) {
    intake_.reset();
    buffer_.set(ReplayBuffer(replay, replay_rules()));
    buffer_->handle_step(Version{1});
    buffer_->handle_published(Version{1});
    options.listen = {"127.0.0.1", 0};
    options.directory = temp_.file(".");
    intake_ = std::make_unique<RolloutIntake>(files_, std::move(options), buffer_);
    RunDescription run;
    run.task = "arithmetic";
    run.group_size = replay.group_size;
    run.rollout_batch_size = replay.rollout_batch_size;
    run.group_size_redundancy = replay.group_size_redundancy;
    const Status opened = intake_->open(run, resumed);
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    client_ = std::move(*HttpClient::make({.server = intake_->endpoint()}));
  }

  HttpResponse call(const HttpCall& call) {
    auto response = client_->call(call, kLimit);
    WC_CHECK(response.has_value());
    return std::move(*response);
  }
  HttpResponse post(const std::string& target, const Json& body, std::vector<HttpHeader> headers = {}) {
    return call({.method = "POST",
                 .target = target,
                 .content_type = "application/json",
                 .body = body.dump(),
                 .headers = std::move(headers)});
  }
  static Json json(const HttpResponse& response) { return Json::parse(response.body); }

  const TempDir temp_;
  PosixFileSystem files_;
  SharedReplayBuffer buffer_;
  std::unique_ptr<RolloutIntake> intake_;
  std::unique_ptr<HttpClient> client_;
};

}  // namespace weightcast
