#pragma once

#include <optional>
#include <string>
#include <type_traits>

#include "base/result.h"
#include "weightcast/weightcast.hpp"

namespace weightcast {

// For this project's own programs, which use the library as anybody does, but speak in Results.

[[nodiscard]] inline Error error_of(const wc::Error& thrown) {
  Op op = Op::kParse;
  while (to_string(op) != thrown.operation() && op != Op::kVerify) op = static_cast<Op>(static_cast<int>(op) + 1);
  if (to_string(op) != thrown.operation()) op = Op::kPlan;  // by the name of what was asked for (base/asked_error.h)
  // Error::message() says this again.
  const std::string lead = "cannot " + thrown.operation() + ": ";
  const std::string line = thrown.what();
  return Error{static_cast<Errc>(thrown.code() - 1), op, line.rfind(lead, 0) == 0 ? line.substr(lead.size()) : line};
}

/// The value of `call`, or the error that it throws.
template <typename Call>
[[nodiscard]] Result<std::invoke_result_t<Call>> attempt(const Call& call) {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Call>>) {
      call();
      return {};
    } else {
      return call();
    }
  } catch (const wc::Error& thrown) {
    return error_of(thrown);
  }
}

}  // namespace weightcast
