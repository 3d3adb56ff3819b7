// Any body of POST /v1/rollouts, of either kind by its first byte: nothing that is read is beyond the limits, each
// rollout that is read is written and read again as the same, and JSON's rollouts are those that a tree of it has.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json_text.h"
#include "trainer/intake/rollout_bodies.h"
#include "trainer/tasks/trajectory/trajectory_wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weightcast;
  if (size == 0) return 0;
  const bool is_json = data[0] == 'j';
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  constexpr TrajectoryLimits kLimits{.tokens_max = 50, .metadata_bytes_max = 100};
  auto bodies = RolloutBodies::open(is_json ? "application/json" : "application/x-protobuf", body, kLimits);
  if (!bodies.has_value()) {
    WC_CHECK(!bodies.error().detail.empty());
    return 0;
  }
  WC_CHECK(bodies->size() <= kBatchRolloutsMax);
  if (is_json) {
    const nlohmann::json tree = parse_json(body);
    const RolloutBatch batch = split_json_batch(body).value();
    // A name that is written with escapes is none of ours, and is one in a tree.
    if (tree.contains("rollouts") && tree["rollouts"].size() == batch.rollouts.size()) {
      for (std::size_t i = 0; i < batch.rollouts.size(); ++i) {
        WC_CHECK(nlohmann::json::parse(batch.rollouts[i]) == tree["rollouts"][i]);
      }
    }
  }
  std::size_t count = 0;
  while (const auto next = bodies->next()) {
    ++count;
    if (!next->has_value()) continue;
    const Trajectory& t = **next;
    WC_CHECK(t.tokens.size() <= kLimits.tokens_max && t.response_mask.size() <= kLimits.tokens_max);
    WC_CHECK(t.logprobs.size() <= kLimits.tokens_max && t.turns.size() <= kLimits.tokens_max);
    WC_CHECK(t.version_runs.size() <= kLimits.tokens_max && t.group.size() <= kLimits.metadata_bytes_max);
    const std::string bytes = encode_trajectory(t);
    WC_CHECK(encode_trajectory(decode_trajectory(bytes, kLimits).value()) == bytes);
  }
  WC_CHECK(count == bodies->size());
  return 0;
}
