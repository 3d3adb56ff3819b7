#pragma once

#include <string>

#include "trainer/replay/replay_buffer.h"

namespace weightcast {

inline TrajectoryRules replay_rules() {
  TrajectoryRules rules;
  rules.vocab_size = 10;
  rules.tokens_max = 16;
  rules.metadata_bytes_max = 100;
  return rules;
}

/// A rollout of one prompt token and one answer token.
inline Trajectory rollout(const std::string& worker, std::uint64_t sequence, const std::string& group,
                          std::uint64_t version, double reward = 0) {
  Trajectory t;
  t.worker = worker;
  t.sequence = sequence;
  t.group = group;
  t.tokens = {1, 2};
  t.response_mask = {0, 1};
  t.logprobs = {-1};
  t.version_runs = {{Version{version}, 1}};
  t.oldest_version = Version{version};
  t.reward = reward;
  return t;
}

inline ReplayOptions replay_options() {
  ReplayOptions options;
  options.rollout_batch_size = 4;
  options.group_size = 2;
  options.max_staleness = 2;
  options.rollouts_max = 8;
  return options;
}

/// "admitted", "duplicate", "full", or why it was refused.
inline std::string verdict(const Arrival& arrival) {
  switch (arrival.admission) {
    case AdmissionOutcome::kAdmitted: return "admitted";
    case AdmissionOutcome::kDuplicate: return "duplicate";
    case AdmissionOutcome::kFull: return "full";
    case AdmissionOutcome::kRefused: break;
  }
  return std::string(arrival.reason);
}

inline void check_accounts(const ReplayBuffer& buffer) {
  const ReplayStats& stats = buffer.stats();
  WC_CHECK(stats.admitted == buffer.buffered() + stats.taken + stats.expired + stats.given_up + stats.filtered);
}

}  // namespace weightcast
