#include "transport/node/payload/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/files/memory_file.h"
#include "patch/snapshot/safetensors.h"
#include "tests/patch/safetensors_bytes.h"
#include "tests/real_files.h"
#include "tests/result_matchers.h"

namespace weightcast {
namespace {

FileRef memory(const std::string& bytes) {
  auto file = std::make_shared<MemoryFile>(bytes.size());
  std::ranges::copy(std::as_bytes(std::span(bytes)), file->bytes().begin());
  return file;
}

Result<Sidecars> unpacked(const std::string& bytes) { return unpack_files(real_files(), memory(bytes), bytes.size()); }

TensorInfo tensor(std::string name, std::string dtype, std::vector<std::uint64_t> shape) {
  TensorInfo info;
  info.name = std::move(name);
  info.dtype = std::move(dtype);
  info.shape = std::move(shape);
  return info;
}

TEST(ModelFiles, AreUnpackedByName) {
  const auto files = unpacked(safetensors_bytes(
      R"({"config.json":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"empty.txt":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})",
      "{}"));
  ASSERT_TRUE(files.has_value()) << files.error().message();
  ASSERT_EQ(files->size(), 2u);
  std::string text(2, '\0');
  EXPECT_EQ(*files->at("config.json")->read_at(0, std::as_writable_bytes(std::span(text))), 2u);
  EXPECT_EQ(text, "{}");
  EXPECT_EQ(files->at("empty.txt")->info()->size_bytes, 0u);
}

// A program of the same user may send anything.
TEST(ModelFiles, AreRefusedWhereNoWorkerWouldTakeThem) {
  for (const char* const name : {"run.py", "../config.json", ".hidden.json", "model.safetensors", "x.bin",
                                 "model.safetensors.index.json", "a/b.json"}) {
    EXPECT_THAT(unpacked(safetensors_bytes(
                    std::string(R"({")") + name + R"(":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "{}")),
                FailsWith(Errc::kInvalidArgument, "is not one"))
        << name;
  }
  EXPECT_FALSE(unpacked(safetensors_bytes(R"({"config.json":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}})", "{}"))
                   .has_value());
  EXPECT_EQ(unpacked(std::string(100, '\0')).error().code, Errc::kCorrupt);
}

TEST(ModelFiles, AreBounded) {
  std::string many = "{";
  for (std::size_t i = 0; i <= kSidecarsMax; ++i) {
    many += (i > 0 ? "," : "") + std::string("\"") + std::to_string(i) +
            R"(.json":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  EXPECT_EQ(unpacked(safetensors_bytes(many + "}", "")).error().code, Errc::kTooLarge);
  const std::string large(kSidecarBytesMax + 1, ' ');
  const std::string end = std::to_string(large.size());
  EXPECT_EQ(
      unpacked(safetensors_bytes(
                   R"({"config.json":{"dtype":"U8","shape":[)" + end + R"(],"data_offsets":[0,)" + end + "]}}", large))
          .error()
          .code,
      Errc::kTooLarge);
}

TEST(ModelFiles, TensorsOfAnotherModelAreNamed) {
  const std::vector<TensorInfo> before{tensor("a", "BF16", {2, 3}), tensor("b", "F32", {4})};
  EXPECT_EQ(difference_of(before, before), std::nullopt);
  EXPECT_EQ(difference_of(before, std::vector{before[1], before[0]}), std::nullopt) << "in any order";
  EXPECT_EQ(difference_of(before, std::vector{tensor("a", "BF16", {3, 2}), tensor("c", "F32", {4})}),
            "'a' is BF16 [3, 2] and was BF16 [2, 3], 'c' is new, 'b' is gone");
  std::vector<TensorInfo> others;
  for (int i = 0; i < 10; ++i) others.push_back(tensor(std::to_string(i), "F32", {1}));
  EXPECT_EQ(difference_of({}, others), "'0' is new, '1' is new, '2' is new and 7 more");
}

TEST(ModelFiles, ThoseThatAreLostAreNamed) {
  const std::vector<SnapshotFile> before{{"model.safetensors", 9}, {"config.json", 2}, {"vocab.txt", 3}};
  EXPECT_EQ(lost_sidecars(before, std::vector<SnapshotFile>{{"a.safetensors", 9}, {"config.json", 5}}), "vocab.txt");
  EXPECT_EQ(lost_sidecars(before, before), "");
}

}  // namespace
}  // namespace weightcast
