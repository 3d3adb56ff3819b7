#include "worker/engine/version_source.h"

#include "patch/snapshot/tensor.h"
#include "weightcast/weightcast.hpp"

namespace weightcast {
namespace {

constexpr std::chrono::seconds kAnswerTime{5};

Error error_of(const wc::Error& error) {
  const Errc code = error.code() == WC_NOT_FOUND   ? Errc::kNotFound
                    : error.code() == WC_CANCELLED ? Errc::kCancelled
                    : error.code() == WC_TIMED_OUT ? Errc::kTimedOut
                    : error.code() == WC_BUSY      ? Errc::kBusy
                    : error.code() == WC_TOO_FAR   ? Errc::kTooFar
                                                   : Errc::kIo;
  return fail(code, Op::kInstall, error.what());
}

class Subscription final : public VersionSource {
 public:
  explicit Subscription(std::string state_directory) : state_directory_(std::move(state_directory)) {}

  Result<std::optional<VersionEvent>> next(std::chrono::milliseconds timeout) override {
    try {
      if (!subscription_) subscription_.emplace(state_directory_, kAnswerTime);
      const std::optional<wc::Event> event = subscription_->next(timeout);
      if (!event) return std::optional<VersionEvent>();
      const VersionName name{event->run, Version{event->version}};
      switch (event->kind) {
        case WC_EVENT_INSTALLED: return std::optional(VersionEvent{VersionEvent::Kind::kInstalled, name});
        case WC_EVENT_PREPARING: return std::optional(VersionEvent{VersionEvent::Kind::kPreparing, name});
        case WC_EVENT_DISCONNECTED: return std::optional(VersionEvent{VersionEvent::Kind::kDisconnected, name});
      }
      return std::optional<VersionEvent>();  // of a newer daemon
    } catch (const wc::Error& error) {
      subscription_.reset();
      return error_of(error);
    }
  }

  Result<PinnedVersion> pin(VersionName name) override {
    if (!subscription_) return fail(Errc::kClosed, Op::kInstall, "the daemon has closed the connection");
    try {
      const wc::Event event = subscription_->acquire(name.version.value, kAnswerTime);
      if (event.run == name.run) return PinnedVersion{event.directory, event.digest};
      subscription_->release(event.version, kAnswerTime);
      return fail(Errc::kNotFound, Op::kInstall, "the version is of another run now");
    } catch (const wc::Error& error) {
      return error_of(error);
    }
  }

  Result<VersionList> changes(VersionName from, const std::string& digest, VersionName pinned) override {
    if (!subscription_) return fail(Errc::kClosed, Op::kInstall, "the daemon has closed the connection");
    try {
      const auto list = std::make_shared<const wc::ChangeList>(
          subscription_->changes(from.version.value, digest, pinned.version.value, kAnswerTime));
      VersionList result{{}, list};
      for (std::size_t i = 0; i < list->size(); ++i) {
        const wc_change& change = (*list)[i];
        const auto bytes = [&](const void* at, std::uint64_t width) {
          return Bytes(static_cast<const std::byte*>(at), change.count * width);
        };
        result.tensors.push_back({change.name, change.dtype, bytes(change.indices, change.index_bytes),
                                  change.index_bytes, bytes(change.values, dtype_bits(change.dtype) / 8)});
      }
      return result;
    } catch (const wc::Error& error) {
      return error_of(error);
    }
  }

  void unpin(VersionName name) override {
    if (!subscription_) return;
    try {
      subscription_->release(name.version.value, kAnswerTime);
    } catch (const wc::Error&) {
      // The connection ended, and the pin with it.
    }
  }

 private:
  const std::string state_directory_;
  std::optional<wc::Subscription> subscription_;
};

}  // namespace

std::unique_ptr<VersionSource> subscribe_to_versions(std::string state_directory) {
  return std::make_unique<Subscription>(std::move(state_directory));
}

}  // namespace weightcast
