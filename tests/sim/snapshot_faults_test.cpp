// A trainer's directory on a disk whose calls fail one by one.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "patch/snapshot/snapshot.h"
#include "sim/host/sim_file_system.h"

namespace weightcast::sim {
namespace {

void put(SimFileSystem& files, const std::string& path, const std::string& content) {
  const auto file = files.open(path, {.write = true, .create = Create::kEmpty});
  ASSERT_TRUE(file.has_value());
  ASSERT_TRUE(write_fully(**file, 0, std::as_bytes(std::span(content)), path).has_value());
}

std::string safetensors(const std::string& tensor) {
  std::string header = R"({")" + tensor + R"(":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t bytes = header.size();
  std::string out(sizeof bytes, '\0');
  std::memcpy(out.data(), &bytes, sizeof bytes);
  return out + header + "weights!";
}

void put_snapshot(SimFileSystem& files) {
  ASSERT_TRUE(files.make_directory("/model").has_value());
  put(files, "/model/1.safetensors", safetensors("a"));
  put(files, "/model/2.safetensors", safetensors("b"));
  put(files, "/model/model.safetensors.index.json", R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  put(files, "/model/config.json", "{}");
  put(files, "/model/tokenizer.json", "{}");
}

TEST(SnapshotSource, IsAnErrorAndNeverAnotherSnapshotWhereACallFails) {
  SimFileSystem whole(1);
  put_snapshot(whole);
  const std::uint64_t before = whole.calls();
  const auto opened = SnapshotSource::open(whole, "/model");
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  ASSERT_EQ(opened->file_table().files().size(), 5u);
  const std::uint64_t calls = whole.calls() - before;
  for (std::uint64_t call = 1; call <= calls; ++call) {
    SimFileSystem files(1);
    put_snapshot(files);
    files.fail_call(call, EIO);
    const auto source = SnapshotSource::open(files, "/model");
    if (source.has_value()) {
      EXPECT_TRUE(source->file_table().files() == opened->file_table().files()) << call;
    } else {
      EXPECT_EQ(source.error().code, Errc::kIo) << call << ": " << source.error().message();
    }
  }
}

}  // namespace
}  // namespace weightcast::sim
