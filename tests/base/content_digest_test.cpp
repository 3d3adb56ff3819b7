#include "base/digest/content_digest.h"

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <type_traits>

namespace weightcast {
namespace {

// Neither can stand in the other's place.
static_assert(!std::is_constructible_v<ContentDigest, Checksum> && !std::is_constructible_v<Checksum, ContentDigest>);

Bytes as_bytes(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }

// From FIPS 180-4's examples, and `sha256sum` on the last input.
TEST(ContentDigest, AgreesWithTheStandard) {
  EXPECT_EQ(content_digest_of({}).hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(content_digest_of(as_bytes("abc")).hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(content_digest_of(as_bytes("weightcast")).hex(),
            "71bf088162f9a0c68dda15f6ced6cf670dfa86acde5fbdc3293d6cdfa0409f93");
}

TEST(ContentDigestStream, EqualsTheWholeForEverySplit) {
  const std::string text(5000, 'w');
  const ContentDigest whole = content_digest_of(as_bytes(text));
  ContentDigestStream stream;
  for (std::size_t split = 0; split <= text.size(); split += 37) {
    stream.update(as_bytes(text).first(split));
    stream.update(as_bytes(text).subspan(split));
    EXPECT_EQ(stream.take(), whole);
  }
  stream.update(as_bytes("of something else"));
  stream.reset();
  stream.update(as_bytes("abc"));
  EXPECT_EQ(stream.take(), content_digest_of(as_bytes("abc")));
}

}  // namespace
}  // namespace weightcast
