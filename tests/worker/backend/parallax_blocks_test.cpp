#include "worker/backend/parallax_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/files/posix_file_system.h"
#include "patch/snapshot/snapshot.h"
#include "tests/worker/engine/written_models.h"

namespace weightcast {
namespace {

using testing::ElementsAre;

TEST(Cid, IsThatOfOthers) {
  // The empty file, as `ipfs add --cid-version 1 --raw-leaves` names it.
  EXPECT_EQ(cid_of({}), "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku");
}

TEST(ParallaxBlocks, HoldAllBytesOfAVersion) {
  PosixFileSystem files;
  const TestDirectory directory;
  const std::filesystem::path version = directory / "1";
  const std::filesystem::path blocks = directory / "blocks";
  write_model(version, {});
  const SnapshotSource source = SnapshotSource::open(files, version.string()).value();
  const ParallaxIndex index = write_parallax_blocks(files, version, blocks, 512).value();
  std::size_t parts = 0;
  for (const TensorInfo& tensor : source.tensors()) {
    std::vector<std::byte> wanted(tensor.size_bytes), found;
    ASSERT_TRUE(source.read_at(tensor.offset_bytes, wanted).has_value());
    std::vector<std::string> names;
    if (index.contains(tensor.name)) {
      names = {tensor.name};
    } else {
      for (int i = 0; index.contains(tensor.name + "_part" + std::to_string(i)); ++i) {
        names.push_back(tensor.name + "_part" + std::to_string(i));
        ++parts;
      }
    }
    std::uint64_t rows = 0;
    for (const std::string& name : names) {
      const std::filesystem::path path = blocks / index.at(name);
      const SnapshotSource block = SnapshotSource::open(files, path.string()).value();
      ASSERT_EQ(block.tensors().size(), 1u);
      EXPECT_EQ(block.tensors()[0].name, name);
      EXPECT_EQ(block.tensors()[0].dtype, tensor.dtype);
      rows += block.tensors()[0].shape[0];
      std::vector<std::byte> bytes(block.tensors()[0].size_bytes);
      ASSERT_TRUE(block.read_at(block.tensors()[0].offset_bytes, bytes).has_value());
      found.insert(found.end(), bytes.begin(), bytes.end());
      const std::string whole = read_file(files, path, 1 << 20).value();
      EXPECT_EQ(cid_of(std::as_bytes(std::span(whole))), index.at(name));
    }
    EXPECT_EQ(found, wanted) << tensor.name;
    EXPECT_EQ(rows, tensor.shape[0]);
  }
  EXPECT_GT(parts, 10u);
}

TEST(ParallaxBlocks, AreRemovedWhenNoVersionHasThem) {
  PosixFileSystem files;
  const TestDirectory directory;
  const std::filesystem::path blocks = directory / "blocks";
  ASSERT_TRUE(files.make_directory(blocks).has_value());
  for (const char* name : {"bafkreiaaa", "bafkreibbb", "mine.txt"}) std::ofstream(blocks / name) << name;
  ASSERT_TRUE(remove_other_blocks(files, blocks, {{"w", "bafkreibbb"}}).has_value());
  auto names = files.list(blocks).value();
  std::sort(names.begin(), names.end());
  EXPECT_THAT(names, ElementsAre("bafkreibbb", "mine.txt"));
}

}  // namespace
}  // namespace weightcast
