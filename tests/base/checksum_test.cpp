#include "base/digest/checksum.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace weightcast {
namespace {

Bytes as_bytes(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }

// From `xxhsum -H2` on the same inputs.
TEST(Checksum, AgreesWithTheReferenceTool) {
  EXPECT_EQ(checksum_of({}).hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(checksum_of(as_bytes("weightcast")).hex(), "941234697ab003669e54a0eb88dfb1a3");
}

TEST(ChecksumStream, EqualsTheWholeForEverySplit) {
  const std::string text(5000, 'w');
  const Checksum whole = checksum_of(as_bytes(text));
  for (std::size_t split = 0; split <= text.size(); split += 37) {
    ChecksumStream stream;
    stream.update(as_bytes(text).first(split));
    stream.update(as_bytes(text).subspan(split));
    EXPECT_EQ(stream.digest(), whole);
  }
}

}  // namespace
}  // namespace weightcast
