#include <array>
#include <bit>
#include <limits>

#include "bench/codec/rivals/rivals.h"
#include "bench/codec/rivals/sparse.h"

// PULSEPT1 format v3: its index and value streams, one zstd-1 frame around all tensors.
//
// Index stream. Cells are parted by the exponent of their old value. A class with a change lists the ranks (the number
// of earlier cells of the class) of its changed cells, or of its unchanged ones ("complement") when more than half
// changed:
//   u16 classes, then per class  u8 exponent, u8 flags (bit 0: complement), u32 ranks, u32 block bytes,
//   then the blocks              u8 k, u32 unary bytes, unary stream, remainder stream, u32 escaped quotients
// A rank is coded as its gap: quotient gap >> k in unary (ones, then a zero; 32 ones stand for an escaped quotient),
// remainder of k bits; both streams have their first bit on top, and the unary stream is padded with ones.
// Value stream. z = zig-zag of (new - old) mod 2^16: a byte each, or 255 and then, after all the bytes, z as u16.

namespace weightcast::bench {
namespace {

constexpr unsigned kClasses = 256;
constexpr unsigned kParameterMax = 31;
constexpr std::uint32_t kQuotientEscape = 32;
constexpr std::uint16_t kValueEscape = 255;

constexpr unsigned class_of(std::uint16_t cell) { return (cell >> 7) & 0xff; }

class BitWriter {
 public:
  void put(std::uint64_t bits, unsigned count) {  // count <= 56
    pending_ = (pending_ << count) | bits;
    for (pending_bits_ += count; pending_bits_ >= 8; pending_bits_ -= 8) {
      bytes_.push_back(static_cast<std::byte>(pending_ >> (pending_bits_ - 8)));
    }
  }
  [[nodiscard]] const std::vector<std::byte>& finish(bool padding) {
    if (pending_bits_ > 0) {
      const unsigned count = 8 - pending_bits_;
      put(padding ? (1u << count) - 1 : 0, count);
    }
    return bytes_;
  }

 private:
  std::vector<std::byte> bytes_;
  std::uint64_t pending_ = 0;
  unsigned pending_bits_ = 0;
};

class BitReader {
 public:
  explicit BitReader(Bytes bytes) : bytes_(bytes) {}

  [[nodiscard]] std::uint32_t get(unsigned count) {  // count <= 32
    if (count == 0) return 0;
    const auto bits = static_cast<std::uint32_t>(window() >> (64 - count));
    position_ += count;
    return bits;
  }
  /// The number of ones before the next zero, which is passed as well.
  [[nodiscard]] std::uint32_t get_unary() {
    const auto ones = static_cast<std::uint32_t>(std::countl_one(window()));
    position_ += ones + 1;
    return ones;
  }
  [[nodiscard]] std::size_t bytes_used() const { return (position_ + 7) / 8; }

 private:
  // At least 57 bits from position_ on, on top; zeros past the end.
  [[nodiscard]] std::uint64_t window() const {
    const std::size_t first = position_ / 8;
    std::uint64_t word = 0;
    if (first + 8 <= bytes_.size()) {
      std::memcpy(&word, bytes_.data() + first, 8);
    } else if (first < bytes_.size()) {
      std::memcpy(&word, bytes_.data() + first, bytes_.size() - first);
    }
    return __builtin_bswap64(word) << (position_ % 8);
  }

