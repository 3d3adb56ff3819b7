#include "bench/codec/packed_bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/heap.h"
#include "base/json_of.h"
#include "bench/codec/cost.h"
#include "bench/codec/packed_content.h"
#include "bench/codec/packer.h"
#include "bench/codec/zipnn_rival.h"
#include "patch/codec/entropy/byte_rans.h"

namespace weightcast::bench {
namespace {

constexpr std::string_view kZipnn = "zipnn";
constexpr std::uint64_t kSeed = 1;
// As an origin cuts a snapshot, so that each has its own tables.
constexpr std::size_t kEntropySegmentBytes = 1 << 20;

/// Errors: kInvalidArgument, listing what there is.
Status check_names(const std::vector<std::string>& names, const std::vector<std::string>& known,
                   std::string_view what) {
  for (const std::string& name : names) {
    if (std::ranges::find(known, name) != known.end()) continue;
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("{} '{}': there are {}", what, name, fmt::join(known, ", ")));
  }
  return {};
}

bool chosen(const std::vector<std::string>& names, std::string_view name) {
  return names.empty() || std::ranges::find(names, name) != names.end();
}

double plane_entropy_bytes(CellKind kind, Bytes content) {
  const CellGeometry geometry = geometry_of(kind);
  std::vector<std::byte> split(kEntropySegmentBytes);
  double bits = 0;
  for (std::size_t at = 0; at < content.size(); at += kEntropySegmentBytes) {
    const std::size_t count = std::min(kEntropySegmentBytes, content.size() - at) / geometry.bytes;
    std::array<std::byte*, kCellBytesMax> planes{};
    for (unsigned p = 0; p < geometry.bytes; ++p) planes[p] = split.data() + p * count;
    best_kernels().split(geometry.bytes, geometry.is_float(), content.data() + at, nullptr, count, planes.data());
    for (unsigned p = 0; p < geometry.bytes; ++p) bits += order0_bits(count_bytes({planes[p], count}));
  }
  return bits / 8;
}

struct Contender {
  Packer packer;
  std::vector<std::byte> room;
  std::size_t packed_bytes = 0;
  Cost pack, unpack;
};

Status run_once(Contender& contender, const PackedContentSpec& spec, Bytes content, std::vector<std::byte>& target) {
  std::optional<Result<std::size_t>> packed;
  contender.pack.measure([&] { packed.emplace(contender.packer.pack(spec.kind, content, contender.room)); });
  if (!packed->has_value()) return packed->error();
  contender.packed_bytes = **packed;
  Status unpacked;
  contender.unpack.measure([&] {
    unpacked = contender.packer.unpack(spec.kind, Bytes(contender.room).first(contender.packed_bytes), target);
  });
  WC_TRY(std::move(unpacked));
  if (std::memcmp(target.data(), content.data(), content.size()) == 0) return {};
  return fail(Errc::kCorrupt, Op::kVerify,
              fmt::format("the round trip of {} on {}: other cells come back", contender.packer.name, spec.name));
}

Result<std::vector<PackedCase>> run_content(const PackedContentSpec& spec, const PackedBenchOptions& options,
                                            const std::function<void(const PackedCase&)>& on_case,
                                            const std::function<void(const Error&)>& on_skipped) {
  const std::vector<std::byte> content =
      make_packed_content(spec, options.size_bytes, kSeed, std::max(1u, options.threads));
  PackedCase common;
  common.content = spec.name;
  common.bytes = content.size();
  common.plane_entropy_bytes = plane_entropy_bytes(spec.kind, content);

  std::vector<std::byte> target(content.size());
  Cost copy;
  for (unsigned i = 0; i < options.repetitions; ++i) {
    copy.measure([&] { std::memcpy(target.data(), content.data(), content.size()); });
  }
  const auto bytes = double(content.size());
  common.memcpy_bytes_per_cpu_s = bytes / copy.cpu_s;

  std::vector<PackedCase> cases;
  const auto tell = [&](std::string_view packer, std::size_t packed_bytes, double pack_cpu_s, double unpack_cpu_s) {
    PackedCase& packed_case = cases.emplace_back(common);
    packed_case.packer = packer;
    packed_case.packed_bytes = packed_bytes;
    packed_case.pack_bytes_per_cpu_s = bytes / pack_cpu_s;
    packed_case.unpack_bytes_per_cpu_s = bytes / unpack_cpu_s;
    if (on_case) on_case(packed_case);
  };
  std::vector<std::byte> room;  // one for all: whose first touch of it was paid for stays unclear otherwise
  for (Packer& packer : packers()) {
    if (!chosen(options.packers, packer.name)) continue;
    Contender contender;
    contender.packer = std::move(packer);
    contender.room = std::move(room);
    // One more, for the first touch.
    for (unsigned i = 0; i < options.repetitions + 1; ++i) WC_TRY(run_once(contender, spec, content, target));
    tell(contender.packer.name, contender.packed_bytes, contender.pack.cpu_s, contender.unpack.cpu_s);
    room = std::move(contender.room);
  }
  if (!chosen(options.packers, kZipnn)) return cases;
  room = {};
  target = {};
  Result<ZipnnCost> zipnn = run_zipnn(spec.kind, content, options.repetitions);
  if (zipnn.has_value()) {
    tell(kZipnn, zipnn->packed_bytes, zipnn->pack_cpu_s, zipnn->unpack_cpu_s);
  } else if (zipnn.error().code != Errc::kNotFound) {
    return zipnn.error();
  } else if (on_skipped) {
    on_skipped(zipnn.error());
  }
  return cases;
}

}  // namespace

