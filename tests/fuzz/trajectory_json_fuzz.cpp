// Any line as a trajectory: what is not refused is written and read again as the same, and can be judged.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "trainer/tasks/trajectory/trajectory_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weightcast;
  const auto trajectory = read_trajectory({reinterpret_cast<const char*>(data), size});
  if (!trajectory) {
    WC_CHECK(!trajectory.error().detail.empty());
    return 0;
  }
  TrajectoryRules rules;
  rules.task = trajectory->task;
  rules.model_digest = trajectory->model_digest;
  rules.tokenizer_digest = trajectory->tokenizer_digest;
  rules.vocab_size = 1000;
  rules.tokens_max = 1000;
  const auto refusal = check_trajectory(*trajectory, rules, [](Version) { return VersionStanding::kPublished; });
  (void)trajectory->size_bytes();
  if (refusal) return 0;  // it may hold what JSON cannot, such as a logprob beyond FP32

  const auto again = read_trajectory(write_trajectory(*trajectory));
  WC_CHECK(again.has_value() && *again == *trajectory);
  return 0;
}
