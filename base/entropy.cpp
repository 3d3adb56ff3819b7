#include "base/entropy.h"

#include <sys/random.h>

#include <cerrno>

#include "base/result.h"

namespace weightcast {

// Not std::random_device: Debian 12's asks glibc 2.36 for it.
std::uint64_t host_entropy() {
  std::uint64_t number = 0;
  ssize_t got = 0;
  do {
    got = ::getrandom(&number, sizeof number, 0);
  } while (got < 0 && errno == EINTR);
  WC_CHECK(got == sizeof number);
  return number;
}

}  // namespace weightcast
