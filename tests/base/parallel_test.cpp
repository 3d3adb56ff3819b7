#include "base/parallel.h"

#include <gmock/gmock.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>

namespace weightcast {
namespace {

/// While it lives, no thread can be started: each would want a stack that no address space has room for.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    ::pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    ::pthread_getattr_default_np(&huge);
    ::pthread_attr_setstacksize(&huge, std::size_t{1} << 47);
    EXPECT_EQ(::pthread_setattr_default_np(&huge), 0);
    ::pthread_attr_destroy(&huge);
  }
  ~NoMoreThreads() {
    ::pthread_setattr_default_np(&before_);
    ::pthread_attr_destroy(&before_);
  }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;

 private:
  pthread_attr_t before_;
};

std::vector<int> calls_of(std::size_t count, unsigned threads_max) {
  std::vector<std::atomic<int>> calls(count);
  for_each_index(count, threads_max, [&](std::size_t i) { ++calls[i]; });
  return {calls.begin(), calls.end()};
}

TEST(Parallel, EachIndexIsCalledOnceWhateverTheNumberOfThreads) {
  for (const unsigned threads : {0u, 1u, 2u, 7u}) {
    EXPECT_THAT(calls_of(1000, threads), testing::Each(1)) << threads;
    EXPECT_THAT(calls_of(1, threads), testing::Each(1)) << threads;
    EXPECT_THAT(calls_of(0, threads), testing::IsEmpty()) << threads;
  }
}

TEST(Parallel, WithoutMoreThreadsTheCallerDoesTheWork) {
  const NoMoreThreads none;
  std::vector<std::jthread> threads;
  EXPECT_FALSE(add_thread(threads, [] {}));
  EXPECT_TRUE(threads.empty());
  EXPECT_THAT(calls_of(1000, 4), testing::Each(1));
}

TEST(Parallel, UsableCoresAreThoseOfTheAffinity) {
  EXPECT_GE(usable_cores(), 1u);
  std::jthread([] {
    cpu_set_t cores;
    ASSERT_EQ(::sched_getaffinity(0, sizeof cores, &cores), 0);
    std::size_t first = 0;
    while (CPU_ISSET(first, &cores) == 0) ++first;
    CPU_ZERO(&cores);
    CPU_SET(first, &cores);
    ASSERT_EQ(::sched_setaffinity(0, sizeof cores, &cores), 0);
    EXPECT_EQ(usable_cores(), 1u);
  }).join();
}

}  // namespace
}  // namespace weightcast
