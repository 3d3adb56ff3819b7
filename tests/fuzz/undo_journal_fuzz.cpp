// Arbitrary bytes as an undo journal, and as the record of one by somebody who can make digests: what is put back lies
// where the writer says that it may, and what cannot be read says why.
#include <filesystem>
#include <vector>

#include "patch/apply/undo.h"
#include "patch/codec/byte_io.h"
#include "sim/host/sim_file_system.h"

namespace weightcast {
namespace {

constexpr const char* kPath = "/undo";
constexpr std::uint64_t kStreamBytes = 4096;

void recover_from(Bytes journal) {
  sim::SimFileSystem disk(1);
  {
    const auto file = disk.open(kPath, {.write = true, .create = Create::kNew});
    WC_CHECK(file.has_value() && write_fully(**file, 0, journal, kPath).has_value());
  }
  const Result<std::size_t> recovered = recover(
      disk, kPath,
      [](std::uint64_t offset, Bytes old) -> Status {
        if (offset > kStreamBytes || old.size() > kStreamBytes - offset) {
          return fail(Errc::kCorrupt, Op::kParse, "beyond the stream");
        }
        return {};
      },
      [] { return Status(); });
  WC_CHECK(recovered.has_value() || !recovered.error().detail.empty());
  WC_CHECK(recovered.has_value() != exists(disk, kPath));
}

/// A journal with a sound beginning and one record of this body.
std::vector<std::byte> journal_of(Bytes body) {
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  writer.fixed(std::uint64_t{0x01'4f'44'4e'55'43'57'00});
  writer.fixed(std::uint32_t{0});
  writer.digest(checksum_of(bytes));
  std::vector<std::byte> fields;
  ByteWriter record(fields);
  record.fixed(std::uint32_t{0x4f444e57});
  record.fixed(std::uint64_t{body.size()});
  ChecksumStream digest;
  digest.update(fields);
  digest.update(body);
  writer.bytes(fields);
  writer.digest(digest.digest());
  writer.bytes(body);
  return bytes;
}

}  // namespace
}  // namespace weightcast

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weightcast;
  const Bytes bytes = std::as_bytes(std::span(data, size));
  recover_from(bytes);
  recover_from(journal_of(bytes));
  return 0;
}
