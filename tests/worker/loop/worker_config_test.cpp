#include "worker/loop/worker_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace weightcast {
namespace {

using testing::HasSubstr;

const std::vector<Setting> kLeast{{"learner", "trainer:7500"}, {"state_dir", "/s"}, {"spool_dir", "/r"}, {"name", "w"}};

std::string refusal(const Setting& setting) {
  std::vector<Setting> settings = kLeast;
  settings.push_back(setting);
  const auto config = make_worker_config(settings);
  return config.has_value() ? "accepted" : config.error().message();
}

TEST(RolloutWorkerConfig, NamesWhatIsMissing) {
  for (std::size_t i = 0; i < kLeast.size(); ++i) {
    std::vector<Setting> settings = kLeast;
    settings.erase(settings.begin() + static_cast<std::ptrdiff_t>(i));
    const auto config = make_worker_config(settings);
    ASSERT_FALSE(config.has_value());
    EXPECT_THAT(config.error().message(), HasSubstr(kLeast[i].first + " is empty"));
  }
}

TEST(RolloutWorkerConfig, RefusesWhatIsUnknownOrOutOfRange) {
  EXPECT_THAT(refusal({"runing_max", "8"}), HasSubstr("the nearest is 'running_max'"));
  EXPECT_THAT(refusal({"running_max", "0"}), HasSubstr("1 to 65536"));
  EXPECT_THAT(refusal({"in_flight", "kep"}), HasSubstr("keep"));
  EXPECT_THAT(refusal({"backend", "vlm"}), HasSubstr("vllm"));
  EXPECT_THAT(refusal({"backend", "vllm"}), HasSubstr("backend_server is empty"));
}

TEST(RolloutWorkerConfig, WhatItPrintsGivesTheSameAgain) {
  const RolloutWorkerConfig config = make_worker_config(kLeast).value();
  EXPECT_THAT(worker_config_text(config), HasSubstr("learner = \"trainer:7500\"\n"));
  EXPECT_THAT(worker_config_table(), HasSubstr("| `running_max` | 64 | a whole number, 1 to 65536 |"));
}

TEST(RolloutWorkerConfig, TheDocumentListsEveryKey) {
  std::ifstream in(WEIGHTCAST_WORKERS_DOCUMENT);
  const std::string document((std::istreambuf_iterator<char>(in)), {});
  EXPECT_THAT(document, HasSubstr(worker_config_table()));
}

}  // namespace
}  // namespace weightcast
