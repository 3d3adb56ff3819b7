#include "tasks/trajectory_wire.h"

#include <fmt/format.h>

#include "proto/rollout.pb.h"

namespace weightcast {
namespace {

// Tags of Batch's members, both of wire type 2.
constexpr char kRunTag = 1 << 3 | 2;
constexpr char kRolloutTag = 2 << 3 | 2;

void append_member(std::string& out, char tag, std::string_view bytes) {
  out += tag;
  std::size_t size = bytes.size();
  for (; size >= 0x80; size >>= 7) out += static_cast<char>(size | 0x80);
  out += static_cast<char>(size);
  out += bytes;
}

Trajectory from(const rollout::Trajectory& message) {
  Trajectory t;
  t.task = message.task();
  t.worker = message.worker();
  t.sequence = message.sequence();
  t.group = message.group();
  t.model_digest = message.model_digest();
  t.tokenizer_digest = message.tokenizer_digest();
  t.tokens.assign(message.tokens().begin(), message.tokens().end());
  t.response_mask.assign(message.response_mask().begin(), message.response_mask().end());
  t.logprobs.assign(message.logprobs().begin(), message.logprobs().end());
  for (const rollout::VersionRun& run : message.version_runs()) {
    t.version_runs.push_back({Version{run.version()}, run.tokens()});
  }
  t.oldest_version = Version{message.oldest_version()};
  t.reward = message.reward();
  if (message.has_success()) t.success = message.success();
  for (const rollout::Turn& turn : message.turns()) t.turns.push_back({turn.begin(), turn.end(), turn.reward()});
  for (const rollout::Metadata& entry : message.metadata()) t.metadata[entry.name()] = entry.value();
  return t;
}

template <typename Message>
Result<Message> parse(std::string_view bytes, std::string_view what) {
  Message message;
  if (message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return message;
  return fail(Errc::kCorrupt, Op::kParse, fmt::format("{}: no such message of proto/rollout.proto", what));
}

}  // namespace

std::string encode_trajectory(const Trajectory& t) {
  rollout::Trajectory message;
  message.set_task(t.task);
  message.set_worker(t.worker);
  message.set_sequence(t.sequence);
  message.set_group(t.group);
  message.set_model_digest(t.model_digest);
  message.set_tokenizer_digest(t.tokenizer_digest);
  message.mutable_tokens()->Add(t.tokens.begin(), t.tokens.end());
  message.set_response_mask(t.response_mask.data(), t.response_mask.size());
  message.mutable_logprobs()->Add(t.logprobs.begin(), t.logprobs.end());
  for (const VersionRun& run : t.version_runs) {
    rollout::VersionRun& added = *message.add_version_runs();
    added.set_version(run.version.value);
    added.set_tokens(run.tokens);
  }
  message.set_oldest_version(t.oldest_version.value);
  message.set_reward(t.reward);
  if (t.success) message.set_success(*t.success);
  for (const Turn& turn : t.turns) {
    rollout::Turn& added = *message.add_turns();
    added.set_begin(turn.begin);
    added.set_end(turn.end);
    added.set_reward(turn.reward);
  }
  for (const auto& [name, value] : t.metadata) {
    rollout::Metadata& added = *message.add_metadata();
    added.set_name(name);
    added.set_value(value);
  }
  return message.SerializeAsString();
}

Result<Trajectory> decode_trajectory(std::string_view bytes) {
  WC_ASSIGN(const rollout::Trajectory message, parse<rollout::Trajectory>(bytes, "a rollout"));
  return from(message);
}

std::string encode_batch(std::string_view run, std::span<const std::string> rollouts) {
  std::string bytes;
  append_member(bytes, kRunTag, run);
  for (const std::string& one : rollouts) append_member(bytes, kRolloutTag, one);
  return bytes;
}

Result<RolloutBatch> decode_batch(std::string_view bytes) {
  WC_ASSIGN(const rollout::Batch message, parse<rollout::Batch>(bytes, "a batch of rollouts"));
  if (static_cast<std::size_t>(message.rollouts_size()) > kBatchRolloutsMax) {
    return fail(Errc::kTooLarge, Op::kParse,
                fmt::format("a batch of {} rollouts; at most {}", message.rollouts_size(), kBatchRolloutsMax));
  }
  RolloutBatch batch{message.run(), {}};
  for (const rollout::Trajectory& one : message.rollouts()) batch.rollouts.push_back(from(one));
  return batch;
}

}  // namespace weightcast
