#include "bench/codec/packed_bench.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/codec/packed_content.h"
#include "bench/codec/packer.h"
#include "bench/codec/trace.h"
#include "bench/codec/zipnn_rival.h"
#include "patch/kernels/kernels.h"

namespace weightcast::bench {
namespace {

// Neither a multiple of a segment nor of a vector.
constexpr std::uint64_t kBytes = 3'000'000;

std::vector<std::string> all_but_zipnn() {
  std::vector<std::string> names = packer_names();
  names.pop_back();
  return names;
}

TEST(PackedBench, MeasuresEveryPackerOnEveryContent) {
  PackedBenchOptions options;
  options.size_bytes = kBytes;
  options.repetitions = 1;
  options.packers = all_but_zipnn();
  std::size_t told = 0;
  const auto cases = run_packed_bench(options, [&](const PackedCase&) { ++told; });
  ASSERT_TRUE(cases.has_value()) << cases.error().message();
  EXPECT_EQ(cases->size(), packed_contents().size() * options.packers.size());
  EXPECT_EQ(told, cases->size());
  EXPECT_EQ(options.packers.size(), available_kernels().size() + 3);
  std::set<std::pair<std::string, std::uint64_t>> own_sizes;
  for (const PackedCase& c : *cases) {
    EXPECT_GT(c.pack_bytes_per_cpu_s, 0) << c.packer;
    EXPECT_GT(c.unpack_bytes_per_cpu_s, 0) << c.packer;
    EXPECT_GT(c.memcpy_bytes_per_cpu_s, 0);
    if (!c.packer.starts_with("weightcast")) continue;
    own_sizes.insert({c.content, c.packed_bytes});
    // The tables of frequencies and the coder's rounding; nothing can be below by more than whole planes that zstd has.
    EXPECT_LT(double(c.packed_bytes), 1.01 * c.plane_entropy_bytes) << c.content;
  }
  EXPECT_EQ(own_sizes.size(), packed_contents().size()) << "kernels differ in their bytes";
  const auto json = to_json(*cases);
  EXPECT_EQ(json.at("cases").size(), cases->size());
  EXPECT_TRUE(json.at("cases").at(0).contains("plane_entropy_bytes"));
  EXPECT_NE(packed_table_line(cases->front()).find(cases->front().packer), std::string::npos);
}

TEST(PackedBench, RefusesNamesThatItDoesNotKnowAndNothingToDo) {
  PackedBenchOptions options;
  options.size_bytes = kBytes;
  options.packers = {"zstd-2"};
  const auto packer = run_packed_bench(options);
  ASSERT_FALSE(packer.has_value());
  EXPECT_NE(packer.error().message().find("zipnn"), std::string::npos) << packer.error().message();
  options.packers = {};
  options.contents = {"f4"};
  EXPECT_FALSE(run_packed_bench(options).has_value());
  options.contents = {};
  options.repetitions = 0;
  EXPECT_FALSE(run_packed_bench(options).has_value());
}

TEST(PackedBench, PackersRefuseWhatIsCutShort) {
  const PackedContentSpec& spec = packed_contents().front();
  const std::vector<std::byte> content = make_packed_content(spec, kBytes, 1, 1);
  std::vector<std::byte> target(content.size());
  for (const Packer& packer : packers()) {
    std::vector<std::byte> room;
    const auto size = packer.pack(spec.kind, content, room);
    ASSERT_TRUE(size.has_value());
    EXPECT_FALSE(packer.unpack(spec.kind, Bytes(room).first(*size - 1), target).has_value()) << packer.name;
  }
}

TEST(PackedBench, ZipnnGivesTheCellsBack) {
  for (const PackedContentSpec& spec : packed_contents()) {
    const std::vector<std::byte> content = make_packed_content(spec, 1 << 20, 1, 1);
    const auto zipnn = run_zipnn(spec.kind, content, 1);
    if (!zipnn.has_value() && zipnn.error().code == Errc::kNotFound) GTEST_SKIP() << zipnn.error().message();
    ASSERT_TRUE(zipnn.has_value()) << zipnn.error().message();
    EXPECT_GT(zipnn->packed_bytes, content.size() / 2);
    EXPECT_LT(zipnn->packed_bytes, content.size() * 101 / 100) << spec.name;
  }
}

TEST(PackedContent, IsTheSameForEveryNumberOfThreads) {
  for (const PackedContentSpec& spec : packed_contents()) {
    EXPECT_EQ(make_packed_content(spec, kBytes, 7, 1), make_packed_content(spec, kBytes, 7, 3)) << spec.name;
    EXPECT_NE(make_packed_content(spec, kBytes, 7, 1), make_packed_content(spec, kBytes, 8, 1)) << spec.name;
  }
}

TEST(PackedContent, RoundsToF16AsIeee754Does) {
  EXPECT_EQ(to_f16(1.0f), 0x3c00);
  EXPECT_EQ(to_f16(-2.0f), 0xc000);
  EXPECT_EQ(to_f16(0.1f), 0x2e66);
  EXPECT_EQ(to_f16(65504.0f), 0x7bff);
  EXPECT_EQ(to_f16(1.0f + 0x1p-11f), 0x3c00) << "a tie goes to even";
  EXPECT_EQ(to_f16(1.0f + 0x3p-11f), 0x3c02) << "a tie goes to even";
  EXPECT_EQ(to_f16(0x1p-14f), 0x0400) << "the least that is normal";
  EXPECT_EQ(to_f16(0x1p-14f - 0x1p-26f), 0x0400) << "rounds up to the least that is normal";
  EXPECT_EQ(to_f16(0x1p-24f), 0x0001);
  EXPECT_EQ(to_f16(0x1p-25f), 0x0000) << "a tie goes to even";
  EXPECT_EQ(to_f16(-0.0f), 0x8000);
}

}  // namespace
}  // namespace weightcast::bench