  Bytes bytes_;
  std::uint64_t position_ = 0;
};

std::uint64_t rice_bits(const std::vector<std::uint32_t>& gaps, unsigned k) {
  std::uint64_t bits = gaps.size() * (k + 1);
  for (const std::uint32_t gap : gaps) {
    const std::uint32_t quotient = gap >> k;
    bits += quotient < kQuotientEscape ? quotient : 2 * kQuotientEscape;
  }
  return bits;
}

/// The best of the neighbours of two estimates: one for geometric gaps, from the mean, and one that a few huge gaps do
/// not drag up, from the median of about 4096 of them.
unsigned rice_parameter(const std::vector<std::uint32_t>& gaps) {
  std::uint64_t sum = 0;
  for (const std::uint32_t gap : gaps) sum += gap;
  std::vector<std::uint32_t> sample;
  const std::size_t stride = std::max<std::size_t>(1, gaps.size() / 4096);
  for (std::size_t i = 0; i < gaps.size(); i += stride) sample.push_back(gaps[i]);
  const auto middle = sample.begin() + static_cast<std::ptrdiff_t>(sample.size() / 2);
  std::nth_element(sample.begin(), middle, sample.end());

  const auto floor_log2 = [](double x) {
    return x < 1 ? 0 : static_cast<int>(std::bit_width(static_cast<std::uint64_t>(x))) - 1;
  };
  constexpr double kLn2 = 0.6931471805599453;
  const int by_mean = floor_log2(static_cast<double>(sum) / static_cast<double>(gaps.size()) * kLn2);
  const int by_median = floor_log2(*middle);
  unsigned best = 0;
  std::uint64_t best_bits = std::numeric_limits<std::uint64_t>::max();
  for (int k = 0; k <= static_cast<int>(kParameterMax); ++k) {
    if (std::abs(k - by_mean) > 1 && std::abs(k - by_median) > 1) continue;
    if (const std::uint64_t bits = rice_bits(gaps, static_cast<unsigned>(k)); bits < best_bits) {
      best = static_cast<unsigned>(k);
      best_bits = bits;
    }
  }
  return best;
}

/// Writes the block of these gaps and returns its length.
std::uint32_t put_ranks(const std::vector<std::uint32_t>& gaps, ByteWriter& writer) {
  if (gaps.empty()) return 0;
  const std::size_t start = writer.size();
  const unsigned k = rice_parameter(gaps);
  BitWriter unary;
  BitWriter remainders;
  std::vector<std::uint32_t> escaped;
  for (const std::uint32_t gap : gaps) {
    const std::uint32_t ones = std::min(gap >> k, kQuotientEscape);
    unary.put(((std::uint64_t{1} << ones) - 1) << 1, ones + 1);
    if (k > 0) remainders.put(gap & ((1u << k) - 1), k);
    if (ones == kQuotientEscape) escaped.push_back(gap >> k);
  }
  writer.put(static_cast<std::uint8_t>(k));
  const std::vector<std::byte>& unary_bytes = unary.finish(true);
  writer.put(static_cast<std::uint32_t>(unary_bytes.size()));
  writer.put_array(std::span(unary_bytes));
  writer.put_array(std::span(remainders.finish(false)));
  writer.put_array(std::span<const std::uint32_t>(escaped));
  return static_cast<std::uint32_t>(writer.size() - start);
}

Status get_ranks(Bytes block, std::size_t count, std::vector<std::uint32_t>& gaps) {
  gaps.clear();
  if (count == 0) return block.empty() ? Status() : Status(corrupt_patch());
  ByteReader reader(block);
  const auto k = reader.get<std::uint8_t>();
  const Bytes unary_bytes = reader.take(reader.get<std::uint32_t>());
  if (reader.failed() || k > kParameterMax || count > unary_bytes.size() * 8) return corrupt_patch();
  const Bytes remainder_bytes = reader.take((count * k + 7) / 8);
  BitReader unary(unary_bytes);
  BitReader remainders(remainder_bytes);
  gaps.resize(count);
  for (std::uint32_t& gap : gaps) {
    std::uint32_t quotient = unary.get_unary();
    if (quotient > kQuotientEscape) return corrupt_patch();
    if (quotient == kQuotientEscape) quotient = reader.get<std::uint32_t>();
    gap = (quotient << k) | remainders.get(k);
  }
  if (reader.failed() || reader.left() != 0 || unary.bytes_used() > unary_bytes.size()) return corrupt_patch();
  return {};
}

/// How many cells of each class have been passed. Neighbours are often of one class, and a counter must be stored
/// before it can be loaded again, so four sets of counters take turns.
class ClassCounter {
 public:
  void pass(Bytes cells, std::size_t first, std::size_t last) {
    for (; first + kSets <= last; first += kSets) {
      for (std::size_t set = 0; set < kSets; ++set) ++sets_[set][class_at(cells, first + set)];
    }
    for (; first < last; ++first) ++sets_[0][class_at(cells, first)];
  }
  [[nodiscard]] std::uint32_t operator[](unsigned e) const {
    return sets_[0][e] + sets_[1][e] + sets_[2][e] + sets_[3][e];
  }

