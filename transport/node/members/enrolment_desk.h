#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "transport/core/budget.h"
#include "transport/io/jobs.h"
#include "transport/security/enrolment.h"

namespace weightcast {

/// Who may have an enrolment begun: so many in all, and a part of that from one host, so that wrong tokens from one
/// host keep nobody else out. Pure.
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

/// Enrols workers for an origin, one after another on a pool thread: see enrol(). Bounds what strangers can make the
/// origin do. Loop thread only.
class EnrolmentDesk {
 public:
  static constexpr std::size_t kWaitingMax = 64;

  using Done = std::function<void(Result<Enrolled>)>;

  EnrolmentDesk(Jobs& jobs, std::filesystem::path directory) : jobs_(jobs), directory_(std::move(directory)) {}

  /// `host` is where the machine is. `done` runs once, later. Errors: those of enrol(); kBusy (too many ask at once, or
  /// too many from that host).
  void handle(EnrolmentRequest request, const std::string& host, Done done);

 private:
  void begin_next();

  Jobs& jobs_;
  const std::filesystem::path directory_;
  EnrolmentAllowance allowance_;
  std::deque<std::pair<EnrolmentRequest, Done>> waiting_;
  bool busy_ = false;
};

}  // namespace weightcast
