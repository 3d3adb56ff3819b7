#include "proto/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace weightcast {
namespace {

FrameHeader chunk_header() {
  FrameHeader header;
  header.type = FrameType::kChunk;
  header.body_bytes = 32 * kKiB;
  header.chunk = ChunkIndex{7};
  header.payload = patch_of(Version{42}, Version{41});
  return header;
}

TEST(FrameHeader, RoundTrips) {
  const auto decoded = decode_frame_header(encode_frame_header(chunk_header()));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(*decoded, chunk_header());
}

TEST(FrameHeader, HasTheDocumentedBytes) {
  const FrameHeaderBytes bytes = encode_frame_header(chunk_header());
  const std::array<unsigned, 32> expected{
      'W', 'C',  'F', '2',              // magic
      2,   3,    0,   0,                // type chunk, kind patch, reserved
      0,   0x80, 0,   0,                // body: 32768 bytes
      7,   0,    0,   0,                // chunk 7
      42,  0,    0,   0,   0, 0, 0, 0,  // version 42
      41,  0,    0,   0,   0, 0, 0, 0,  // base version 41
  };
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(std::to_integer<unsigned>(bytes[i]), expected[i]) << i;
}

TEST(FrameHeader, EveryFlippedBitIsRefused) {
  const FrameHeaderBytes good = encode_frame_header(chunk_header());
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    FrameHeaderBytes bad = good;
    bad[bit / 8] ^= std::byte(1u << (bit % 8));
    EXPECT_FALSE(decode_frame_header(bad).has_value()) << "bit " << bit;
  }
}

TEST(FrameHeader, RefusesLengthsAboveTheLimitOfTheirType) {
  FrameHeader header = chunk_header();
  header.body_bytes = kChunkBytesMax + 1;
  EXPECT_EQ(decode_frame_header(encode_frame_header(header)).error().code, Errc::kTooLarge);
  FrameHeader control;
  control.body_bytes = kControlBytesMax + 1;
  EXPECT_EQ(decode_frame_header(encode_frame_header(control)).error().code, Errc::kTooLarge);
}

TEST(FrameHeader, RefusesPayloadKindsThatAreNone) {
  for (const unsigned kind : {0u, 4u, 255u}) {
    FrameHeader header = chunk_header();
    header.payload.kind = static_cast<PayloadKind>(kind);
    EXPECT_EQ(decode_frame_header(encode_frame_header(header)).error().code, Errc::kUnsupported) << kind;
  }
}

// A port that was confused with another one.
TEST(FrameHeader, SaysWhatElseAPeerSpeaks) {
  const auto refusal = [](std::string text) {
    text.resize(FrameHeader::kBytes, ' ');
    return decode_frame_header(std::as_bytes(std::span(text))).error().detail;
  };
  EXPECT_THAT(refusal("HTTP/1.1 400 Bad Request\r\n"), testing::HasSubstr("an HTTP server answers there"));
  EXPECT_THAT(refusal("GET /metrics HTTP/1.1\r\n"), testing::HasSubstr("HTTP is answered at --http"));
  EXPECT_THAT(refusal(std::string("\x15\x03\x03\x00\x02\x02\x28", 7)), testing::HasSubstr("speaks TLS, such as HTTPS"));
  EXPECT_THAT(refusal("SSH-2.0-OpenSSH_9.2"), testing::HasSubstr("does not start with WCF2"));
}

RC_GTEST_PROP(FrameHeader, RefusesNoise, (const std::array<std::uint8_t, FrameHeader::kBytes>& noise)) {
  RC_ASSERT(!decode_frame_header(std::as_bytes(std::span(noise))).has_value());
}

}  // namespace
}  // namespace weightcast
