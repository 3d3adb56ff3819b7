// With versions in memory: from time to time a whole one is written to the disk, which is what a power cut leaves.
#include <algorithm>
#include <ranges>
#include <utility>

#include "transport/io/log.h"
#include "transport/io/store/kept_version.h"
#include "transport/io/store/store.h"

namespace weightcast {
namespace {

constexpr Duration kRetry = std::chrono::seconds(10);

}  // namespace

Store::CompleteRef Store::due_to_keep() const {
  for (const auto& [version, complete] : std::views::reverse(complete_)) {
    if (complete->lost) continue;
    const bool is_due =
        kept_ == kNoVersion || (version > kept_ && version.value - kept_.value >= options_.keep_durable_every);
    return is_due ? complete : nullptr;
  }
  return nullptr;
}

void Store::consider_keeping() {
  if (!layout_.in_memory() || options_.keep_durable_every == 0 || keeping_ || keep_timer_.armed()) return;
  if (due_to_keep() != nullptr) keep_timer_.arm(loop_.now());
}

void Store::start_keeping() {
  const CompleteRef complete = due_to_keep();
  if (complete == nullptr) return;
  ++complete->users;
  keeping_ = Keeping{complete, nullptr};
  keep_work_.run([layout = layout_, record = record_of(*complete),
                  files = complete->files] { return KeptCopy::begin(layout, record, files); },
                 [this](const Result<std::shared_ptr<KeptCopy>>& copy) {
                   if (!copy.has_value()) return end_keeping(copy.error());
                   keeping_->copy = *copy;
                   go_on_keeping();
                 });
}

void Store::go_on_keeping() {
  struct Piece {
    Status status;
    bool ended = false;
    Duration took{};
  };
  keep_work_.run(
      [&loop = loop_, copy = keeping_->copy] {
        const Instant began_at = loop.now();
        Piece piece;
        piece.ended = copy->complete();
        piece.status = piece.ended ? copy->finish() : copy->copy_piece();
        if (!piece.status.has_value()) copy->discard();
        piece.took = loop.now() - began_at;
        return piece;
      },
      [this](const Piece& piece) {
        if (!piece.status.has_value() || piece.ended) return end_keeping(piece.status);
        const double rest_s = to_seconds(piece.took) * (1 / options_.keep_disk_share - 1);
        keep_timer_.arm(loop_.now() + from_seconds(rest_s));
      });
}

void Store::end_keeping(const Status& status) {
  const CompleteRef complete = std::exchange(keeping_, std::nullopt)->complete;
  const Version version = complete->stored.manifest.version;
  --complete->users;
  if (!status.has_value()) {
    log_error("store: version {} cannot be kept on the disk: {}", version.value, status.error().message());
    if (status.error().code == Errc::kCorrupt && !complete->lost && !is_forgotten(complete)) {
      return give_up_lost(complete, status.error());
    }
    return keep_timer_.arm(loop_.now() + kRetry);
  }
  kept_ = version;
  for (const auto& [each, there] : complete_) there->stored.durable = each == kept_;
  // Its number may come back with other bytes.
  if (complete->lost) {
    kept_ = kNoVersion;
    if (complete_.contains(version)) complete_.at(version)->stored.durable = false;
    take_out_later(version, complete->files->table());
  }
  forget_old();
  consider_keeping();
}

}  // namespace weightcast
