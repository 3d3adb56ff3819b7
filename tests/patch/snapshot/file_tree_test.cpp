#include "patch/snapshot/file_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "patch/snapshot/snapshot.h"
#include "tests/patch/safetensors_bytes.h"
#include "tests/patch/temp_dir.h"
#include "tests/real_files.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

struct Tree {
  TempDir dir;

  void write(const std::string& path, std::string_view bytes) const {
    fs::create_directories(fs::path(dir.file(path)).parent_path());
    dir.write(path, bytes);
  }
  void link(const std::string& path, const std::string& target) const { fs::create_symlink(target, dir.file(path)); }
  [[nodiscard]] Result<std::vector<TreeFile>> list() const { return list_file_tree(real_files(), dir.path()); }
  [[nodiscard]] Error refused() const {
    auto listed = list();
    EXPECT_FALSE(listed.has_value());
    return listed.has_value() ? Error{} : listed.error();
  }
  [[nodiscard]] Result<SnapshotSource> open() const {
    WC_ASSIGN(const std::vector<TreeFile> files, list());
    return SnapshotSource::open_tree(real_files(), dir.path(), files);
  }
};

std::vector<std::string> names_of(const std::vector<TreeFile>& files) {
  std::vector<std::string> names;
  for (const TreeFile& file : files) names.push_back(file.file.name);
  return names;
}

std::string bytes_at(const SnapshotSource& source, const TensorInfo& tensor) {
  std::string bytes(tensor.size_bytes, '\0');
  EXPECT_TRUE(source.read_at(tensor.offset_bytes, std::as_writable_bytes(std::span(bytes))).has_value());
  return bytes;
}

TEST(FileTree, ListsAllFilesByPathWithTheirExecutableBit) {
  const Tree tree;
  tree.write("b/run.sh", "#!");
  tree.write("b/c/data.bin", "123");
  tree.write(".hidden", "h");
  tree.write("a", "");
  fs::create_directory(tree.dir.file("empty"));
  ASSERT_EQ(::chmod(tree.dir.file("b/run.sh").c_str(), 0755), 0);
  const auto files = tree.list();
  ASSERT_TRUE(files.has_value()) << files.error().message();
  EXPECT_THAT(names_of(*files), ElementsAre(".hidden", "a", "b/c/data.bin", "b/run.sh"));
  EXPECT_EQ((*files)[3].file, (SnapshotFile{"b/run.sh", 2, true}));
  EXPECT_EQ((*files)[2].file, (SnapshotFile{"b/c/data.bin", 3, false}));
}

TEST(FileTree, FollowsLinksToItsOwnFilesAndRefusesAllOthers) {
  {
    const Tree tree;
    tree.write("lib/a.so.1", "code");
    tree.link("lib/a.so", "a.so.1");
    tree.link("same", "lib/../lib/a.so.1");
    tree.link("whole", tree.dir.file("lib/a.so.1"));
    const auto files = tree.list();
    ASSERT_TRUE(files.has_value()) << files.error().message();
    EXPECT_THAT(names_of(*files), ElementsAre("lib/a.so", "lib/a.so.1", "same", "whole"));
    for (const TreeFile& file : *files) EXPECT_EQ(file.path, "lib/a.so.1");
    const auto source = tree.open();
    ASSERT_TRUE(source.has_value()) << source.error().message();
    EXPECT_EQ(source->size_bytes(), 16u);
  }
  for (const char* target : {"../outside", "/etc/passwd", "missing", "directory", "link", "directory/../../x", "."}) {
    const Tree tree;
    tree.write("directory/file", "x");
    tree.link("link", "directory/file");
    tree.link("bad", target);
    const Error error = tree.refused();
    EXPECT_EQ(error.code, Errc::kInvalidArgument) << target;
    EXPECT_THAT(error.message(), HasSubstr("'bad' is a symbolic link")) << target;
  }
}

