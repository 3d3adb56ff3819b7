#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "patch/apply/patch_applier.h"
#include "patch/codec/cell.h"
#include "patch/codec/codec.h"

namespace weightcast::test {

inline const std::vector<CellKind> kAllKinds = {CellKind::kRaw8,   CellKind::kRaw16, CellKind::kRaw32, CellKind::kRaw64,
                                                CellKind::kBf16,   CellKind::kF16,   CellKind::kF32,   CellKind::kF64,
                                                CellKind::kF8E4M3, CellKind::kF8E5M2};

enum class Structure { kIndependent, kRows, kDense, kAnything, kNone };
inline const std::vector<Structure> kAllStructures = {Structure::kIndependent, Structure::kRows, Structure::kDense,
                                                      Structure::kAnything, Structure::kNone};

struct CellPair {
  std::vector<std::byte> before, after;
};

/// Old cells that look like weights (a normal distribution in the kind's own format, with zeros of both signs,
/// infinities and NaNs strewn in), and new ones that differ as `structure` and `density` say.
inline CellPair make_cells(CellKind kind, std::size_t cells, Structure structure, double density, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, 0.02);
  CellPair pair;
  with_cell_kind(kind, [&]<CellKind Kind>() {
    using Ops = CellOps<Kind>;
    using Cell = typename Ops::Cell;
    const CellGeometry geometry = Ops::kGeometry;
    std::vector<Cell> before(cells), after(cells);
    for (std::size_t i = 0; i < cells; ++i) {
      if (random() % 64 == 0 || !geometry.is_float()) {
        before[i] = Cell(random());
      } else {
        const double value = normal(random);
        int exponent = 0;
        const double mantissa = std::frexp(std::fabs(value), &exponent);
        const int bias = (1 << (geometry.exponent_bits - 1)) - 2;
        const auto biased = std::uint64_t(std::max(exponent + bias, 0));
        const auto bits = std::uint64_t((mantissa * 2 - 1) * std::ldexp(1.0, int(geometry.mantissa_bits)));
        before[i] = Cell(biased << geometry.mantissa_bits | bits);
        if (value < 0) before[i] = Cell(before[i] | Cell(Cell(1) << (Ops::kBits - 1)));
      }
      after[i] = before[i];
      const bool row = (i / 512) % 7 == 3;
      const bool changes =
          structure == Structure::kDense || structure == Structure::kAnything ||
          (structure == Structure::kRows && row) ||
          (structure == Structure::kIndependent && std::uniform_real_distribution<>()(random) < density);
      if (!changes) continue;
      after[i] = structure == Structure::kAnything ? Cell(random()) : Ops::advance(before[i], Cell(1 + random() % 3));
    }
    const auto bytes_of = [](const std::vector<Cell>& from) {
      const Bytes bytes = std::as_bytes(std::span(from));
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    };
    pair = {bytes_of(before), bytes_of(after)};
  });
  return pair;
}

/// A snapshot in memory.
struct Snapshot {
  SnapshotLayout layout;
  std::vector<std::byte> stream;

  void add(const std::string& name, const std::string& dtype, std::vector<std::uint64_t> shape, Bytes bytes) {
    layout.tensors.push_back({name, dtype, std::move(shape), stream.size(), bytes.size()});
    add_raw(bytes);
  }
  void add_raw(Bytes bytes) {
    stream.insert(stream.end(), bytes.begin(), bytes.end());
    layout.size_bytes = stream.size();
  }
};

inline Bytes text_bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

/// Two versions with the same tensors: a header, two BF16 matrices, a norm, a table of integers.
inline std::pair<Snapshot, Snapshot> make_versions(std::size_t cells, double density, std::uint64_t seed) {
  std::pair<Snapshot, Snapshot> versions;
  auto& [before, after] = versions;
  before.add_raw(text_bytes("{header one}"));
  after.add_raw(text_bytes("{header two}"));
  const auto both = [&](const char* name, const char* dtype, CellKind kind, std::size_t count) {
    const CellPair pair = make_cells(kind, count, Structure::kIndependent, density, seed++);
    before.add(name, dtype, {count}, pair.before);
    after.add(name, dtype, {count}, pair.after);
  };
  both("embed", "BF16", CellKind::kBf16, cells);
  both("norm", "F32", CellKind::kF32, cells / 64 + 1);
  both("table", "I64", CellKind::kRaw64, cells / 128 + 1);
  both("head", "BF16", CellKind::kBf16, cells / 2 + 3);
  return versions;
}

