#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/digest/checksum.h"
#include "base/units.h"
#include "tests/patch/safetensors_bytes.h"

namespace weightcast {

/// Reads a node's current snapshot again and again, as an inference engine does: resolves the link once, then reads
/// what it names. Every read must give one of the published snapshots, whole.
class Reader {
 public:
  explicit Reader(std::string state_dir) : thread_([this, dir = std::move(state_dir)] { run(dir); }) {}
  ~Reader() { stop(); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  void stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  /// Returns when it has read one more time from beginning to end.
  void read_once_more() const {
    for (const unsigned before = reads_; reads_ < before + 2;)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  /// After stop().
  [[nodiscard]] const std::map<Checksum, unsigned>& seen() const { return seen_; }

 private:
  void run(const std::string& dir) {
    while (!stopping_) {
      const int fd = ::open((dir + "/current/model.safetensors").c_str(), O_RDONLY | O_CLOEXEC);
      if (fd >= 0) {
        ChecksumStream digest;
        std::string buffer(kMiB, '\0');
        for (ssize_t n = 0; (n = ::read(fd, buffer.data(), buffer.size())) > 0;) {
          digest.update(as_bytes(std::string_view(buffer).substr(0, std::size_t(n))));
        }
        ::close(fd);
        ++seen_[digest.digest()];
        ++reads_;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
  }

  std::atomic<bool> stopping_{false};
  std::atomic<unsigned> reads_{0};
  std::map<Checksum, unsigned> seen_;
  std::thread thread_;
};

}  // namespace weightcast
