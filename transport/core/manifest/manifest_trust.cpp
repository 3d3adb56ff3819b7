#include "transport/core/manifest/manifest_trust.h"

#include <span>

#include "transport/core/manifest/payload_wire.h"

namespace weightcast {
namespace {

constexpr std::string_view kPurpose = "weightcast manifest 1\n";

// Beside a size, which is at most kSnapshotBytesMax.
constexpr std::uint64_t kExecutableBit = std::uint64_t{1} << 63;

/// Every field has a fixed length, or its length before it: no two manifests make the same bytes.
class Statement {
 public:
  explicit Statement(std::string_view purpose) : text_(purpose) {}

  void number(std::uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) text_.push_back(static_cast<char>(value >> shift));
  }
  void text(std::string_view value) {
    number(value.size());
    text_ += value;
  }
  template <typename Digest>
  void digest(const Digest& digest) {
    text_ += bytes_of(digest);
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

ContentDigest digest_of_files(const std::vector<SnapshotFile>& files) {
  Statement table("");
  for (const SnapshotFile& file : files) {
    table.text(file.name);
    table.number(file.size_bytes | (file.executable ? kExecutableBit : 0));
  }
  const std::string text = table.take();
  return content_digest_of(std::as_bytes(std::span(text)));
}

std::string signed_statement(const Manifest& m) {
  Statement statement(kPurpose);
  statement.number(m.run.value);
  statement.text(m.model_id);
  statement.number(m.version.value);
  statement.number(static_cast<std::uint64_t>(m.kind));
  statement.number(m.base_version.value);
  statement.number((m.open ? 1 : 0) | (m.file_tree ? 2 : 0));
  statement.number(m.payload_bytes);
  statement.number(m.chunk_bytes);
  statement.number(m.part_chunks);
  statement.digest(m.root());
  statement.digest(digest_of_files(m.files));
  statement.digest(m.snapshot_digest);
  statement.number(m.snapshot_tree.chunk_bytes);
  statement.number(m.snapshot_tree.part_chunks);
  statement.digest(m.snapshot_tree.root);
  statement.number(static_cast<std::uint64_t>(m.published_unix_ms));
  return statement.take();
}

}  // namespace weightcast