 private:
  static constexpr std::size_t kSets = 4;
  static unsigned class_at(Bytes cells, std::size_t i) { return class_of(load_cell<std::uint16_t>(cells.data(), i)); }

  std::array<std::array<std::uint32_t, kClasses>, kSets> sets_{};
};

struct ClassRanks {
  std::uint32_t changed = 0;
  std::uint32_t next_rank = 0;  // one past the last listed one
  std::vector<std::uint32_t> gaps;

  void list(std::uint32_t rank) {
    gaps.push_back(rank - next_rank);
    next_rank = rank + 1;
  }

  /// The list of all the other ranks of a class of this many cells.
  [[nodiscard]] ClassRanks inverted(std::uint32_t cells) const {
    ClassRanks others;
    others.changed = changed;
    std::uint32_t rank = 0;
    for (const std::uint32_t gap : gaps) {
      for (const std::uint32_t listed = rank + gap; rank < listed; ++rank) others.list(rank);
      ++rank;
    }
    for (; rank < cells; ++rank) others.list(rank);
    return others;
  }
};

void put_index_stream(Bytes base, const std::vector<std::uint32_t>& changed, ByteWriter& writer) {
  std::vector<ClassRanks> classes(kClasses);
  ClassCounter passed;
  const std::size_t cells = base.size() / sizeof(std::uint16_t);
  std::size_t done = 0;
  for (const std::uint32_t position : changed) {
    passed.pass(base, done, position);
    done = position;
    ClassRanks& ranks = classes[class_of(load_cell<std::uint16_t>(base.data(), position))];
    ranks.list(passed[class_of(load_cell<std::uint16_t>(base.data(), position))]);
    ++ranks.changed;
  }
  passed.pass(base, done, cells);

  std::array<bool, kClasses> complement{};
  for (unsigned e = 0; e < kClasses; ++e) {
    complement[e] = 2 * std::uint64_t{classes[e].changed} > passed[e];
    if (complement[e]) classes[e] = classes[e].inverted(passed[e]);
  }

  std::uint16_t records = 0;
  ByteWriter blocks;
  ByteWriter heads;
  for (unsigned e = 0; e < kClasses; ++e) {
    if (classes[e].changed == 0) continue;
    ++records;
    heads.put(static_cast<std::uint8_t>(e));
    heads.put(static_cast<std::uint8_t>(complement[e]));
    heads.put(static_cast<std::uint32_t>(classes[e].gaps.size()));
    heads.put(put_ranks(classes[e].gaps, blocks));
  }
  writer.put(records);
  writer.put_array(std::span<const std::byte>(heads.bytes()));
  writer.put_array(std::span<const std::byte>(blocks.bytes()));
}

/// What is left of the rank lists while the cells go by.
struct RankLists {
  static constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();

  // By class: cells up to and including the next listed one. A list that has ended never reaches zero, because a tensor
  // has fewer than 2^32 - 1 cells.
  std::array<std::uint32_t, kClasses> until;
  std::array<bool, kClasses> complement{};
  std::array<std::size_t, kClasses> next{};
  std::array<std::vector<std::uint32_t>, kClasses> gaps;

