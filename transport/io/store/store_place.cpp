#include <fmt/format.h>

#include <utility>

#include "transport/io/log.h"
#include "transport/io/store/store.h"

namespace weightcast {
namespace {

/// What `choose` says, with its directories made; the disk where that fails.
StorePlace make_place(const StoreLayout& disk, StorePlace chosen) {
  if (chosen.memory_directory.empty()) return chosen;
  const Status made = disk.in_memory_at(chosen.memory_directory).create();
  if (made.has_value()) return chosen;
  // Else the next start would look for versions there.
  const Status left = disk.create();
  if (!left.has_value()) log_warning("store: {}", left.error().message());
  return {{}, made.error().message()};
}

}  // namespace

/// Whether it is still open where versions lie, which one of that size decides. Then `begin` runs once it is known, or
/// `refuse` if the payload has been discarded by then.
bool Store::waits_for_place_choice(PayloadId payload, std::uint64_t version_bytes, std::function<void()> begin,
                                   std::function<void(Error)> refuse) {
  if (place_) return false;
  auto wanted = std::make_shared<bool>(true);
  preparing_[payload] = wanted;
  // Of several that begin at once the first one decides; the others come after it.
  const bool chooses = !std::exchange(choosing_place_, true);
  auto place = std::make_shared<StorePlace>();
  serial_.run(
      [layout = layout_, chooses, choose = options_.choose_place, version_bytes, place] {
        if (chooses) *place = make_place(layout, choose(version_bytes));
      },
      [this, payload, chooses, place, wanted, begin = std::move(begin), refuse = std::move(refuse)] {
        if (chooses) {
          place_ = std::move(*place);
          if (!place_->memory_directory.empty()) layout_ = layout_.in_memory_at(place_->memory_directory);
          log_info("versions lie {}: {}",
                   layout_.in_memory() ? "in " + layout_.versions_root().native() : "on the disk", place_->why);
        }
        if (!*wanted) return refuse(no_such(payload));
        preparing_.erase(payload);
        begin();
      });
  return true;
}

}  // namespace weightcast
