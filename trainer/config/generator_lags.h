#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weightcast {

/// By how many training steps the built-in generator hears of a publication late: one number, or several of which each
/// group of rollouts draws one. A number that stands there twice is drawn twice as often.
class GeneratorLags {
 public:
  /// Reads "0", or "1,2,2,3". Errors: kInvalidArgument (no number, one above 64, more than 256 of them).
  [[nodiscard]] static Result<GeneratorLags> parse(std::string_view text);

  [[nodiscard]] std::uint64_t least() const { return least_; }
  [[nodiscard]] std::uint64_t most() const { return most_; }
  /// Of group number `group` of a run with that seed.
  [[nodiscard]] std::uint64_t of_group(std::uint64_t seed, std::uint64_t group) const;

 private:
  explicit GeneratorLags(std::vector<std::uint64_t> lags);

  std::vector<std::uint64_t> lags_;
  std::uint64_t least_, most_;
};

}  // namespace weightcast
