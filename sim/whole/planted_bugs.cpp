#include "sim/whole/planted_bugs.h"

#include <cstring>
#include <span>
#include <string>

#include "base/digest/checksum.h"
#include "base/result.h"
#include "proto/record.pb.h"

namespace weightcast::sim {
namespace {

// As version_record.h says: length, digest, body.
std::string durable_mark() {
  record::Entry entry;
  entry.mutable_durable();
  const std::string body = entry.SerializeAsString();
  const auto size = static_cast<std::uint32_t>(body.size());
  std::string out(sizeof size, '\0');
  std::memcpy(out.data(), &size, sizeof size);
  const Checksum digest = checksum_of(std::as_bytes(std::span(body)));
  out.append(reinterpret_cast<const char*>(digest.bytes.data()), Checksum::kBytes);
  return out + body;
}

}  // namespace

void mark_records_durable(FileSystem& files, const std::filesystem::path& records) {
  const std::string mark = durable_mark();
  for (const std::string& name : files.list(records).value_or(std::vector<std::string>{})) {
    const auto file = files.open(records / name, {.write = true, .append = true});
    WC_CHECK(file.has_value() && (*file)->append(std::as_bytes(std::span(mark))).has_value());
  }
}

}  // namespace weightcast::sim
