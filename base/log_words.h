#pragma once

#include <array>

#include "base/log_line.h"
#include "base/words.h"

namespace weightcast {

constexpr auto words_of(LogFormat) {
  return std::array{Word<LogFormat>{LogFormat::kText, "text"}, Word<LogFormat>{LogFormat::kJson, "json"}};
}

}  // namespace weightcast
