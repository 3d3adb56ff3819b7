// Arbitrary bytes as the index of an archive: it is refused with a reason, or reads the same once it was written again,
// and what leads to its newest version begins with a whole one.
#include "transport/archive/archive_index.h"

#include <string_view>

#include "transport/archive/archive_plan.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace weightcast;
  const auto index = parse_index(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!index.has_value()) {
    WC_CHECK(!index.error().detail.empty());
    return 0;
  }
  const auto again = parse_index(to_json(*index));
  WC_CHECK(again.has_value() && *again == *index);
  const auto way = way_to(*index, kNoVersion);
  WC_CHECK(way.has_value() == (newest_in(*index) != kNoVersion));
  if (!way.has_value()) return 0;
  WC_CHECK(way->front().id.is_full() && way->back().id.version == newest_in(*index));
  for (std::size_t i = 1; i < way->size(); ++i) WC_CHECK((*way)[i].id.base == (*way)[i - 1].id.version);
  return 0;
}
