#pragma once

#include "trainer/tasks/trajectory/trajectory.h"

namespace weightcast {

inline constexpr std::int32_t kFixtureVocab = 100;

/// Two prompt tokens, two sampled under version 5, an observation, one sampled under version 6.
inline Trajectory valid_trajectory() {
  Trajectory t;
  t.task = "arithmetic";
  t.worker = "w1";
  t.sequence = 7;
  t.group = "arithmetic/3";
  t.model_digest = "m";
  t.tokenizer_digest = "t";
  t.tokens = {1, 2, 10, 11, 3, 12};
  t.response_mask = {0, 0, 1, 1, 0, 1};
  t.logprobs = {-0.5f, 0.0f, -2.0f};
  t.version_runs = {{Version{5}, 2}, {Version{6}, 1}};
  t.oldest_version = Version{5};
  t.reward = 0.75;
  t.turns = {{2, 4, -0.25}, {5, 6, 1.0}};
  t.metadata = {{"answer", "42"}};
  return t;
}

inline TrajectoryRules rules_of_fixture() {
  TrajectoryRules rules;
  rules.task = "arithmetic";
  rules.model_digest = "m";
  rules.tokenizer_digest = "t";
  rules.vocab_size = kFixtureVocab;
  rules.tokens_max = 8;
  rules.metadata_bytes_max = 200;
  return rules;
}

}  // namespace weightcast
