#include "trainer/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/trainer/replay/replay_fixture.h"
#include "trainer/config/presets.h"

namespace weightcast {
namespace {

using testing::HasSubstr;

std::string refusal(const std::vector<Setting>& settings) {
  const auto config = make_config(settings);
  return config.has_value() ? "accepted" : config.error().message();
}

TEST(LearnerConfig, TakesTheFieldsNames) {
  const auto config = make_config(std::vector<Setting>{{"max_staleness", "unlimited"},
                                                       {"async_generation_ratio", "1.5"},
                                                       {"clip_ratio_high", "0.28"},
                                                       {"publish_sparse", "false"},
                                                       {"task_options.digits_max", "1"}});
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->max_staleness, std::nullopt);
  EXPECT_EQ(config->async_generation_ratio, 1.5);
  EXPECT_EQ(config->clip_ratio_high, 0.28);
  EXPECT_FALSE(config->publish_sparse);
  EXPECT_EQ(config->task_options.at("digits_max"), "1");
}

TEST(LearnerConfig, RefusesAnUnknownKeyWithTheNearest) {
  EXPECT_THAT(refusal({{"max_stalenes", "3"}}), HasSubstr("the nearest is 'max_staleness'"));
}

TEST(LearnerConfig, RefusesAnUnknownChoiceWithTheNearest) {
  EXPECT_THAT(refusal({{"pg_variant", "ciso"}}), HasSubstr("the nearest is 'cispo'"));
  EXPECT_THAT(refusal({{"preset", "echo"}}), HasSubstr("the nearest is 'echo2'"));
  EXPECT_THAT(refusal({{"preset", "roll_flash_a1"}}), HasSubstr("the nearest is 'roll_flash'"));
}

TEST(LearnerConfig, RefusesWhatIsOutOfRangeOrNoNumber) {
  EXPECT_THAT(refusal({{"learning_rate", "2"}}), HasSubstr("learning_rate is '2'; it is 0 to 1"));
  EXPECT_THAT(refusal({{"learning_rate", "nan"}}), HasSubstr("learning_rate is 'nan'"));
  EXPECT_THAT(refusal({{"group_size", "0"}}), HasSubstr("a whole number, 1 to"));
  EXPECT_THAT(refusal({{"group_size", "-1"}}), HasSubstr("group_size is '-1'"));
  EXPECT_THAT(refusal({{"group_size", "4x"}}), HasSubstr("group_size is '4x'"));
  EXPECT_THAT(refusal({{"publish_sparse", "yes"}}), HasSubstr("true, false"));
  EXPECT_THAT(refusal({{"max_staleness", "never"}}), HasSubstr("or unlimited"));
}

TEST(LearnerConfig, RefusesWhatDoesNotGoTogether) {
  EXPECT_THAT(refusal({{"rollout_batch_size", "100"}}), HasSubstr("a multiple of group_size (16)"));
  EXPECT_THAT(refusal({{"rollout_source", "files"}}), HasSubstr("rollout_files is empty"));
  EXPECT_THAT(refusal({{"max_staleness", "0"}, {"generator_lag", "1"}}), HasSubstr("lag up to 1 steps"));
  EXPECT_THAT(refusal({{"max_staleness", "unlimited"}, {"publish_interval", "1000"}}), HasSubstr("ever published"));
  EXPECT_THAT(refusal({{"sync_drift_max", "2"}}), HasSubstr("rollout_source 'generator'"));
  EXPECT_THAT(refusal({{"sync_drift_max", "2"},
                       {"rollout_source", "http"},
                       {"rollout_listen", "127.0.0.1:0"},
                       {"publish_state", "/s"},
                       {"rollout_batch_size", "64"},
                       {"updates_per_step", "3"}}),
              HasSubstr("whole mini-batches"));
}

TEST(LearnerConfig, RefusesSpareGroupsThatOnlyWorkersMake) {
  for (const char* key : {"max_additional_running_prompts", "num_env_groups", "group_size_redundancy"}) {
    EXPECT_THAT(refusal({{key, "9"}}), HasSubstr(std::string(key) + " is 9, and rollout_source 'generator'"));
    EXPECT_THAT(refusal({{key, "9"}}), HasSubstr("set rollout_source to http, or " + std::string(key) + " to 0"));
    EXPECT_THAT(refusal({{key, "9"}, {"rollout_source", "files"}, {"rollout_files", "a.jsonl"}}),
                HasSubstr("rollout_source 'files'"));
    EXPECT_EQ(refusal({{key, "9"}, {"rollout_source", "http"}}), "accepted");
    EXPECT_EQ(refusal({{key, "9"}, {"world_size", "2"}, {"rank", "1"}, {"rendezvous", "h:1"}}), "accepted")
        << "rank 0 takes rollouts";
  }
}

/// Without publications no worker catches up: each sync would stall until it is given up.
TEST(LearnerConfig, RefusesToSyncOnDriftWhatItDoesNotPublish) {
  std::vector<Setting> settings{{"sync_drift_max", "2"}, {"rollout_source", "http"}};
  EXPECT_THAT(refusal(settings), HasSubstr("sync_drift_max is 2, and publish_state is empty"));
  settings.push_back({"publish_state", "/var/lib/weightcast"});
  EXPECT_EQ(refusal(settings), "accepted");
  settings = {
      {"sync_drift_max", "2"}, {"rollout_source", "http"}, {"world_size", "2"}, {"rank", "1"}, {"rendezvous", "h:1"}};
  EXPECT_EQ(refusal(settings), "accepted") << "rank 0 publishes";
}

TEST(LearnerConfig, RefusesAGeneratorWhoseRolloutsAreNeverAdmissible) {
  const auto of = [](const char* ratio, const char* lag, const char* interval) {
    return refusal({{"async_generation_ratio", ratio}, {"generator_lag", lag}, {"publish_interval", interval}});
  };
  EXPECT_EQ(of("0", "0", "1"), "accepted");
  EXPECT_THAT(of("0", "1", "1"), HasSubstr("async_generation_ratio is 0; with publish_interval 1 and generator_lag 1"));
  EXPECT_EQ(of("1", "1", "1"), "accepted");
  EXPECT_THAT(of("1", "1", "2"), HasSubstr("lag up to 2 steps"));
  EXPECT_THAT(of("0.5", "1", "1"), HasSubstr("async_generation_ratio is 0.5"));
  EXPECT_EQ(of("0.5", "0", "2"), "accepted");
  EXPECT_EQ(of("1.5", "1", "1"), "accepted");
}

TEST(LearnerConfig, NeedsTheLeastOfSeveralLagsToBeAdmissible) {
  const auto of = [](const char* lags, const char* interval) {
    return refusal({{"max_staleness", "11"}, {"generator_lag", lags}, {"publish_interval", interval}});
  };
  EXPECT_EQ(of("1,2,3", "10"), "accepted") << "some rollouts come too late, and others do not";
  EXPECT_EQ(of("3,2", "10"), "accepted");
  EXPECT_THAT(of("3,4", "10"), HasSubstr("max_staleness is 11; with publish_interval 10 and generator_lag 3,4"));
  EXPECT_THAT(of("soon", "1"), HasSubstr("generator_lag is 'soon'"));
}

TEST(LearnerConfig, RefusesALossOrAScheduleThatIsNone) {
  EXPECT_THAT(refusal({{"clip_ratio_c", "0.5"}}), HasSubstr("clip_ratio_c"));
  EXPECT_THAT(refusal({{"pg_variant", "tis"}, {"ratio_low", "2"}}), HasSubstr("ratio_low"));
  EXPECT_THAT(refusal({{"lr_schedule", "linear"}, {"lr_warmup_updates", "200"}}), HasSubstr("warm-up"));
  EXPECT_EQ(refusal({{"lr_schedule", "linear"}, {"total_training_steps", "0"}}), "accepted");
}

TEST(LearnerConfig, AppliesAPresetBeforeAllElse) {
  const auto config = make_config(std::vector<Setting>{{"group_size", "32"}, {"preset", "sparse_patches"}});
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->group_size, 32u);
  EXPECT_EQ(config->lr_schedule, LearningRateDecay::kCosine);
}

