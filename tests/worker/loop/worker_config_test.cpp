#include "worker/loop/worker_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace weightcast {
namespace {

using testing::HasSubstr;

const std::vector<Setting> kLeast{{"learner", "trainer:7500"}, {"state_dir", "/s"}, {"name", "w"}};

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
    EXPECT_THAT(config.error().message(), HasSubstr(kLeast[i].name + " is empty"));
  }
}

TEST(RolloutWorkerConfig, RefusesWhatIsUnknownOrOutOfRange) {
  EXPECT_THAT(refusal({"runing_max", "8"}), HasSubstr("the nearest is 'running_max'"));
  EXPECT_THAT(refusal({"running_max", "0"}), HasSubstr("1 to 65536"));
  EXPECT_THAT(refusal({"in_flight", "kep"}), HasSubstr("keep"));
  EXPECT_THAT(refusal({"backend", "vlm"}), HasSubstr("vllm"));
  EXPECT_THAT(refusal({"backend", "vllm"}), HasSubstr("backend_server is empty"));
}

TEST(RolloutWorkerConfig, APaceIsOfThePacedBackendAlone) {
  EXPECT_THAT(refusal({"paced_rollouts_per_s", "2"}), HasSubstr("backend is 'engine' and paced_rollouts_per_s is 2"));
  EXPECT_THAT(refusal({"backend", "paced"}), HasSubstr("backend is 'paced' and paced_rollouts_per_s is 0"));
  std::vector<Setting> settings = kLeast;
  settings.insert(settings.end(), {{"backend", "paced"}, {"paced_rollouts_per_s", "2"}});
  EXPECT_TRUE(make_worker_config(settings).has_value());
}

TEST(RolloutWorkerConfig, WritesEachSettingAsItReadsIt) {
  RolloutWorkerConfig config = make_worker_config(kLeast).value();
  EXPECT_EQ(config.backend, WorkerBackend::kEngine);
  EXPECT_THAT(settings_text(worker_fields(config)), HasSubstr("learner = \"trainer:7500\"\n"));
  for (const SettingField& field : worker_fields(config)) {
    for (const std::string_view choice : field.choices()) {
      ASSERT_TRUE(field.set(choice).has_value()) << field.name();
      EXPECT_EQ(field.value(), choice);
    }
  }
}

TEST(RolloutWorkerConfig, TheDocumentListsEveryKey) {
  std::ifstream in(WEIGHTCAST_SETTINGS_DOCUMENT);
  const std::string document((std::istreambuf_iterator<char>(in)), {});
  RolloutWorkerConfig defaults;
  EXPECT_THAT(document, HasSubstr(settings_table(worker_fields(defaults))));
}

}  // namespace
}  // namespace weightcast
