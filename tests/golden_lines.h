#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace weightcast {

/// The lines of a golden file that tests/oracles/golden.py wrote: `committed`, or the one that the oracle has just
/// made.
inline std::vector<nlohmann::json> golden_lines(const std::string& committed) {
  const char* made = std::getenv("WEIGHTCAST_GOLDEN_LINES");
  const std::string path = made != nullptr ? made : committed;
  std::ifstream file(path);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  EXPECT_FALSE(lines.empty()) << path;
  return lines;
}

}  // namespace weightcast