TEST(LearnerConfig, TakesEveryPreset) {
  for (const Preset& preset : presets()) {
    EXPECT_EQ(refusal({{"preset", std::string(preset.name)}, {"rollout_files", "a.jsonl"}}), "accepted") << preset.name;
  }
}

TEST(LearnerConfig, GivesPresetsOfChatModelsRoomForAnAnswer) {
  for (const Preset& preset : presets()) {
    if (preset.name == "arithmetic") continue;
    const LearnerConfig config =
        make_config(std::vector<Setting>{{"preset", std::string(preset.name)}, {"rollout_files", "a.jsonl"}}).value();
    EXPECT_EQ(config.chat_template, ChatTemplate::kQwen) << preset.name;
    EXPECT_GE(config.max_new_tokens, 1024u) << preset.name;
  }
}

TEST(LearnerConfig, RefusesToSampleSeveralTurns) {
  EXPECT_THAT(refusal({{"advantage_estimator", "gae"}, {"advantage_norm", "rloo"}}),
              HasSubstr("it is std, batch or none"));
  EXPECT_THAT(refusal({{"lora_rank", "4"}, {"lora_target_modules", "q_proj,k_prj"}}), HasSubstr("k_proj"));
}

TEST(LearnerConfig, BoundsTheOuterWeightOfEcho2) {
  const LearnerConfig config = make_config(std::vector<Setting>{{"preset", "echo2"}}).value();
  EXPECT_EQ(config.pg_variant, PgVariant::kPpo);
  EXPECT_EQ(config.tis_cap, 2);
  EXPECT_EQ(config.loss_agg_mode, LossAggMode::kSeqMeanTokenMean) << "1/|y|";
  EXPECT_EQ(config.max_new_tokens, 8192u);
  EXPECT_THAT(refusal({{"preset", "echo2"}, {"pg_variant", "echo2"}}), HasSubstr("count that mismatch twice"));
  EXPECT_EQ(refusal({{"preset", "echo2"}, {"pg_variant", "echo2"}, {"tis_cap", "0"}, {"ratio_high", "2"}}), "accepted");
  EXPECT_EQ(refusal({{"preset", "echo2"}, {"pg_variant", "decoupled_ppo"}}), "accepted");
}

