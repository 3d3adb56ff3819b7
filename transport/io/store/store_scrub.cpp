// Reads the newest version at a bounded rate: a step touches the changed cells alone, so nobody else would notice what
// a disk, memory or another program has done to the rest.
#include <fmt/format.h>

#include <algorithm>

#include "transport/io/log.h"
#include "transport/io/store/readable.h"
#include "transport/io/store/store_impl.h"

namespace weightcast {
namespace {

constexpr std::size_t kLeavesPerPiece = 16;
constexpr Duration kRestMin = std::chrono::milliseconds(200);

}  // namespace

/// It has become current: all of it is to be looked at. What comes next begins where the last look ended, so that all
/// files come to be read also where versions come faster than one of them is.
void StoreImpl::scrub_from_now_on(const CompleteRef& complete) {
  if (options_.scrub_share <= 0 || !complete->stored.leaves) return;
  leaves_to_scrub_ = complete->stored.leaves->size();
  if (!scrubbing_ && !scrub_timer_.armed()) scrub_timer_.arm(loop_.now() + kRestMin);
}

void StoreImpl::scrub() {
  const auto found = complete_.find(newest().payload.version);
  if (leaves_to_scrub_ == 0 || found == complete_.end() || !found->second->stored.leaves) return;
  const CompleteRef complete = found->second;
  const std::size_t leaves = complete->stored.leaves->size();
  if (leaves == 0) return;
  struct Look {
    Status status;
    Duration took{};
  };
  auto look = std::make_shared<Look>();
  const std::size_t first = next_scrubbed_ % leaves;
  const std::size_t count = std::min({kLeavesPerPiece, leaves - first, leaves_to_scrub_});
  leaves_to_scrub_ -= count;
  next_scrubbed_ = first + count;
  scrubbing_ = true;
  ++complete->users;
  scrub_work_.run(
      [&loop = loop_, files = complete->files, sums = complete->stored.leaves, first, count, look] {
        const Instant began_at = loop.now();
        for (std::size_t leaf = first; leaf < first + count && look->status.has_value(); ++leaf) {
          const Result<std::uint64_t> sum = leaf_sum(*files, leaf);
          if (!sum.has_value()) {
            look->status = sum.error();
          } else if (*sum != (*sums)[leaf]) {
            look->status = fail(Errc::kCorrupt, Op::kVerify,
                                fmt::format("its block {} of {} is not what was written there", leaf, sums->size()));
          }
        }
        look->took = loop.now() - began_at;
      },
      [this, complete, look] {
        scrubbing_ = false;
        --complete->users;
        const bool is_ours = !is_forgotten(complete) && !complete->lost;
        if (is_ours && !look->status.has_value() && is_proven_wrong(look->status.error())) {
          return give_up_lost(complete, look->status.error());
        }
        if (!look->status.has_value()) log_warning("store: {}", look->status.error().message());
        forget_old();
        if (leaves_to_scrub_ == 0) return;
        const double rest_s = to_seconds(look->took) * (1 / options_.scrub_share - 1);
        scrub_timer_.arm(loop_.now() + std::max(from_seconds(rest_s), kRestMin));
      });
}

}  // namespace weightcast
