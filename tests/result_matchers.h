#pragma once

#include <gmock/gmock.h>

#include "base/result.h"

namespace weightcast {

/// A Result that is no error.
MATCHER(Succeeds, "succeeds") {
  if (!arg.has_value()) *result_listener << arg.error().message();
  return arg.has_value();
}

/// A Result with this value.
MATCHER_P(Gives, value, "gives " + testing::PrintToString(value)) {
  return testing::ExplainMatchResult(Succeeds(), arg, result_listener) &&
         testing::ExplainMatchResult(testing::Eq(value), *arg, result_listener);
}

/// A Result that is an error of this code.
MATCHER_P(FailsWith, code, std::string("fails with code ") + std::string(to_string(code))) {
  if (arg.has_value()) return false;
  *result_listener << to_string(arg.error().code) << ", " << arg.error().message();
  return arg.error().code == code;
}

/// And whose detail has these words.
MATCHER_P2(FailsWith, code, words, "fails with code " + std::string(to_string(code)) + ", and says that") {
  return testing::ExplainMatchResult(FailsWith(code), arg, result_listener) &&
         testing::ExplainMatchResult(testing::HasSubstr(words), arg.error().detail, result_listener);
}

/// And others.
MATCHER_P3(FailsWith, code, words, others, "fails with code " + std::string(to_string(code)) + ", and says both") {
  return testing::ExplainMatchResult(FailsWith(code, words), arg, result_listener) &&
         testing::ExplainMatchResult(testing::HasSubstr(others), arg.error().detail, result_listener);
}

}  // namespace weightcast
