#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "client/client.h"
#include "tools/observe/otlp_collector.h"
#include "tools/observe/otlp_queue.h"

namespace weightcast {

/// Sends the spans of each publication that ends to a collector: see OtlpQueue. One thread asks the origin by its local
/// socket what has ended, kLookEvery, and waits for the collector. So a collector that is slow, hangs or refuses costs
/// the node nothing, and holds up at most OtlpQueue::kWaitingMax numbers of versions.
class OtlpExporter {
 public:
  static constexpr Duration kLookEvery = std::chrono::seconds(2);
  static constexpr Duration kSendTimeout = std::chrono::seconds(10);

  struct Counts {
    std::uint64_t sent = 0;     ///< publications
    std::uint64_t dropped = 0;  ///< that the collector refused, or that waited too long for it
  };

  /// The daemon of `state_dir` need not run yet. `warn` gets a line, on the exporter's thread, when the collector
  /// begins to fail and when it takes spans again.
  OtlpExporter(std::string state_dir, std::unique_ptr<OtlpCollector> collector,
               std::function<void(const std::string&)> warn);
  /// Sends nothing more.
  ~OtlpExporter();
  OtlpExporter(const OtlpExporter&) = delete;
  OtlpExporter& operator=(const OtlpExporter&) = delete;

  /// Any thread.
  [[nodiscard]] Counts counts() const { return {sent_, dropped_}; }

 private:
  void run();
  [[nodiscard]] bool stopping();
  /// What the origin remembers: of `version`, or with 0 of all. Its daemon may be starting, or opening its store again.
  [[nodiscard]] Result<local::HistoryReply> history(std::uint64_t version);
  void look();
  void send(std::uint64_t version);
  void count();

  const std::string state_dir_;
  const std::unique_ptr<OtlpCollector> collector_;
  const std::function<void(const std::string&)> warn_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // guarded

  std::atomic<std::uint64_t> sent_ = 0, dropped_ = 0;

  // Of the thread alone; client_ is set under the mutex.
  std::unique_ptr<client::Client> client_;
  OtlpQueue queue_{
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count()};
  std::uint64_t dropped_before_ = 0;  // when the collector began to fail
  bool failing_ = false;

  std::thread thread_;  // the last member: it uses the others
};

}  // namespace weightcast
