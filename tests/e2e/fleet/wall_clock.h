#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "tests/patch/temp_dir.h"

namespace weightcast {

/// A wall clock that a test sets. Programs that words() start go by it, and by the host's other clocks.
class WallClock {
 public:
  WallClock() { set(0); }

  /// Before a program's own words.
  [[nodiscard]] std::vector<std::string> words() const {
    return {"/usr/bin/env", std::string("LD_PRELOAD=") + WEIGHTCAST_CLOCK_SHIM,
            "WEIGHTCAST_TEST_CLOCK=" + temp_.file("offset")};
  }
  /// From now on it is off by so many seconds.
  void set(std::int64_t seconds) const {
    // In place: the programs have the file mapped.
    std::fstream file(temp_.file("offset"), std::ios::in | std::ios::out | std::ios::binary);
    if (!file.is_open()) file.open(temp_.file("offset"), std::ios::out | std::ios::binary);
    file.write(reinterpret_cast<const char*>(&seconds), sizeof seconds);
    WC_CHECK(file.good());
  }

 private:
  TempDir temp_;
};

}  // namespace weightcast