TEST(LearnerConfig, PublishesEverySMinusOneStepsByEcho2) {
  const auto interval = [](std::vector<Setting> settings) {
    settings.insert(settings.begin(), {"preset", "echo2"});
    return make_config(settings).value().publish_interval;
  };
  EXPECT_EQ(interval({}), 2u);
  EXPECT_EQ(interval({{"max_staleness", "11"}}), 10u);
  EXPECT_EQ(interval({{"max_staleness", "1"}}), 1u);
  EXPECT_EQ(interval({{"max_staleness", "11"}, {"publish_interval", "2"}}), 2u);
  EXPECT_EQ(make_config(std::vector<Setting>{{"preset", "sparse_patches"}}).value().publish_interval, 1u);
}

TEST(LearnerConfig, HasNoDualClipInARecipeOfAPaper) {
  for (const Preset& preset : presets()) {
    const auto config =
        make_config(std::vector<Setting>{{"preset", std::string(preset.name)}, {"rollout_files", "a.jsonl"}});
    ASSERT_TRUE(config.has_value()) << preset.name;
    EXPECT_EQ(config->clip_ratio_c.has_value(), preset.name == "arithmetic") << preset.name;
  }
  for (const char* name : {"sokoban", "math", "knights_and_knaves"}) {
    EXPECT_EQ(make_config(std::vector<Setting>{{"preset", name}}).value().max_staleness, 0u)
        << "ECHO's runs are sequential";
  }
}

/// What the paper prints of its runs, A.1 and A.2.
TEST(LearnerConfig, HasTheNumbersOfRollFlash) {
  const LearnerConfig rlvr = make_config(std::vector<Setting>{{"preset", "roll_flash"}}).value();
  EXPECT_EQ(rlvr.rollout_batch_size / rlvr.group_size, 256u);
  EXPECT_EQ(rlvr.group_size, 16u);
  EXPECT_EQ(rlvr.max_prompt_length, 2048u);
  EXPECT_EQ(rlvr.max_new_tokens, 30720u);
  EXPECT_EQ(rlvr.learning_rate, 1e-6);
  EXPECT_EQ(rlvr.weight_decay, 0);
  EXPECT_EQ(learning_rate_schedule(rlvr)->warmup_updates, 20u);
  EXPECT_EQ(rlvr.tis_cap, 5);
  EXPECT_EQ(rlvr.updates_per_step, 1u) << "4,096 rollouts are the batch";
  EXPECT_EQ(rlvr.loss_agg_mode, LossAggMode::kSeqMeanTokenMean) << "equation 3";
  EXPECT_EQ(rlvr.max_staleness, std::nullopt) << "the ratio is the bound";
  const LearnerConfig agentic = make_config(std::vector<Setting>{{"preset", "roll_flash_agentic"}}).value();
  EXPECT_EQ(agentic.rollout_batch_size / agentic.group_size, 8u);
  EXPECT_EQ(agentic.rollout_source, RolloutsFrom::kHttp) << "environments beyond a batch's are workers'";
  EXPECT_EQ(agentic.num_env_groups, 9u);
  EXPECT_EQ(agentic.group_size + agentic.group_size_redundancy, 17u);
  EXPECT_EQ(agentic.async_generation_ratio, 1);
  EXPECT_EQ(rollout_tokens_max(agentic), 32768u);
  EXPECT_EQ(agentic.eval_prompts, 128u);
  EXPECT_EQ(agentic.tis_cap, 5);
  EXPECT_EQ(agentic.weight_decay, 0.01);
  EXPECT_GT(learning_rate_schedule(agentic)->warmup_updates, 0u);
}

