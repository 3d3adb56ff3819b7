#include "tools/observe/otlp_exporter.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/steady_clock.h"

namespace weightcast {
namespace {

constexpr std::int64_t kHistoryTimeout_ms = 5000;

OtlpQueue::Outcome outcome_of(const Status& sent) {
  if (sent.has_value()) return OtlpQueue::Outcome::kSent;
  return sent.error().code == Errc::kUnsupported ? OtlpQueue::Outcome::kRefused : OtlpQueue::Outcome::kRetry;
}

}  // namespace

OtlpExporter::OtlpExporter(std::string state_dir, std::unique_ptr<OtlpCollector> collector,
                           std::function<void(const std::string&)> warn)
    : state_dir_(std::move(state_dir)),
      collector_(std::move(collector)),
      warn_(std::move(warn)),
      thread_([this] { run(); }) {}

OtlpExporter::~OtlpExporter() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    if (client_) client_->cancellation().request();
  }
  collector_->interrupt();
  changed_.notify_all();
  thread_.join();
}

bool OtlpExporter::stopping() {
  const std::scoped_lock lock(mutex_);
  return stopping_;
}

void OtlpExporter::run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLookEvery, [this] { return stopping_; })) {
    lock.unlock();
    look();
    while (const auto version = queue_.poll_version(steady_now())) {
      if (stopping()) return;
      send(*version);
    }
    count();
    lock.lock();
  }
}

Result<local::HistoryReply> OtlpExporter::history(std::uint64_t version) {
  if (!client_) {
    WC_ASSIGN(auto opened, client::Client::open(state_dir_, client::deadline_after(kHistoryTimeout_ms)));
    // All of its calls are one to whoever ends this object.
    static_cast<void>(opened->cancellation().begin());
    const std::scoped_lock lock(mutex_);
    client_ = std::move(opened);
  }
  return client_->history(version, client::deadline_after(kHistoryTimeout_ms));
}

void OtlpExporter::look() {
  // A daemon that does not answer is asked again.
  if (const auto all = history(0); all.has_value()) queue_.handle_history(steady_now(), all->publications);
}

void OtlpExporter::send(std::uint64_t version) {
  const auto publication = history(version);
  if (!publication.has_value() || publication->publications.empty()) {
    const bool is_gone = publication.has_value() || publication.error().code == Errc::kNotFound;
    queue_.handle_outcome(steady_now(), is_gone ? OtlpQueue::Outcome::kRefused : OtlpQueue::Outcome::kRetry);
    return;
  }
  const std::uint64_t dropped = queue_.dropped();
  const Status sent = collector_->send(*publication, kSendTimeout);
  if (!sent.has_value() && sent.error().code == Errc::kCancelled) return;
  queue_.handle_outcome(steady_now(), outcome_of(sent));
  count();
  if (sent.has_value() == !failing_) return;
  failing_ = !sent.has_value();
  if (failing_) {
    dropped_before_ = dropped;
    return warn_(fmt::format("spans of version {} are not sent: {}", version, sent.error().message()));
  }
  warn_(fmt::format("the collector takes spans again; those of {} publications were dropped",
                    queue_.dropped() - dropped_before_));
}

void OtlpExporter::count() {
  sent_ = queue_.sent();
  dropped_ = queue_.dropped();
}

}  // namespace weightcast
