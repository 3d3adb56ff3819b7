#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/time.h"

namespace wc {
class Client;
}

namespace weightcast {

/// Tells the origin on this host which workers serve, in the learner's name: those that it wants to roll out get
/// versions, the others wait on standby. While it is connected the origin promotes nobody by itself. What it has said
/// holds in the origin after it has gone. It waits for an answer for a second at most, and then not again for ten. One
/// thread uses it.
class ServingControl {
 public:
  /// `warn` gets a line when something goes wrong for the first time.
  ServingControl(std::string state_dir, std::function<void(std::string)> warn);
  ~ServingControl();

  /// Whether each worker is wanted. Says what has changed, and all of it now and then: an origin that was started anew
  /// knows nothing.
  void tell(Instant now, const std::map<std::string, bool>& wanted);

 private:
  void tell_one(const std::string& name, bool wanted);

  const std::string state_dir_;
  const std::function<void(std::string)> warn_;
  std::unique_ptr<wc::Client> client_;
  std::map<std::string, bool> told_;
  std::optional<Instant> again_at_;  // all is said again
  std::optional<Instant> retry_at_;  // after an origin that did not answer
  std::set<std::string> unknown_;    // to the origin, and warned of
  bool is_failing_ = false;
};

}  // namespace weightcast
