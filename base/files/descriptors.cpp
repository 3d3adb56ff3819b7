#include "base/files/descriptors.h"

#include <sys/resource.h>

#include <cerrno>

namespace weightcast {

Status raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return fail_errno(errno, Op::kConfigure, "the limit of open files");
  if (limit.rlim_cur >= limit.rlim_max) return {};
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) == 0) return {};
  return fail_errno(errno, Op::kConfigure, "raising the limit of open files to that of the system");
}

}  // namespace weightcast
