#include "patch/snapshot/snapshot_digest.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>

#include "base/parallel.h"
#include "patch/snapshot/snapshot.h"

namespace weightcast {
namespace {

template <typename Int>
void append_little_endian(std::vector<std::byte>& out, Int value) {
  for (std::size_t i = 0; i < sizeof value; ++i) out.push_back(static_cast<std::byte>(value >> (8 * i)));
}

void append_text(std::vector<std::byte>& out, std::string_view text) {
  const Bytes bytes = std::as_bytes(std::span(text));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

}  // namespace

SnapshotDigest::SnapshotDigest(const FileTable& table)
    : stream_bytes_(table.size_bytes()),
      leaves_((table.size_bytes() + kDigestBlockBytes - 1) / kDigestBlockBytes),
      is_set_(leaves_.size()) {
  append_text(table_bytes_, "wc-snap1");
  append_little_endian(table_bytes_, std::uint64_t{table.files().size()});
  for (const SnapshotFile& file : table.files()) {
    append_little_endian(table_bytes_, static_cast<std::uint32_t>(file.name.size()));
    append_text(table_bytes_, file.name);
    append_little_endian(table_bytes_, file.size_bytes);
  }
}

std::uint64_t SnapshotDigest::leaf_size_bytes(std::size_t leaf) const {
  return std::min(kDigestBlockBytes, stream_bytes_ - leaf_offset_bytes(leaf));
}

void SnapshotDigest::set_leaf(std::size_t leaf, const Checksum& digest) {
  WC_CHECK(leaf < leaves_.size());
  leaves_[leaf] = digest;
  if (!is_set_[leaf]) ++leaves_set_;
  is_set_[leaf] = true;
}

Checksum SnapshotDigest::root() const {
  WC_CHECK(complete());
  ChecksumStream stream;
  stream.update(table_bytes_);
  for (const Checksum& leaf : leaves_) stream.update(leaf.bytes);
  return stream.digest();
}

Result<Checksum> snapshot_digest(const SnapshotSource& source, unsigned threads) {
  SnapshotDigest digest(source.file_table());
  std::atomic<std::size_t> next{0};
  std::mutex mutex;  // guards `digest` and `error`
  std::optional<Error> error;
  const auto work = [&] {
    std::vector<std::byte> buffer(std::min(kDigestBlockBytes, source.size_bytes()));
    for (std::size_t leaf = next++; leaf < digest.leaf_count(); leaf = next++) {
      const MutableBytes block = MutableBytes(buffer).first(digest.leaf_size_bytes(leaf));
      const Status status = source.read_at(digest.leaf_offset_bytes(leaf), block);
      const Checksum value = checksum_of(block);
      const std::lock_guard lock(mutex);
      if (!status.has_value()) {
        error = status.error();
        next = digest.leaf_count();
        return;
      }
      digest.set_leaf(leaf, value);
    }
  };
  std::vector<std::jthread> others;
  while (others.size() + 1 < threads && add_thread(others, work)) {
  }
  work();
  others.clear();  // joins
  if (error) return *error;
  return digest.root();
}

}  // namespace weightcast
