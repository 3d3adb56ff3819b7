#pragma once

#include <nlohmann/json.hpp>

#include "bench/fleet/fleet_flags.h"

namespace weightcast::bench {

/// How long TensorPublisher::publish() holds a trainer up.
struct PublishBenchResult {
  std::uint64_t tensor_bytes = 0;
  std::size_t tensors = 0;
  // Medians over the repetitions, which take turns. Each is wall-clock time of one thread.
  double copy_s = 0;     ///< memcpy of every tensor into memory of this process that has been touched before
  double publish_s = 0;  ///< publish(), into shared memory that was reserve()d
  double first_publish_s = 0;
  double taken_s = 0;  ///< from the start of publish() until the origin had its own copy; the trainer does not wait

  [[nodiscard]] double ratio() const { return publish_s / copy_s; }
};

struct PublishBenchOptions {
  std::uint64_t tensor_bytes = kGiB;
  std::size_t tensors = 64;
  std::uint32_t repetitions = 5;
  FleetFlags flags;
};

/// An origin without workers, on loopback. Errors: kInvalidArgument (less than an element per tensor); those of the
/// fleet and of TensorPublisher.
[[nodiscard]] Result<PublishBenchResult> run_publish_bench(const PublishBenchOptions& options);
[[nodiscard]] nlohmann::json to_json(const PublishBenchResult& result);

}  // namespace weightcast::bench
