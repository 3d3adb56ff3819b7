#include "transport/io/store/files/file_editor.h"

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "tests/patch/temp_dir.h"
#include "tests/real_files.h"

namespace weightcast {
namespace {

constexpr std::size_t kSize = 300'001;

struct FileEditorTest : testing::Test {
  TempDir temp;
  const std::string path = temp.file("version");
  std::string bytes = std::string(kSize, 'a');

  FileRef make() {
    auto file = real_files().open(path, {.write = true, .create = Create::kEmpty});
    EXPECT_TRUE(write_fully(**file, 0, std::as_bytes(std::span(bytes)), path).has_value());
    return FileRef(std::move(*file));
  }
  [[nodiscard]] std::string content() const { return read_file(real_files(), path, kGiB).value_or("cannot be read"); }
};

TEST_F(FileEditorTest, ChangesBytesWhereTheyAre) {
  FileEditor editor(make(), kSize);
  for (const auto& [offset, size] : {std::pair<std::size_t, std::size_t>{0, 10}, {4090, 20'000}, {kSize - 1, 1}}) {
    std::vector<std::byte> scratch;
    const auto window = editor.edit(offset, size, scratch);
    ASSERT_TRUE(window.has_value()) << window.error().message();
    ASSERT_EQ(window->size(), size);
    EXPECT_EQ(editor.edit(offset, size, scratch, FileEditor::Use::kRead)->data(), window->data());
    EXPECT_EQ(char(window->front()), 'a');
    for (std::size_t i = 0; i < size; i += 3) bytes[offset + i] = char((*window)[i] = std::byte{'z'});
    EXPECT_TRUE(editor.commit(offset, *window).has_value());
  }
  EXPECT_EQ(content(), bytes);
}

// What a disk that fails looks like to a mapping: pages that are not there. Without an editor's care it is a SIGBUS.
TEST_F(FileEditorTest, BytesThatCannotBeHadAreAnError) {
  const FileRef file = make();
  FileEditor editor(file, kSize);
  ASSERT_TRUE(file->truncate(100'000).has_value());
  std::vector<std::byte> scratch;
  EXPECT_EQ(editor.edit(200'000, 10, scratch).error().code, Errc::kIo);
  EXPECT_EQ(editor.edit(200'000, 10, scratch, FileEditor::Use::kRead).error().code, Errc::kIo);
  EXPECT_TRUE(editor.edit(0, 100'000, scratch).has_value());
}

TEST_F(FileEditorTest, AnEmptyFileIsFine) {
  bytes.clear();
  std::vector<std::byte> scratch;
  EXPECT_EQ(FileEditor(make(), 0).edit(0, 0, scratch)->size(), 0u);
}

}  // namespace
}  // namespace weightcast
