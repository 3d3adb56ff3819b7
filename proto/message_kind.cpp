#include "proto/message_kind.h"

namespace weightcast {
namespace {

// Of an embedded message, as https://protobuf.dev/programming-guides/encoding/ numbers them.
constexpr std::uint32_t kLengthDelimited = 2;

/// Takes a base-128 number off the front. False: there is none of at most 32 bits.
bool take_number(std::string_view& bytes, std::uint64_t& number) {
  number = 0;
  for (unsigned shift = 0; shift < 35 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<std::uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    number |= std::uint64_t{byte & 0x7fu} << shift;
    if ((byte & 0x80) == 0) return number <= UINT32_MAX;
  }
  return false;
}

}  // namespace

Result<std::uint32_t> message_kind_of(std::string_view body) {
  if (body.empty()) return 0;
  std::uint64_t tag = 0;
  std::uint64_t length = 0;
  if (!take_number(body, tag) || !take_number(body, length) || tag % 8 != kLengthDelimited || length != body.size()) {
    return fail(Errc::kCorrupt, Op::kParse, "control message: not what this protocol sends");
  }
  return static_cast<std::uint32_t>(tag / 8);
}

}  // namespace weightcast
