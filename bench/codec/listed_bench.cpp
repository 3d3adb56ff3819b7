#include "bench/codec/listed_bench.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <random>

#include "bench/codec/cost.h"
#include "patch/codec/listed.h"
#include "patch/codec/segment_codec.h"

namespace weightcast::bench {
namespace {

constexpr std::size_t kCellBytes = 2;
constexpr std::size_t kSegmentCells = kSegmentBytesDefault / kCellBytes;
constexpr double kOneStepShare = 0.97;
constexpr unsigned kLongSteps = 4;

/// The changes of one segment, with both values of each.
struct Changes {
  std::vector<std::uint32_t> cells;
  std::vector<std::uint16_t> before, after;
};

struct Content {
  std::vector<std::uint16_t> before, after;
  std::vector<Changes> changes;
  std::uint64_t changed = 0;

  [[nodiscard]] SegmentRange range(std::size_t segment) const {
    const std::uint64_t offset = segment * kSegmentBytesDefault;
    return {static_cast<std::uint32_t>(segment), offset, offset, kSegmentBytesDefault, CellKind::kBf16};
  }
};

void change(Content& content, double share, std::mt19937_64& random) {
  using Ops = CellOps<CellKind::kBf16>;
  content.after = content.before;
  content.changes.assign(content.before.size() / kSegmentCells, {});
  content.changed = 0;
  std::geometric_distribution<std::uint64_t> gap(share);
  std::bernoulli_distribution one(kOneStepShare);
  for (std::uint64_t cell = gap(random); cell < content.before.size(); cell += 1 + gap(random)) {
    const unsigned size = one(random) ? 1 : 2 + static_cast<unsigned>(random() % kLongSteps);
    const auto step = static_cast<std::uint16_t>(random() % 2 == 0 ? size : 0 - size);
    const std::uint16_t before = content.before[cell], after = Ops::advance(before, step);
    content.after[cell] = after;
    Changes& changes = content.changes[cell / kSegmentCells];
    changes.cells.push_back(static_cast<std::uint32_t>(cell % kSegmentCells));
    changes.before.push_back(before);
    changes.after.push_back(after);
    ++content.changed;
  }
}

double entropy_bits(double share) {
  const double place = -std::log2(share) - (1 - share) / share * std::log2(1 - share);
  const double one = kOneStepShare / 2, other = (1 - kOneStepShare) / (2 * kLongSteps);
  return place - 2 * one * std::log2(one) - 2 * kLongSteps * other * std::log2(other);
}

/// Calls `body` with each segment of `patch`.
template <typename Body>
Status for_each_segment(Bytes patch, const Body& body) {
  while (!patch.empty()) {
    WC_ASSIGN(const SegmentHeader header, peek_segment(patch));
    const std::size_t frame_bytes = kSegmentHeaderBytes + header.payload_bytes;
    WC_ASSIGN(const Segment segment, read_segment(patch.first(frame_bytes)));
    WC_TRY(body(segment));
    patch = patch.subspan(frame_bytes);
  }
  return {};
}

Status check_cells(const Content& content, const std::vector<std::uint16_t>& cells, std::string_view what) {
  if (cells == content.after) return {};
  return fail(Errc::kCorrupt, Op::kDecode, fmt::format("{}: it does not give the new cells", what));
}

Result<ListedCase> measure(const Content& content, double share, unsigned repetitions) {
  const Bytes before = std::as_bytes(std::span(content.before)), after = std::as_bytes(std::span(content.after));
  const std::size_t segments = content.changes.size();
  Cost encode, compare, modelled_encode, decode, steps, write, modelled_apply;
  std::vector<std::byte> patch, other;
  // Memory is taken when it is written: what is measured is the code, not a vector's growth.
  patch.reserve(before.size() / 2);
  other.reserve(before.size() / 2);
  std::vector<CellChanges> lists(segments);
  std::vector<std::byte> old_values;
  std::vector<std::uint16_t> cells;
  ListedEncoder list_encoder;
  SegmentEncoder comparing(best_kernels(), SparseForm::kListed), modelling;
  const auto compare_all = [&](SegmentEncoder& encoder) {
    other.clear();
    for (std::size_t s = 0; s < segments; ++s) {
      const SegmentRange range = content.range(s);
      encoder.encode(range, before.subspan(range.base_offset, range.size_bytes),
                     after.subspan(range.result_offset, range.size_bytes), other);
    }
  };
  double modelled_bytes = 0;
  Status status;
  for (unsigned repetition = 0; repetition < repetitions; ++repetition) {
    encode.measure([&] {
      patch.clear();
      for (std::size_t s = 0; s < segments && status; ++s) {
        const Changes& changes = content.changes[s];
        const auto header =
            list_encoder.encode(content.range(s), changes.cells, std::as_bytes(std::span(changes.before)),
                                std::as_bytes(std::span(changes.after)), patch);
        if (!header) status = header.error();
      }
    });
    WC_TRY(status);
    cells = content.before;
    auto* const at = reinterpret_cast<std::byte*>(cells.data());
    ListedDecoder decoder;
    decode.measure([&] {
      status = for_each_segment(
          patch, [&](const Segment& segment) { return decoder.decode(segment, lists[segment.header.range.index]); });
    });
    WC_TRY(status);
    Checksum digest;
    steps.measure([&] {
      for (std::size_t s = 0; s < segments; ++s) {
        old_values.resize(lists[s].values.size());
        digest = apply_steps(CellKind::kBf16, at + content.range(s).base_offset, lists[s], old_values.data());
      }
    });
    write.measure([&] {
      for (std::size_t s = 0; s < segments; ++s) {
        write_changes(lists[s], kCellBytes, at + content.range(s).result_offset);
      }
    });
    if (digest != checksum_of(std::as_bytes(std::span(content.changes.back().after)))) {
      return fail(Errc::kCorrupt, Op::kDecode, "a list: its digest is not that of the new cells");
    }
    WC_TRY(check_cells(content, cells, "a list"));
    compare.measure([&] { compare_all(comparing); });
    if (other != patch) return fail(Errc::kCorrupt, Op::kEncode, "comparing and listing give different patches");
    modelled_encode.measure([&] { compare_all(modelling); });
    modelled_bytes = static_cast<double>(other.size());
    cells = content.before;
    modelled_apply.measure([&] {
      status = for_each_segment(other, [&](const Segment& segment) {
        const SegmentRange& range = segment.header.range;
        const MutableBytes window(at + range.result_offset, range.size_bytes);
        return decode_segment(segment, window, window);
      });
    });
    WC_TRY(status);
    WC_TRY(check_cells(content, cells, "the modelled form"));
  }
  const auto changed = static_cast<double>(content.changed);
  const double gib = static_cast<double>(before.size()) / static_cast<double>(1u << 30);
  ListedCase result;
  result.share = share;
  result.changed = content.changed;
  result.bits_per_changed = 8 * static_cast<double>(patch.size()) / changed;
  result.modelled_bits_per_changed = 8 * modelled_bytes / changed;
  result.entropy_bits_per_changed = entropy_bits(share);
  result.encode_s_per_gib = encode.cpu_s / gib;
  result.compare_s_per_gib = compare.cpu_s / gib;
  result.modelled_encode_s_per_gib = modelled_encode.cpu_s / gib;
  result.decode_s_per_gib = decode.cpu_s / gib;
  result.steps_s_per_gib = steps.cpu_s / gib;
  result.write_s_per_gib = write.cpu_s / gib;
  result.modelled_apply_s_per_gib = modelled_apply.cpu_s / gib;
  return result;
}

}  // namespace

Result<std::vector<ListedCase>> run_listed_bench(const ListedBenchOptions& options,
                                                 const std::function<void(const ListedCase&)>& on_case) {
  const std::uint64_t segments = options.size_bytes / kSegmentBytesDefault;
  if (segments == 0) return fail(Errc::kInvalidArgument, Op::kConfigure, "the size is below one segment of 8 MiB");
  for (const double share : options.shares) {
    if (share > 0 && share <= 0.5) continue;
    return fail(Errc::kInvalidArgument, Op::kConfigure, fmt::format("a share of {}: above 0, at most 0.5", share));
  }
  std::mt19937_64 random(1);
  Content content;
  content.before.resize(segments * kSegmentCells);
  // A few exponents, any mantissa and sign.
  for (std::uint16_t& cell : content.before) cell = static_cast<std::uint16_t>(0x3b00 + (random() & 0x81ff));
  std::vector<ListedCase> cases;
  for (const double share : options.shares) {
    change(content, share, random);
    if (content.changes.back().cells.empty()) {
      return fail(Errc::kInvalidArgument, Op::kConfigure, fmt::format("a share of {} changes nothing", share));
    }
    WC_ASSIGN(const ListedCase measured, measure(content, share, options.repetitions));
    cases.push_back(measured);
    if (on_case) on_case(measured);
  }
  return cases;
}

std::string listed_table_heading() {
  return fmt::format("{:>7} {:>8} {:>8} {:>8} | {:>8} {:>8} {:>8} | {:>8} {:>8} {:>8} {:>8} | {:>10}", "changed",
                     "bits", "entropy", "modelled", "list", "compare", "modelled", "decode", "steps", "write",
                     "modelled", "M dec./s");
}

std::string listed_table_line(const ListedCase& c) {
  const double gib_cells = static_cast<double>(1u << 30) / kCellBytes;
  return fmt::format(
      "{:>6.2f}% {:>8.3f} {:>8.3f} {:>8.3f} | {:>8.4f} {:>8.4f} {:>8.4f} | {:>8.4f} {:>8.4f} {:>8.4f} {:>8.4f} | "
      "{:>10.0f}",
      100 * c.share, c.bits_per_changed, c.entropy_bits_per_changed, c.modelled_bits_per_changed, c.encode_s_per_gib,
      c.compare_s_per_gib, c.modelled_encode_s_per_gib, c.decode_s_per_gib, c.steps_s_per_gib, c.write_s_per_gib,
      c.modelled_apply_s_per_gib, c.share * gib_cells / c.decode_s_per_gib / 1e6);
}

}  // namespace weightcast::bench