inline PatchIdentity make_identity(std::uint64_t base_version = 7) {
  PatchIdentity identity;
  identity.model_id = "qwen";
  identity.base_version = Version(base_version);
  identity.version = Version(base_version + 1);
  return identity;
}

/// From bytes in memory to bytes in memory.
class MemoryStreams final : public ApplyStreams {
 public:
  MemoryStreams(Bytes base, MutableBytes result) : base_(base), result_(result) {}

  Status read_base(std::uint64_t offset, MutableBytes cells) override {
    std::ranges::copy(base_.subspan(offset, cells.size()), cells.begin());
    return {};
  }
  Status write_result(std::uint64_t offset, Bytes after) override {
    std::ranges::copy(after, result_.begin() + std::ptrdiff_t(offset));
    return {};
  }

 private:
  const Bytes base_;
  const MutableBytes result_;
};

inline FileTable one_file(std::uint64_t bytes) { return *FileTable::make({{"model.safetensors", bytes}}); }

/// Applies a whole patch by `threads` threads, as far as it goes.
inline Result<Checksum> apply_patch(Bytes patch, Bytes base, MutableBytes result, unsigned threads = 1,
                                    ApplyOptions options = {}) {
  MemoryStreams streams(base, result);
  PatchReader reader;
  std::optional<PatchApplier> applier;
  std::mutex mutex;
  std::optional<Error> failed;
  const auto next = [&]() -> std::optional<OwnedSegment> {
    const std::lock_guard lock(mutex);
    while (!failed && !patch.empty()) {
      const Result<std::size_t> taken = reader.handle_bytes(patch);
      if (!taken) {
        failed = taken.error();
        break;
      }
      patch = patch.subspan(*taken);
      if (!applier && reader.head() != nullptr) {
        const PatchHead& head = *reader.head();
        if (const Status checked = check_head(head, head.identity, base.size(), result.size()); !checked) {
          failed = checked.error();
          break;
        }
        applier.emplace(plan_segments(head), one_file(result.size()), streams, options);
      }
      if (std::optional<OwnedSegment> segment = reader.poll_segment()) return segment;
    }
    return std::nullopt;
  };
  const auto work = [&] {
    while (const std::optional<OwnedSegment> segment = next()) {
      if (const Status applied = applier->apply(segment->view()); !applied) {
        const std::lock_guard lock(mutex);
        if (!failed) failed = applied.error();
      }
    }
  };
  {
    std::vector<std::jthread> others;
    for (unsigned i = 1; i < threads; ++i) others.emplace_back(work);
    work();
  }
  if (failed) return *failed;
  if (reader.end() == nullptr) return fail(Errc::kCorrupt, Op::kParse, "patch: it is cut short");
  return applier->finish(*reader.end());
}

/// The digest of a snapshot in one file.
inline Checksum digest_of_file(Bytes stream) {
  SnapshotDigest digest(one_file(stream.size()));
  digest.add(0, stream);
  return digest.root();
}

/// The whole patch, which must be possible.
inline std::vector<std::byte> make_patch(const Snapshot& before, const Snapshot& after,
                                         std::uint32_t segment_bytes = 65536, EncodeOptions options = {},
                                         PatchIdentity identity = make_identity()) {
  std::vector<std::byte> patch;
  const auto head = make_head(std::move(identity), before.layout, after.layout, segment_bytes);
  WC_CHECK(head.has_value());
  const auto made =
      encode_patch(*head, MemorySource(before.stream), MemorySource(after.stream), options, [&](Bytes bytes) {
        patch.insert(patch.end(), bytes.begin(), bytes.end());
        return Status();
      });
  WC_CHECK(made.has_value() && made->patch_bytes == patch.size());
  return patch;
}

/// The parts of a patch.
struct PatchParts {
  PatchHead head;
  std::vector<OwnedSegment> segments;
  PatchEnd end;
};

inline PatchParts split(Bytes patch, std::size_t bytes_at_once = 1u << 30) {
  PatchReader reader;
  PatchParts parts;
  while (!patch.empty()) {
    const auto taken = reader.handle_bytes(patch.first(std::min(bytes_at_once, patch.size())));
    WC_CHECK(taken.has_value());
    patch = patch.subspan(*taken);
    if (auto segment = reader.poll_segment()) parts.segments.push_back(std::move(*segment));
  }
  WC_CHECK(reader.end() != nullptr);
  parts.head = *reader.head();
  parts.end = *reader.end();
  return parts;
}

}  // namespace weightcast::test
