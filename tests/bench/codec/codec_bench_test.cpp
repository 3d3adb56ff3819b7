#include "bench/codec/codec_bench.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

namespace weightcast::bench {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The lines of the table, without those of codecs whose sizes depend on libzstd unless `with_zstd`.
std::set<std::string> lines_of(const std::string& table, bool with_zstd) {
  std::set<std::string> lines;
  std::istringstream in(table);
  for (std::string line; std::getline(in, line);) {
    bool keep = !line.starts_with("#");
    for (const Codec& codec : bench_codecs()) {
      if (codec.uses_zstd && !with_zstd && line.find("," + std::string(codec.name) + ",") != std::string::npos)
        keep = false;
    }
    if (keep) lines.insert(line);
  }
  return lines;
}

TEST(SizeTable, IsTheCommittedOne) {
  const std::string committed = read_file(WEIGHTCAST_SIZES_CSV);
  ASSERT_FALSE(committed.empty()) << WEIGHTCAST_SIZES_CSV;
  const auto measured = size_table(2);
  ASSERT_TRUE(measured.has_value()) << measured.error().message();
  const bool same_zstd = size_table_zstd_version(committed) == linked_zstd_version();
  const std::set<std::string> now = lines_of(*measured, same_zstd);
  const std::set<std::string> then = lines_of(committed, same_zstd);
  for (const std::string& line : now) EXPECT_TRUE(then.contains(line)) << "new: " << line;
  for (const std::string& line : then) EXPECT_TRUE(now.contains(line)) << "gone: " << line;
  EXPECT_FALSE(HasFailure()) << "if this is meant: weightcast-bench codec --update-sizes bench/codec/sizes.csv";
}

TEST(CodecBench, MeasuresEveryCodecOnEveryTraceThatItKnows) {
  CodecBenchOptions options;
  options.cells_min = 20'000;
  options.threads = 2;
  options.repetitions = 2;
  const auto cases = run_codec_bench(options);
  ASSERT_TRUE(cases.has_value()) << cases.error().message();
  std::set<std::string> traces;
  for (const CodecCase& c : *cases) {
    traces.insert(c.trace);
    EXPECT_GE(c.cells, options.cells_min);
    EXPECT_GT(c.changed, 0u);
    EXPECT_GT(c.bytes, 0u);
    EXPECT_GT(c.encode_cells_per_s, 0);
    EXPECT_GT(c.apply_cells_per_s, 0);
    EXPECT_GT(c.memcmp_cells_per_cpu_s, 0);
    EXPECT_LE(c.tensor_entropy_bits_per_changed, c.entropy_bits_per_changed + 1e-9);
  }
  EXPECT_EQ(traces.size(), 9u);
  EXPECT_GE(cases->size(), 9u * (bench_codecs().size() - 1));
}

TEST(CodecBench, TellsTheCasesAsJson) {
  CodecBenchOptions options;
  options.cells_min = 5000;
  options.threads = 1;
  options.repetitions = 1;
  options.traces = {"bf16-matrix-lr1e-6"};
  options.codecs = {"raw-int32", "xor-zstd"};
  const auto cases = run_codec_bench(options);
  ASSERT_TRUE(cases.has_value()) << cases.error().message();
  const nlohmann::json told = to_json(*cases);
  ASSERT_EQ(told.at("cases").size(), 2u);
  for (const auto& c : told.at("cases")) {
    EXPECT_EQ(c.at("trace"), "bf16-matrix-lr1e-6");
    for (const char* member : {"codec", "cells", "changed", "bytes", "bits_per_changed", "entropy_bits_per_changed",
                               "encode_cells_per_s", "apply_cells_per_s", "threads"}) {
      EXPECT_TRUE(c.contains(member)) << member;
    }
  }
}

TEST(CodecBench, RefusesNamesThatThereAreNoneOf) {
  CodecBenchOptions options;
  options.cells_min = 1000;
  options.codecs = {"xor-zsdt"};
  const auto cases = run_codec_bench(options);
  ASSERT_FALSE(cases.has_value());
  EXPECT_EQ(cases.error().code, Errc::kInvalidArgument);
  EXPECT_NE(cases.error().detail.find("xor-zstd"), std::string::npos) << "names those that there are";
  options.codecs.clear();
  options.traces = {"bf16"};
  EXPECT_FALSE(run_codec_bench(options).has_value());
}

}  // namespace
}  // namespace weightcast::bench
