#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weightcast {

/// `text` with each occurrence of `from`, which is not empty, as `to`; occurrences do not overlap.
[[nodiscard]] std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

/// "normalizer" of a tokenizer.json: steps that change text before it is cut. Any thread may use it.
class Normalizer {
 public:
  /// Reads NFC, Prepend, Replace of a String, Sequence of these, and null. Errors: kUnsupported, which names another
  /// one, or says what is too much.
  [[nodiscard]] static Result<Normalizer> read(const nlohmann::json& json);

  /// `text` is valid UTF-8, and so is the result. `compose`: NFC is one of the steps, if it is. `begins`: Prepend is,
  /// too; text that goes on after bytes that are no text has no beginning of its own.
  [[nodiscard]] std::string apply(std::string_view text, bool compose, bool begins) const;

 private:
  struct Step {
    enum class Kind { kCompose, kPrepend, kReplace } kind = Kind::kCompose;
    std::string from, to;
  };
  [[nodiscard]] Status add(const nlohmann::json& json);

  std::vector<Step> steps_;
  std::size_t growth_ = 1;  // how many times as long text can become
};

}  // namespace weightcast
