// Loaded before the C library: the process's wall clock is off by the seconds that stand in the file of
// WEIGHTCAST_TEST_CLOCK, from the moment on that they are written. Clocks that do not jump are left alone.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

std::int64_t offset_s() {
  static const std::atomic<std::int64_t>* const offset = []() -> const std::atomic<std::int64_t>* {
    const char* const path = std::getenv("WEIGHTCAST_TEST_CLOCK");
    const int fd = path == nullptr ? -1 : ::open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return nullptr;
    void* const mapped = ::mmap(nullptr, sizeof(std::int64_t), PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    return mapped == MAP_FAILED ? nullptr : static_cast<const std::atomic<std::int64_t>*>(mapped);
  }();
  return offset == nullptr ? 0 : offset->load();
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* into) {
  const long result = ::syscall(SYS_clock_gettime, clock, into);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) into->tv_sec += offset_s();
  return static_cast<int>(result);
}

int gettimeofday(timeval* into, void*) {
  timespec now{};
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  into->tv_sec = now.tv_sec;
  into->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* into) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (into != nullptr) *into = now.tv_sec;
  return now.tv_sec;
}
}
