#pragma once

#include <cstdint>

#include "base/ids.h"
#include "base/result.h"
#include "transport/io/store/store_layout.h"

namespace weightcast {

/// Which run a state directory follows, and how many it has followed: its versions' names carry that count.
///
///   run 00c0ffee00c0ffee 2
///   check <XXH3-128 of the line above, in hexadecimal>
///
/// A directory without the file follows its first run, whose id it does not know.
struct StoreRun {
  RunId id{};
  std::uint32_t count = 1;

  bool operator==(const StoreRun&) const = default;
};

/// Reads the file. Where it is damaged, what lies here says which run that was: the greatest count of any name, and the
/// id that the records of that run have; then the file is written anew. Errors: kCorrupt (it is damaged, and nothing
/// here is of a run with an id), kIo.
[[nodiscard]] Result<StoreRun> read_run(const StoreLayout& layout);
/// Replaces the file. Blocks until a power cut leaves the new one; after an error either is there.
[[nodiscard]] Status write_run(const StoreLayout& layout, StoreRun run);

}  // namespace weightcast
