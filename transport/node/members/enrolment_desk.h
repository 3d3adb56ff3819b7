#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "transport/core/budget.h"
#include "transport/io/jobs.h"
#include "transport/security/enrolment.h"

namespace weightcast {

/// Whose enrolment may begin, of those whose token counts: so many in all, and a part of that from one host. Pure.
class EnrolmentAllowance {
 public:
  static constexpr double kPerSecond = 50;  ///< on average; so many at once, too
  // Machines behind one address enrol together, too.
  static constexpr double kPerSecondOfHost = 25;
  static constexpr double kBurstOfHost = 50;
  static constexpr std::size_t kHostsMax = 4096;  ///< then all are forgotten

  [[nodiscard]] bool spend(Instant now, const std::string& host);

 private:
  Budget all_{kPerSecond, kPerSecond};
  std::map<std::string, Budget> hosts_;
};

/// Enrols workers for an origin, one after another on a pool thread: see enrol(). Before that it looks at the tokens of
/// all who have asked meanwhile: guesses cost one look, and neither an allowance nor a place of those whose token
/// counts, wherever they come from. Loop thread only.
class EnrolmentDesk {
 public:
  static constexpr std::size_t kWaitingMax = 64;  ///< whose token counts
  static constexpr std::size_t kAskedMax = 1024;  ///< at whose token nobody has looked, as many as may be unidentified

  using Done = std::function<void(Result<Enrolled>)>;

  EnrolmentDesk(Jobs& jobs, std::filesystem::path directory) : jobs_(jobs), directory_(std::move(directory)) {}

  /// `host` is where the machine is. `done` runs once, later. Errors: those of enrol(); kBusy (too many ask at once, or
  /// too many from that host).
  void handle(EnrolmentRequest request, const std::string& host, Done done);

 private:
  struct Asked {
    EnrolmentRequest request;
    std::string host;
    Done done;
  };
  void look_at_tokens();
  void admit(Asked asked);
  void begin_next();

  Jobs& jobs_;
  const std::filesystem::path directory_;
  EnrolmentAllowance allowance_;
  std::vector<Asked> asked_;
  std::deque<std::pair<EnrolmentRequest, Done>> waiting_;
  bool looking_ = false, busy_ = false;
};

}  // namespace weightcast