TEST(FileTree, TakesASnapshotOfHuggingFacesCache) {
  const Tree cache;
  cache.write("blobs/0a1b", "weights");
  cache.write("blobs/directory/x", "x");
  cache.write("refs/main", "c0ffee");
  fs::create_directories(cache.dir.file("snapshots/c0ffee/sub"));
  cache.link("snapshots/c0ffee/model.bin", "../../blobs/0a1b");
  cache.link("snapshots/c0ffee/sub/copy.bin", "../../../blobs/0a1b");
  for (const char* end : {"", "/"}) {
    const std::string snapshot = cache.dir.file("snapshots/c0ffee") + end;
    const auto files = list_file_tree(real_files(), snapshot);
    ASSERT_TRUE(files.has_value()) << files.error().message();
    EXPECT_THAT(names_of(*files), ElementsAre("model.bin", "sub/copy.bin"));
    const auto source = SnapshotSource::open_tree(real_files(), snapshot, *files);
    ASSERT_TRUE(source.has_value()) << source.error().message();
    EXPECT_EQ(bytes_at(*source, source->tensors()[0]), "weights");
    EXPECT_EQ(bytes_at(*source, source->tensors()[1]), "weights");
  }
  for (const char* target : {"../../refs/main", "../../blobs/missing", "../../blobs/directory/x",
                             "../../blobs/../refs/main", "/etc/passwd"}) {
    fs::remove(cache.dir.file("snapshots/c0ffee/bad"));
    cache.link("snapshots/c0ffee/bad", target);
    EXPECT_FALSE(list_file_tree(real_files(), cache.dir.file("snapshots/c0ffee")).has_value()) << target;
  }
  const Tree other;  // not called snapshots/
  other.write("blobs/0a1b", "x");
  fs::create_directories(other.dir.file("versions/1"));
  other.link("versions/1/a", "../../blobs/0a1b");
  EXPECT_FALSE(list_file_tree(real_files(), other.dir.file("versions/1")).has_value());
}

TEST(FileTree, RefusesWhatIsNoFileAndWhatIsTooDeep) {
  {
    const Tree tree;
    ASSERT_EQ(::mkfifo(tree.dir.file("pipe").c_str(), 0644), 0);
    EXPECT_THAT(tree.refused().message(), HasSubstr("'pipe' is neither a file nor a directory"));
  }
  const Tree tree;
  std::string path = "d";
  for (std::size_t i = 1; i < kFileDepthMax; ++i) path += "/d";
  tree.write(path, "x");
  EXPECT_TRUE(tree.list().has_value());
  tree.write(fs::path(path).parent_path() / "e" / "x", "x");
  EXPECT_THAT(tree.refused().message(), HasSubstr("directories deep"));
  EXPECT_EQ(list_file_tree(real_files(), tree.dir.file("none")).error().code, Errc::kNotFound);
}

TEST(FileTree, HasTheTensorsOfItsSafetensorsAndOtherFilesAsBytes) {
  const Tree tree;
  const std::string adapter = one_tensor("w", "abcd");
  tree.write("one/adapter.safetensors", adapter);
  tree.write("two/adapter.safetensors", adapter);
  tree.write("two/config.json", "{}");
  tree.write("broken.safetensors", "no such file");
  tree.write("empty", "");
  const auto source = tree.open();
  ASSERT_TRUE(source.has_value()) << source.error().message();
  std::vector<std::string> names;
  for (const TensorInfo& tensor : source->tensors()) names.push_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("broken.safetensors", "one/adapter.safetensors", "one/adapter.safetensors//w",
                                 "two/adapter.safetensors", "two/adapter.safetensors//w", "two/config.json"));
  EXPECT_EQ(bytes_at(*source, source->tensors()[0]), "no such file");
  EXPECT_EQ(bytes_at(*source, source->tensors()[1]) + "abcd", adapter);
  EXPECT_EQ(bytes_at(*source, source->tensors()[4]), "abcd");
  EXPECT_EQ(bytes_at(*source, source->tensors()[5]), "{}");
  // They cover the stream.
  std::uint64_t end = 0;
  for (const TensorInfo& tensor : source->tensors()) {
    EXPECT_EQ(tensor.offset_bytes, end);
    end += tensor.size_bytes;
  }
  EXPECT_EQ(end, source->size_bytes());
}

TEST(FileTree, OpensWhatItWasToldAndNoLinkInItsPlace) {
  const Tree tree;
  tree.write("d/a", "123");
  ASSERT_TRUE(SnapshotSource::open_tree(real_files(), tree.dir.path(), tree_files({{"d/a", 3}})).has_value());
  EXPECT_EQ(SnapshotSource::open_tree(real_files(), tree.dir.path(), tree_files({{"d/a", 4}})).error().code,
            Errc::kCorrupt);
  EXPECT_EQ(SnapshotSource::open_tree(real_files(), tree.dir.path(), tree_files({{"../x", 1}})).error().code,
            Errc::kInvalidArgument);
  fs::rename(tree.dir.file("d"), tree.dir.file("real"));
  tree.link("d", "real");
  EXPECT_FALSE(SnapshotSource::open_tree(real_files(), tree.dir.path(), tree_files({{"d/a", 3}})).has_value());
  fs::remove(tree.dir.file("d"));
  fs::create_directory(tree.dir.file("d"));
  tree.link("d/a", "../real/a");
  EXPECT_FALSE(SnapshotSource::open_tree(real_files(), tree.dir.path(), tree_files({{"d/a", 3}})).has_value());
}

}  // namespace
}  // namespace weightcast