std::vector<std::string> packer_names() {
  std::vector<std::string> names;
  for (const Packer& packer : packers()) names.push_back(packer.name);
  names.emplace_back(kZipnn);
  return names;
}

Result<std::vector<PackedCase>> run_packed_bench(const PackedBenchOptions& options,
                                                 const std::function<void(const PackedCase&)>& on_case,
                                                 const std::function<void(const Error&)>& on_skipped) {
  if (options.size_bytes == 0 || options.repetitions == 0) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                "the packed bench: it needs at least one byte and one repetition");
  }
  std::vector<std::string> contents;
  for (const PackedContentSpec& spec : packed_contents()) contents.emplace_back(spec.name);
  WC_TRY(check_names(options.contents, contents, "content"));
  WC_TRY(check_names(options.packers, packer_names(), "packer"));
  set_up_heap();
  std::vector<PackedCase> all;
  for (const PackedContentSpec& spec : packed_contents()) {
    if (!chosen(options.contents, spec.name)) continue;
    WC_ASSIGN(const auto cases, run_content(spec, options, on_case, on_skipped));
    all.insert(all.end(), cases.begin(), cases.end());
  }
  return all;
}

nlohmann::json to_json(std::span<const PackedCase> cases) {
  auto list = nlohmann::json::array();
  for (const PackedCase& c : cases) {
    list.push_back(WC_JSON_OF(c.content, c.packer, c.bytes, c.packed_bytes, c.pack_bytes_per_cpu_s,
                              c.unpack_bytes_per_cpu_s, c.plane_entropy_bytes, c.memcpy_bytes_per_cpu_s));
  }
  return {{"cases", std::move(list)}};
}

std::string packed_table_heading() {
  return fmt::format("{:<8} {:<18} {:>12} {:>12} {:>7} {:>7} | {:>7} {:>7} {:>7}\n{:>69} | {:^23}", "content", "packer",
                     "bytes", "packed", "share", "entropy", "pack", "unpack", "memcpy", "", "GB/CPU s");
}

std::string packed_table_line(const PackedCase& c) {
  const auto bytes = double(c.bytes);
  return fmt::format("{:<8} {:<18} {:>12} {:>12} {:>7.4f} {:>7.4f} | {:>7.2f} {:>7.2f} {:>7.2f}", c.content, c.packer,
                     c.bytes, c.packed_bytes, double(c.packed_bytes) / bytes, c.plane_entropy_bytes / bytes,
                     c.pack_bytes_per_cpu_s / 1e9, c.unpack_bytes_per_cpu_s / 1e9, c.memcpy_bytes_per_cpu_s / 1e9);
}

}  // namespace weightcast::bench
