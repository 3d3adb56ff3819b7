#include "patch/snapshot/snapshot_digest.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/parallel.h"
#include "patch/codec/byte_io.h"
#include "patch/kernels/kernels.h"
#include "patch/snapshot/snapshot.h"

namespace weightcast {
namespace {

// Beside a size, which is at most kSnapshotBytesMax.
constexpr std::uint64_t kExecutableBit = std::uint64_t{1} << 63;

constexpr std::size_t kBlockWords = 1024;
constexpr std::size_t kWordBytes = 4;

constexpr std::uint64_t mix(std::uint64_t x) {
  std::uint64_t z = x + 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

constexpr std::array<std::uint32_t, kBlockWords> kWordWeights = [] {
  std::array<std::uint32_t, kBlockWords> weights{};
  for (std::size_t j = 0; j < kBlockWords; ++j) weights[j] = static_cast<std::uint32_t>(mix(j) >> 32) | 1;
  return weights;
}();

std::uint64_t block_weight(std::uint64_t block) { return mix((std::uint64_t{1} << 32) + block) | 1; }

/// Of bytes of one word.
std::uint64_t weigh_part(std::uint64_t offset, Bytes bytes) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    word += std::to_integer<std::uint64_t>(bytes[i]) << 8 * ((offset + i) % kWordBytes);
  }
  return word * kWordWeights[offset / kWordBytes % kBlockWords];
}

template <typename Cell>
std::uint64_t cell_at(Bytes cells, std::size_t i) {
  Cell cell = 0;
  std::memcpy(&cell, cells.data() + i * sizeof(Cell), sizeof(Cell));
  return cell;
}

}  // namespace

static_assert(std::endian::native == std::endian::little, "words are read as they stand");

std::uint64_t stream_sum(std::uint64_t offset, Bytes bytes) {
  std::uint64_t sum = 0;
  while (!bytes.empty()) {
    const std::uint64_t block = offset / (kBlockWords * kWordBytes);
    const std::uint64_t block_end = (block + 1) * kBlockWords * kWordBytes;
    Bytes part = bytes.first(std::min<std::uint64_t>(bytes.size(), block_end - offset));
    bytes = bytes.subspan(part.size());
    std::uint64_t weighed = 0;
    const auto take = [&](std::size_t count) {
      const Bytes taken = part.first(count);
      part = part.subspan(count);
      offset += count;
      return taken;
    };
    if (const std::size_t in_word = offset % kWordBytes; in_word != 0) {
      const std::uint64_t at = offset;
      weighed += weigh_part(at, take(std::min(kWordBytes - in_word, part.size())));
    }
    const std::size_t words = part.size() / kWordBytes;
    const std::uint32_t* const weights = kWordWeights.data() + offset / kWordBytes % kBlockWords;
    weighed += best_kernels().weighted_sum(take(words * kWordBytes).data(), weights, words);
    if (!part.empty()) {
      const std::uint64_t at = offset;
      weighed += weigh_part(at, take(part.size()));
    }
    sum += weighed * block_weight(block);
  }
  return sum;
}

LeafChange::LeafChange(std::uint64_t begin, std::uint64_t end)
    : first_leaf_(begin / kDigestBlockBytes),
      sums_(end == begin ? 0 : (end - 1) / kDigestBlockBytes - first_leaf_ + 1) {}

void LeafChange::add(std::uint64_t offset, Bytes bytes) { put(offset, bytes, false); }
void LeafChange::remove(std::uint64_t offset, Bytes bytes) { put(offset, bytes, true); }

void LeafChange::put(std::uint64_t offset, Bytes bytes, bool negative) {
  while (!bytes.empty()) {
    const std::size_t leaf = offset / kDigestBlockBytes;
    WC_CHECK(leaf >= first_leaf_ && leaf - first_leaf_ < sums_.size());
    const Bytes here = bytes.first(std::min<std::uint64_t>(bytes.size(), (leaf + 1) * kDigestBlockBytes - offset));
    const std::uint64_t sum = stream_sum(offset, here);
    sums_[leaf - first_leaf_] += negative ? 0 - sum : sum;
    offset += here.size();
    bytes = bytes.subspan(here.size());
  }
}

void LeafChange::replace(std::uint64_t offset, unsigned cell_bytes, std::span<const std::uint32_t> cells, Bytes before,
                         Bytes after) {
  WC_CHECK(before.size() == cells.size() * cell_bytes && after.size() == before.size());
  with_cell_bytes(cell_bytes, [&]<unsigned CellBytes>() {
    replace_cells<typename CellInt<CellBytes>::Unsigned>(offset, cells, before, after);
  });
}

