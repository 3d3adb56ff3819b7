// Arbitrary bytes as a message of the local socket: both readers refuse them, or the client library's reader writes
// again what it has read.
#include "client/local_messages.h"
#include "proto/local.pb.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weightcast;
  local::Message daemon;
  const bool is_protobuf = daemon.ParseFromArray(data, static_cast<int>(size));
  const auto read = client::decode({reinterpret_cast<const char*>(data), size});
  if (!read.has_value()) return 0;
  const std::string written = client::encode(*read);
  const auto again = client::decode(written);
  WC_CHECK(again.has_value() && client::encode(*again) == written);
  // What the daemon understands, the client does.
  if (is_protobuf) WC_CHECK(daemon.ParseFromString(written));
  return 0;
}