  RankLists() { until.fill(kNever); }
  void advance(unsigned e) { until[e] = next[e] < gaps[e].size() ? gaps[e][next[e]++] + 1 : kNever; }
};

template <bool kComplements, typename Store>
bool walk(Bytes base, RankLists& lists, Store store) {
  const std::size_t cells = base.size() / sizeof(std::uint16_t);
  for (std::size_t i = 0; i < cells; ++i) {
    const unsigned e = class_of(load_cell<std::uint16_t>(base.data(), i));
    const bool listed = --lists.until[e] == 0;
    if (listed) lists.advance(e);
    if (listed != (kComplements && lists.complement[e]) && !store(i)) return false;
  }
  return true;
}

/// Calls store(position) for each changed cell, in order, until it returns false.
template <typename Store>
Status get_index_stream(Bytes base, ByteReader& reader, Store store) {
  struct Record {
    std::uint8_t exponent;
    std::uint32_t ranks;
    std::uint32_t bytes;
  };
  RankLists lists;
  bool any_complement = false;
  std::vector<Record> records(std::min<unsigned>(reader.get<std::uint16_t>(), kClasses));
  for (Record& record : records) {
    record.exponent = reader.get<std::uint8_t>();
    lists.complement[record.exponent] = reader.get<std::uint8_t>() != 0;
    any_complement |= lists.complement[record.exponent];
    record.ranks = reader.get<std::uint32_t>();
    record.bytes = reader.get<std::uint32_t>();
  }
  for (const Record& record : records) {
    WC_TRY(get_ranks(reader.take(record.bytes), record.ranks, lists.gaps[record.exponent]));
    lists.advance(record.exponent);
  }
  if (reader.failed()) return corrupt_patch();
  const bool walked = any_complement ? walk<true>(base, lists, store) : walk<false>(base, lists, store);
  return walked ? Status() : Status(corrupt_patch());
}

Result<std::vector<std::byte>> encode(Bytes base, Bytes result, std::span<const TensorInfo> tensors, unsigned) {
  for (const TensorInfo& tensor : tensors) {
    if (tensor.dtype == "BF16") continue;
    return fail(Errc::kUnsupported, Op::kEncode, tensor.name + ": this format knows BF16 only");
  }
  std::vector<std::uint16_t> escaped;
  const auto body = [&]<typename Cell>(const TensorInfo&, Bytes before, const Changes<Cell>& changes,
                                       ByteWriter& writer) {
    put_index_stream(before, changes.positions, writer);
    escaped.clear();
    for (std::size_t i = 0; i < changes.positions.size(); ++i) {
      const auto delta =
          static_cast<std::uint16_t>(changes.values[i] - load_cell<std::uint16_t>(before.data(), changes.positions[i]));
      const auto zigzag = static_cast<std::uint16_t>((delta << 1) ^ -(delta >> 15));
      writer.put(static_cast<std::uint8_t>(std::min(zigzag, kValueEscape)));
      if (zigzag >= kValueEscape) escaped.push_back(zigzag);
    }
    writer.put_array(std::span<const std::uint16_t>(escaped));
  };
  return zstd_compress(write_sparse(base, result, tensors, body));
}

Status apply(Bytes patch, Bytes base, std::span<const TensorInfo> tensors, MutableBytes target, unsigned) {
  WC_ASSIGN(const auto content, zstd_decompress(patch, sparse_bytes_max(tensors)));
  const auto body = []<typename Cell>(const TensorInfo&, Bytes before, std::size_t changed, ByteReader& reader,
                                      MutableBytes cells) -> Status {
    // The scan writes the position of every changed cell, then the values follow: they lie behind the index stream.
    std::vector<std::uint32_t> positions;
    positions.reserve(changed);
    WC_TRY(get_index_stream(before, reader, [&](std::size_t position) {
      positions.push_back(static_cast<std::uint32_t>(position));
      return positions.size() <= changed;
    }));
    const Bytes symbols = reader.take(changed);
    if (reader.failed() || positions.size() != changed) return corrupt_patch();
    for (std::size_t i = 0; i < changed; ++i) {
      auto zigzag = static_cast<std::uint16_t>(symbols[i]);
      if (zigzag == kValueEscape) zigzag = reader.get<std::uint16_t>();
      const auto delta = static_cast<std::uint16_t>((zigzag >> 1) ^ -(zigzag & 1));
      const auto old = load_cell<std::uint16_t>(before.data(), positions[i]);
      store_cell(cells.data(), positions[i], static_cast<std::uint16_t>(old + delta));
    }
    return {};
  };
  return read_sparse(content, base, tensors, target, body);
}

}  // namespace

constinit const Codec kPulseRice = {"pulse-rice", encode, apply};

}  // namespace weightcast::bench