template <typename Cell>
void LeafChange::replace_cells(std::uint64_t offset, std::span<const std::uint32_t> cells, Bytes before, Bytes after) {
  constexpr std::uint64_t kBlockBytes = kBlockWords * kWordBytes;
  if (cells.empty()) return;
  const std::uint64_t last = offset + std::uint64_t{cells.back()} * sizeof(Cell);
  WC_CHECK(offset / kDigestBlockBytes >= first_leaf_ &&
           (last + sizeof(Cell) - 1) / kDigestBlockBytes - first_leaf_ < sums_.size());
  std::uint64_t block = offset / kBlockBytes, weighed = 0;
  const auto end_block = [&] {
    sums_[block * kBlockBytes / kDigestBlockBytes - first_leaf_] += std::exchange(weighed, 0) * block_weight(block);
  };
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::uint64_t at = offset + std::uint64_t{cells[i]} * sizeof(Cell);
    if (at % kWordBytes + sizeof(Cell) > kWordBytes) {
      // It spans words, and maybe leaves.
      remove(at, before.subspan(i * sizeof(Cell), sizeof(Cell)));
      add(at, after.subspan(i * sizeof(Cell), sizeof(Cell)));
      continue;
    }
    if (at / kBlockBytes != block) {
      end_block();
      block = at / kBlockBytes;
    }
    const std::uint64_t difference = cell_at<Cell>(after, i) - cell_at<Cell>(before, i);
    weighed += (difference << 8 * (at % kWordBytes)) * kWordWeights[at / kWordBytes % kBlockWords];
  }
  end_block();
}

SnapshotDigest::SnapshotDigest(const FileTable& table)
    : SnapshotDigest(table, LeafSums(leaf_count_of(table.size_bytes()))) {}

SnapshotDigest::SnapshotDigest(const FileTable& table, LeafSums leaves)
    : stream_bytes_(table.size_bytes()), leaves_(std::move(leaves)) {
  WC_CHECK(leaves_.size() == leaf_count_of(table.size_bytes()));
  ByteWriter writer(table_bytes_);
  writer.bytes(std::as_bytes(std::span(std::string_view("wc-snap2"))));
  writer.fixed(std::uint64_t{table.files().size()});
  for (const SnapshotFile& file : table.files()) {
    writer.fixed(static_cast<std::uint32_t>(file.name.size()));
    writer.bytes(std::as_bytes(std::span(file.name)));
    writer.fixed(file.size_bytes | (file.executable ? kExecutableBit : 0));
  }
}

std::uint64_t SnapshotDigest::leaf_size_bytes(std::size_t leaf) const {
  return std::min(kDigestBlockBytes, stream_bytes_ - leaf_offset_bytes(leaf));
}

void SnapshotDigest::add(std::uint64_t offset, Bytes bytes) {
  LeafChange change(offset, offset + bytes.size());
  change.add(offset, bytes);
  add(change);
}

void SnapshotDigest::add(const LeafChange& change) {
  WC_CHECK(change.first_leaf_ + change.sums_.size() <= leaves_.size());
  for (std::size_t i = 0; i < change.sums_.size(); ++i) {
    std::atomic_ref(leaves_[change.first_leaf_ + i]).fetch_add(change.sums_[i], std::memory_order_relaxed);
  }
}

Checksum SnapshotDigest::root() const {
  ChecksumStream stream;
  stream.update(table_bytes_);
  stream.update(std::as_bytes(std::span(leaves_)));
  return stream.digest();
}

Result<Checksum> snapshot_digest(const SnapshotSource& source, unsigned threads) {
  SnapshotDigest digest(source.file_table());
  std::atomic<std::size_t> next{0};
  // Each thread takes leaves, with one buffer, until none is left.
  WC_TRY(for_each_until_error(std::max(threads, 1u), threads, [&](std::size_t) -> Status {
    std::vector<std::byte> buffer(std::min(kDigestBlockBytes, source.size_bytes()));
    for (std::size_t leaf = next++; leaf < digest.leaf_count(); leaf = next++) {
      const MutableBytes block = MutableBytes(buffer).first(digest.leaf_size_bytes(leaf));
      if (Status read = source.read_at(digest.leaf_offset_bytes(leaf), block); !read.has_value()) {
        next = digest.leaf_count();
        return read;
      }
      digest.add(digest.leaf_offset_bytes(leaf), block);
    }
    return {};
  }));
  return digest.root();
}

}  // namespace weightcast
