#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "client/region.h"
#include "patch/snapshot/safetensors.h"
#include "weightcast/weightcast.h"

namespace weightcast::client {

/// The regions of one client, and who may touch each. Invariant: one that the origin may be reading is neither handed
/// out nor written; it comes back by release(), on the origin's word, or is never used again after abandon_sent().
class RegionPool {
 public:
  static constexpr std::size_t kRegionsMax = 2;

  enum class Fit : std::uint8_t {
    kExact,    ///< a region is as large as what it holds
    kAtLeast,  ///< it has room for more, so that it serves when the next time takes more
  };
  explicit RegionPool(Fit fit = Fit::kExact) : fit_(fit) {}

  /// Sets what the next region is to hold. Errors: those of lay_out_safetensors(); kInvalidArgument (a null pointer, a
  /// size that is not what shape and dtype say).
  [[nodiscard]] Status lay_out(std::span<const wc_tensor> tensors);

  /// The same for tensors that were checked already. Errors: those of lay_out_safetensors().
  [[nodiscard]] Status lay_out(std::vector<TensorInfo> tensors);

  /// A region of the layout for the caller to fill, with its header in place, or null where the origin may be reading
  /// those that there are. `second`: another one is made, up to kRegionsMax. `parts`: how many are to be done before it
  /// is handed over. Errors: those of Region::create() and expect_parts().
  [[nodiscard]] Result<Region*> take(bool second, std::uint32_t parts = 0);
  /// Makes `count` regions of the layout, with their memory taken. Errors: kBusy; those of Region.
  [[nodiscard]] Status reserve(std::size_t count);

  /// The origin may be reading it from now on, so its processes are told not to write.
  void hand_over(Region& region);
  /// The origin has said that it reads it no more, or the caller has not committed it.
  void release(Region& region);
  /// The caller has committed none of those that it was given and that the origin has not.
  void release_taken();
  /// What was handed over did not reach the origin, or was refused: it is the caller's again.
  void take_back(Region& region);
  /// Nobody can say any more whether the origin reads those that were handed over.
  void abandon_sent();

  /// The region as others may hold it, and the number of what it is being filled for.
  [[nodiscard]] std::shared_ptr<Region> share(const Region& region) { return find(region).region; }
  [[nodiscard]] std::uint64_t publication(const Region& region) { return find(region).publication; }

  /// Where the tensors of the layout lie in a region, in the order in which they were given.
  [[nodiscard]] const std::vector<std::uint64_t>& offsets_bytes() const { return layout_.offsets_bytes; }
  [[nodiscard]] const std::vector<TensorInfo>& tensors() const { return tensors_; }
  /// Of what is in a region, from its beginning.
  [[nodiscard]] std::uint64_t bytes() const { return layout_.file_bytes; }

 private:
  enum class State { kFree, kTaken, kSent };
  struct Held {
    std::shared_ptr<Region> region;  // others may hold its mapping longer
    State state = State::kFree;
    std::uint64_t publication = 0;  // that it is taken for: a number of its own, which nobody else has
  };

  [[nodiscard]] bool fits(const Held& held) const {
    const std::uint64_t bytes = held.region->size_bytes();
    return fit_ == Fit::kExact ? bytes == layout_.file_bytes : bytes >= layout_.file_bytes;
  }
  Result<Held*> add();
  void drop_misfits();
  Held& find(const Region& region);

  const Fit fit_;
  SafetensorsLayout layout_;
  std::vector<TensorInfo> tensors_;  // for what `layout_` is
  std::vector<Held> held_;
};

}  // namespace weightcast::client
