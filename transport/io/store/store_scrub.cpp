// Reads each version once at a bounded rate, the newest first: a step touches the changed cells alone, so nobody else
// would notice what a disk, memory or another program has done to the rest.
#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "transport/io/log.h"
#include "transport/io/store/files/readable.h"
#include "transport/io/store/files/snapshot_check.h"
#include "transport/io/store/store.h"

namespace weightcast {
namespace {

constexpr std::size_t kLeavesPerPiece = 16;
constexpr Duration kRestMin = std::chrono::milliseconds(200);
// A disk that could not be read may be later.
constexpr Duration kReadAgain = std::chrono::seconds(1);

}  // namespace

/// It has become current: all of it is to be looked at. It begins where the last look ended, so that all files come to
/// be read also where versions come faster than one of them is.
void Store::scrub_from_now_on(const CompleteRef& complete) {
  if (options_.scrub_share <= 0 || !complete->stored.leaves) return;
  complete->scrub_left = complete->stored.leaves->size();
  complete->scrub_at = next_scrubbed_;
  if (!scrubbing_ && !scrub_timer_.armed()) scrub_timer_.arm(loop_.now() + kRestMin);
}

/// The version of which something has not been looked at: the newest, or who has to wait least. Null if there is none.
Store::CompleteRef Store::next_to_scrub() const {
  CompleteRef next;
  for (const auto& [_, complete] : std::views::reverse(complete_)) {
    if (complete->scrub_left == 0 || complete->lost) continue;
    if (complete->scrub_from <= loop_.now()) return complete;
    if (!next || complete->scrub_from < next->scrub_from) next = complete;
  }
  return next;
}

/// Nothing is known of `count` of its leaves, `first` and the next ones: they are looked at once more, later.
void Store::scrub_again(Complete& complete, std::size_t first, std::size_t count, const Error& why) {
  complete.scrub_at = first;
  complete.scrub_left += count;
  // Once, as long as the disk goes on so.
  if (complete.scrub_from == Instant{}) {
    log_warning("store: version {} could not be searched for rot: {}; trying again every {:.3g} s",
                complete.stored.manifest.version.value, why.message(), to_seconds(kReadAgain));
  }
  complete.scrub_from = loop_.now() + kReadAgain;
}

void Store::scrub() {
  const CompleteRef complete = next_to_scrub();
  if (!complete) return;
  if (complete->scrub_from > loop_.now()) return scrub_timer_.arm(complete->scrub_from);
  const std::size_t leaves = complete->stored.leaves->size();
  struct Look {
    Status status;
    Duration took{};
  };
  const std::size_t first = complete->scrub_at % leaves;
  const std::size_t count = std::min({kLeavesPerPiece, leaves - first, complete->scrub_left});
  complete->scrub_left -= count;
  next_scrubbed_ = complete->scrub_at = first + count;
  scrubbing_ = true;
  ++complete->users;
  scrub_work_.run(
      [&loop = loop_, files = complete->files, sums = complete->stored.leaves, first, count] {
        const Instant began_at = loop.now();
        Look look;
        for (std::size_t leaf = first; leaf < first + count && look.status.has_value(); ++leaf) {
          const Result<std::uint64_t> sum = leaf_sum(*files, leaf);
          if (!sum.has_value()) {
            look.status = sum.error();
          } else if (*sum != (*sums)[leaf]) {
            look.status = fail(Errc::kCorrupt, Op::kVerify,
                               fmt::format("its block {} of {} is not what was written there", leaf, sums->size()));
          }
        }
        look.took = loop.now() - began_at;
        return look;
      },
      [this, complete, first, count](const Look& look) {
        scrubbing_ = false;
        --complete->users;
        const bool is_ours = !is_forgotten(complete) && !complete->lost;
        if (is_ours && !look.status.has_value() && is_proven_wrong(look.status.error())) {
          return give_up_lost(complete, look.status.error());
        }
        if (is_ours && !look.status.has_value()) scrub_again(*complete, first, count, look.status.error());
        if (look.status.has_value()) complete->scrub_from = {};
        forget_old();
        const CompleteRef next = next_to_scrub();
        if (!next) return;
        const double rest_s = to_seconds(look.took) * (1 / options_.scrub_share - 1);
        const Instant rested_at = loop_.now() + std::max(from_seconds(rest_s), kRestMin);
        scrub_timer_.arm(std::max(rested_at, next->scrub_from));
      });
}

}  // namespace weightcast
