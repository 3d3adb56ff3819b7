#include "transport/io/store/files/snapshot_check.h"

#include <algorithm>
#include <utility>

#include "base/parallel.h"

namespace weightcast {
namespace {

// Small enough to be still in the second-level cache when the sum reads what the copy wrote, and for the allocator to
// hand out the same memory again: a larger buffer is mapped, faulted in and unmapped for every range.
constexpr std::size_t kReadBytes = 64 * kKiB;
// A job of 16 MiB takes some 5 ms: others wait for the pool's threads too.
constexpr std::uint64_t kJobBytesMax = 16 * kMiB;
// Below this a second thread takes longer to start than it saves.
constexpr std::uint64_t kParallelBytesMin = 64 * kMiB;

/// Calls `use(offset, bytes)` with what the files have from `begin` to `end`.
template <typename Use>
Status read_pieces(VersionFiles& files, std::uint64_t begin, std::uint64_t end, const Use& use) {
  std::vector<std::byte> buffer(std::min<std::uint64_t>(end - begin, kReadBytes));
  while (begin < end) {
    const MutableBytes piece = MutableBytes(buffer).first(std::min<std::uint64_t>(end - begin, buffer.size()));
    WC_TRY(read_stream(files, begin, piece));
    WC_TRY(use(begin, Bytes(piece)));
    begin += piece.size();
  }
  return {};
}

Result<std::uint64_t> range_sum(VersionFiles& files, std::uint64_t offset, std::uint64_t bytes) {
  std::uint64_t sum = 0;
  WC_TRY(read_pieces(files, offset, offset + bytes, [&](std::uint64_t at, Bytes piece) -> Status {
    sum += stream_sum(at, piece);
    return {};
  }));
  return sum;
}

}  // namespace

Result<std::uint64_t> leaf_sum(VersionFiles& files, std::size_t leaf) {
  const std::uint64_t offset = leaf * kDigestBlockBytes;
  return range_sum(files, offset, std::min(kDigestBlockBytes, files.table().size_bytes() - offset));
}

Status copy_range(VersionFiles& from, VersionFiles& to, std::uint64_t begin, std::uint64_t end,
                  SnapshotDigest& digest) {
  return read_pieces(from, begin, end, [&](std::uint64_t at, Bytes piece) -> Status {
    WC_TRY(write_stream(to, at, piece));
    digest.add(at, piece);
    return {};
  });
}

Result<SnapshotDigest> files_digest(VersionFiles& files, unsigned threads) {
  LeafSums leaves(leaf_count_of(files.table().size_bytes()));
  if (files.table().size_bytes() < kParallelBytesMin) threads = 1;
  WC_TRY(for_each_until_error(leaves.size(), threads, [&](std::size_t leaf) -> Status {
    WC_ASSIGN(leaves[leaf], leaf_sum(files, leaf));
    return {};
  }));
  return SnapshotDigest(files.table(), std::move(leaves));
}

SnapshotCheck::SnapshotCheck(EventLoop& loop, FilesRef files)
    : loop_(loop), files_(std::move(files)), leaves_(leaf_count_of(files_->table().size_bytes())) {}

void SnapshotCheck::handle_stored(std::uint64_t offset, std::uint64_t bytes, std::uint64_t sum) {
  const std::size_t leaf = offset / kDigestBlockBytes;
  WC_CHECK(bytes > 0 && (offset + bytes - 1) / kDigestBlockBytes == leaf);
  leaves_[leaf] += sum;
}

void SnapshotCheck::handle_held(std::uint64_t offset, std::uint64_t bytes) {
  held_.push_back({offset, bytes});
  read_held();
}

void SnapshotCheck::finish(std::function<void(Result<Checksum>)> done) {
  done_ = std::move(done);
  read_held();
}

void SnapshotCheck::read_held() {
  if (reading_) return;
  if (held_.empty()) {
    if (!done_) return;
    // What could not be read is tried again by the next finish().
    const auto done = std::exchange(done_, nullptr);
    held_ = std::exchange(failed_, {});
    if (held_.empty()) return done(SnapshotDigest(files_->table(), leaves_).root());
    return done(error_);
  }
  struct Job {
    std::vector<Range> ranges;
    std::vector<Result<std::uint64_t>> sums;
  };
  auto job = std::make_shared<Job>();
  for (std::uint64_t bytes = 0; !held_.empty() && bytes < kJobBytesMax; held_.pop_back()) {
    job->ranges.push_back(held_.back());
    bytes += held_.back().bytes;
  }
  reading_ = true;
  loop_.offload(
      [job, files = files_] {
        for (const Range& range : job->ranges) job->sums.push_back(range_sum(*files, range.offset, range.bytes));
      },
      [this, job, alive = std::weak_ptr(alive_)] {
        if (alive.expired()) return;
        reading_ = false;
        for (std::size_t i = 0; i < job->ranges.size(); ++i) {
          if (job->sums[i].has_value()) {
            handle_stored(job->ranges[i].offset, job->ranges[i].bytes, *job->sums[i]);
          } else {
            failed_.push_back(job->ranges[i]);
            error_ = job->sums[i].error();
          }
        }
        read_held();
      });
}

}  // namespace weightcast