/// 9 groups of 17 episodes are under way beside a batch of 8 groups of 16 that is trained on.
TEST(LearnerConfig, PutsTheEnvironmentsOfRollFlashUnderWay) {
  const LearnerConfig config = make_config(std::vector<Setting>{{"preset", "roll_flash_agentic"}}).value();
  ReplayBuffer buffer(replay_options(config), replay_rules());
  buffer.handle_step(Version{1});
  buffer.handle_published(Version{1});
  const Instant now{std::chrono::hours(1)};
  ASSERT_EQ(buffer.leasable(now, "w", 100), 8u + 9u);
  for (std::uint64_t group = 0; group < 17; ++group) buffer.lease(now, "w", group, 17 * group, 17);
  for (std::uint64_t group = 0; group < 8; ++group) {
    for (std::uint64_t member = 1; member < 17; ++member) {  // any 16 count
      const Arrival arrival =
          buffer.handle_trajectory(now, rollout("w", 17 * group + member, std::to_string(group), 1));
      ASSERT_EQ(arrival.admission, AdmissionOutcome::kAdmitted) << arrival.detail;
    }
  }
  ASSERT_TRUE(buffer.take_batch(now).has_value());
  EXPECT_EQ(buffer.leases().expected(), 9u);
  EXPECT_EQ(buffer.leasable(now, "w", 100), 0u);
}

TEST(LearnerConfig, BoundsARolloutByItsSequence) {
  const auto of = [](const char* length) {
    return make_config(std::vector<Setting>{
        {"turns_max", "10"}, {"max_prompt_length", "100"}, {"max_new_tokens", "50"}, {"max_sequence_length", length}});
  };
  EXPECT_EQ(rollout_tokens_max(*of("0")), 1500u);
  EXPECT_EQ(rollout_tokens_max(*of("400")), 400u);
  EXPECT_EQ(rollout_tokens_max(*of("4000")), 1500u);
  EXPECT_THAT(of("149").error().message(), HasSubstr("max_sequence_length is 149; a first turn takes up to"));
}

TEST(LearnerConfig, PrintsAllKeys) {
  const std::string text = config_text(make_config({}).value());
  EXPECT_THAT(text, HasSubstr("max_staleness = 4\n"));
  EXPECT_THAT(text, HasSubstr("async_generation_ratio = \"unlimited\"\n"));
  EXPECT_THAT(text, HasSubstr("learning_rate = 1e-06\n"));
}

TEST(LearnerConfig, HasTheTableOfItsDocument) {
  LearnerConfig defaults;
  std::ifstream in(WEIGHTCAST_SETTINGS_DOCUMENT);
  const std::string document{std::istreambuf_iterator<char>(in), {}};
  EXPECT_THAT(document, HasSubstr(settings_table(config_fields(defaults))))
      << "docs/SETTINGS.md: put the output of `run --list-keys` there";
  for (const Preset& preset : presets()) EXPECT_THAT(document, HasSubstr("`" + std::string(preset.name) + "`"));
}

TEST(LearnerConfig, NamesADevice) {
  const auto with_device = [](const char* device, const char* tf32) {
    const std::vector<Setting> settings{{"device", device}, {"tf32", tf32}};
    return make_config(settings);
  };
  EXPECT_TRUE(with_device("cuda:3", "true").has_value());
  EXPECT_TRUE(uses_cuda(*with_device("cuda", "false")));
  EXPECT_FALSE(uses_cuda(*with_device("cpu", "false")));
  EXPECT_THAT(with_device("gpu", "false").error().message(), HasSubstr("device is 'gpu'; it is cpu, cuda, or cuda:N"));
  EXPECT_THAT(with_device("cpu", "true").error().message(), HasSubstr("tf32 is true"));
}

TEST(LearnerConfig, ReadsASetting) {
  EXPECT_EQ(parse_setting("a=b=c").value(), (Setting{"a", "b=c"}));
  EXPECT_FALSE(parse_setting("a").has_value());
  EXPECT_FALSE(parse_setting("=a").has_value());
}

}  // namespace
}  // namespace weightcast
