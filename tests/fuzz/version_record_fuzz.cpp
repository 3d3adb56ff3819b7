// Arbitrary bytes as the record of a version in a state directory, and as entries of one by somebody who can make
// checksums: it is refused with a reason, or reads the same once it was written again.
#include <string>
#include <string_view>

#include "base/digest/checksum.h"
#include "sim/host/sim_file_system.h"
#include "transport/io/store/files/version_record.h"

namespace weightcast {
namespace {

constexpr const char* kPath = "/record";

void read(std::string_view text) {
  sim::SimFileSystem disk(1);
  WC_CHECK(replace_file(disk, kPath, text, Synced::kNothing).has_value());
  Result<VersionRecord> record = read_record(disk, kPath);
  if (!record.has_value()) {
    WC_CHECK(!record.error().detail.empty());
    return;
  }
  WC_CHECK(record->digests.chunks.size() == record->manifest.chunk_count());
  WC_CHECK(cut_torn_entry(disk, kPath, *record).has_value());
  WC_CHECK(write_record(disk, kPath, *record).has_value());
  const Result<VersionRecord> again = read_record(disk, kPath);
  WC_CHECK(again.has_value() && again->durable == record->durable && !again->torn_at);
  WC_CHECK(again->digests.chunks == record->digests.chunks);
}

/// Each entry of the input begins with its length, of two bytes.
std::string record_of(std::string_view input) {
  std::string text = "wcrecord" + std::string("\5\0\0\0", 4);
  while (input.size() >= 2) {
    const std::size_t wanted = static_cast<unsigned char>(input[0]) | static_cast<unsigned char>(input[1]) << 8;
    const std::string_view body = input.substr(2, wanted);
    input.remove_prefix(2 + body.size());
    const Checksum sum = checksum_of(std::as_bytes(std::span(body)));
    for (unsigned shift = 0; shift < 32; shift += 8) text.push_back(static_cast<char>(body.size() >> shift));
    text.append(reinterpret_cast<const char*>(sum.bytes.data()), Checksum::kBytes);
    text += body;
  }
  return text;
}

}  // namespace
}  // namespace weightcast

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weightcast;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  read(input);
  read(record_of(input));
  return 0;
}
