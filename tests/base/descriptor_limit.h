#pragma once

#include <sys/resource.h>

#include "base/result.h"

namespace weightcast {

/// While it lives, this process has no descriptor from `end` on.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t end) {
    WC_CHECK(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const rlimit few{end, before_.rlim_max};
    WC_CHECK(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace weightcast
