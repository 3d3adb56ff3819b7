#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <utility>

#include "security/enrolment.h"
#include "transport/io/jobs.h"

namespace weightcast {

/// Enrols workers for an origin, one after another on a pool thread: see enrol(). Bounds what strangers can make the
/// origin do. Loop thread only.
class EnrolmentDesk {
 public:
  static constexpr std::size_t kWaitingMax = 64;
  static constexpr double kPerSecond = 50;  ///< on average; so many at once, too

  using Done = std::function<void(Result<Enrolled>)>;

  EnrolmentDesk(Jobs& jobs, std::filesystem::path directory) : jobs_(jobs), directory_(std::move(directory)) {}

  /// `done` runs once, later. Errors: those of enrol(); kBusy (too many ask at once).
  void handle(EnrolmentRequest request, Done done);

 private:
  [[nodiscard]] bool may_begin();
  void begin_next();

  Jobs& jobs_;
  const std::filesystem::path directory_;
  std::deque<std::pair<EnrolmentRequest, Done>> waiting_;
  bool busy_ = false;
  double allowance_ = kPerSecond;
  Instant counted_at_{};
};

}  // namespace weightcast
