#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weightcast {

/// The outcome of one check.
struct Finding {
  enum class Level : unsigned char {
    kOk,
    kWarning,  ///< a node runs, and is slower or gives up something
    kFault     ///< a node will not run, or nobody will reach it
  };

  Level level = Level::kOk;
  std::string check;        ///< "state-space": one word for programs, the same in every release
  std::string what;         ///< what was seen; of a fault what is wrong
  std::string remedy = {};  ///< what to do, the command first; "" where nothing is wrong
};

using Findings = std::vector<Finding>;

inline Finding ok(std::string check, std::string what) {
  return {Finding::Level::kOk, std::move(check), std::move(what)};
}
inline Finding warning(std::string check, std::string what, std::string remedy) {
  return {Finding::Level::kWarning, std::move(check), std::move(what), std::move(remedy)};
}
inline Finding fault(std::string check, std::string what, std::string remedy) {
  return {Finding::Level::kFault, std::move(check), std::move(what), std::move(remedy)};
}

}  // namespace weightcast
