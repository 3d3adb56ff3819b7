#include "transport/io/store/snapshot_check.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/parallel.h"

namespace weightcast {
namespace {

// Small enough to be still in the second-level cache when the hash reads what the copy wrote, and for the allocator to
// hand out the same memory again: a larger buffer is mapped, faulted in and unmapped for every leaf.
constexpr std::size_t kReadBytes = 64 * kKiB;
// A job of 16 MiB takes some 5 ms: others wait for the pool's threads too.
constexpr std::size_t kLeavesPerJobMax = 4;
// Below this a second thread takes longer to start than it saves.
constexpr std::uint64_t kParallelBytesMin = 64 * kMiB;

/// Hashes a leaf on its way from the files, and to `to` if that is not null.
Result<Checksum> read_leaf(VersionFiles& files, VersionFiles* to, std::size_t leaf) {
  std::uint64_t offset = leaf * kDigestBlockBytes;
  std::uint64_t left = std::min(kDigestBlockBytes, files.table().size_bytes() - offset);
  std::vector<std::byte> buffer(std::min<std::uint64_t>(left, kReadBytes));
  ChecksumStream digest;
  while (left > 0) {
    const MutableBytes piece = MutableBytes(buffer).first(std::min<std::uint64_t>(left, buffer.size()));
    WC_TRY(read_stream(files, offset, piece));
    if (to != nullptr) WC_TRY(write_stream(*to, offset, piece));
    digest.update(piece);
    offset += piece.size();
    left -= piece.size();
  }
  return digest.digest();
}

}  // namespace

Result<Checksum> leaf_digest(VersionFiles& files, std::size_t leaf) { return read_leaf(files, nullptr, leaf); }

Result<Checksum> copy_leaf(VersionFiles& from, VersionFiles& to, std::size_t leaf) {
  return read_leaf(from, &to, leaf);
}

Result<Checksum> files_digest(VersionFiles& files, unsigned threads) {
  SnapshotDigest digest(files.table());
  std::mutex mutex;  // guards `digest` and `status`
  Status status;
  if (files.table().size_bytes() < kParallelBytesMin) threads = 1;
  for_each_index(digest.leaf_count(), threads, [&](std::size_t leaf) {
    const Result<Checksum> found = leaf_digest(files, leaf);
    const std::lock_guard lock(mutex);
    if (found.has_value()) {
      digest.set_leaf(leaf, *found);
    } else {
      status = found.error();
    }
  });
  WC_TRY(status);
  return digest.root();
}

SnapshotCheck::SnapshotCheck(EventLoop& loop, std::shared_ptr<VersionFiles> files)
    : loop_(loop),
      files_(std::move(files)),
      digest_(files_->table()),
      bytes_missing_(digest_.leaf_count()),
      hashed_(digest_.leaf_count()) {
  for (std::size_t leaf = 0; leaf < bytes_missing_.size(); ++leaf) bytes_missing_[leaf] = digest_.leaf_size_bytes(leaf);
}

void SnapshotCheck::handle_hashed(std::size_t leaf, const Checksum& digest) {
  digest_.set_leaf(leaf, digest);
  hashed_[leaf] = true;
}

void SnapshotCheck::handle_stored(std::uint64_t offset, std::uint64_t length) {
  while (length > 0) {
    const std::size_t leaf = offset / kDigestBlockBytes;
    const std::uint64_t here = std::min(length, (leaf + 1) * kDigestBlockBytes - offset);
    WC_CHECK(here <= bytes_missing_[leaf]);
    bytes_missing_[leaf] -= here;
    if (bytes_missing_[leaf] == 0 && !hashed_[leaf]) ready_.push_back(leaf);
    offset += here;
    length -= here;
  }
  hash_ready();
}

void SnapshotCheck::finish(std::function<void(Result<Checksum>)> done) {
  done_ = std::move(done);
  hash_ready();
}

void SnapshotCheck::hash_ready() {
  if (hashing_) return;
  if (ready_.empty()) {
    if (!done_) return;
    // Unreadable leaves are tried again by the next finish().
    const auto done = std::exchange(done_, nullptr);
    ready_ = std::exchange(failed_, {});
    if (ready_.empty()) return done(digest_.root());
    return done(error_);
  }
  struct Job {
    std::vector<std::size_t> leaves;
    std::vector<Result<Checksum>> digests;
  };
  auto job = std::make_shared<Job>();
  const std::size_t count = std::min(ready_.size(), kLeavesPerJobMax);
  job->leaves.assign(ready_.end() - static_cast<std::ptrdiff_t>(count), ready_.end());
  ready_.resize(ready_.size() - count);
  hashing_ = true;
  loop_.offload(
      [job, files = files_] {
        for (const std::size_t leaf : job->leaves) job->digests.push_back(leaf_digest(*files, leaf));
      },
      [this, job, alive = std::weak_ptr(alive_)] {
        if (alive.expired()) return;
        hashing_ = false;
        for (std::size_t i = 0; i < job->leaves.size(); ++i) {
          if (job->digests[i].has_value()) {
            digest_.set_leaf(job->leaves[i], *job->digests[i]);
          } else {
            failed_.push_back(job->leaves[i]);
            error_ = job->digests[i].error();
          }
        }
        hash_ready();
      });
}

}  // namespace weightcast
