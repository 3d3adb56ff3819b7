// Arbitrary bytes as a message of the local socket, and as a history on disk: an error, or what is written again as it
// was read.
#include "base/result.h"
#include "proto/local_messages.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weightcast;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto read = local::decode(bytes); read.has_value()) {
    const std::string written = local::encode(*read);
    const auto again = local::decode(written);
    WC_CHECK(again.has_value() && local::encode(*again) == written);
  }
  if (const auto read = local::decode_history(bytes); read.has_value()) {
    const std::string written = local::encode_history(*read);
    const auto again = local::decode_history(written);
    WC_CHECK(again.has_value() && local::encode_history(*again) == written);
  }
  return 0;
}
