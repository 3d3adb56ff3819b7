#include "patch/snapshot/snapshot.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/files/memory_file.h"
#include "tests/patch/safetensors_bytes.h"
#include "tests/patch/temp_dir.h"
#include "tests/real_files.h"
#include "tests/result_matchers.h"

namespace weightcast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string stream_of(const SnapshotSource& source) {
  std::string stream(source.size_bytes(), '\0');
  EXPECT_THAT(source.read_at(0, std::as_writable_bytes(std::span(stream))), Succeeds());
  return stream;
}

std::vector<std::string> names_of(const SnapshotSource& source) {
  std::vector<std::string> names;
  for (const SnapshotFile& file : source.file_table().files()) names.push_back(file.name);
  return names;
}

/// A directory of two shards, with an index and sidecars.
struct Sharded {
  TempDir dir;
  std::string shard_1 = one_tensor("a", "aaaa");
  std::string shard_2 = one_tensor("b", "bb");
  std::string index = R"({"metadata":{"total_size":6},"weight_map":{"b":"s-2.safetensors","a":"s-1.safetensors"}})";

  Sharded() {
    dir.write("s-1.safetensors", shard_1);
    dir.write("s-2.safetensors", shard_2);
    write_index(index);
  }
  void write_index(std::string_view text) const { dir.write("model.safetensors.index.json", text); }
};

Error error_of(const std::string& path) {
  auto source = SnapshotSource::open(real_files(), path);
  EXPECT_FALSE(source.has_value());
  return source.has_value() ? Error{} : source.error();
}

TEST(SnapshotSource, OpensOneFileByItsUsualName) {
  const TempDir dir;
  const std::string bytes = one_tensor("w", "12345");
  const auto source = SnapshotSource::open(real_files(), dir.write("checkpoint-7.safetensors", bytes));
  ASSERT_TRUE(source.has_value()) << source.error().message();
  EXPECT_THAT(names_of(*source), ElementsAre("model.safetensors"));
  EXPECT_EQ(stream_of(*source), bytes);
  EXPECT_EQ(source->tensors()[0].offset_bytes, bytes.size() - 5);
  EXPECT_TRUE(source->check_unchanged().has_value());
}

TEST(SnapshotSource, OpensAnAdapterWhereThereIsNoModel) {
  const TempDir dir;
  const std::string bytes = one_tensor("w", "1");
  dir.write("adapter_model.safetensors", bytes);
  dir.write("adapter_config.json", "{}");
  {
    const auto source = SnapshotSource::open(real_files(), dir.path());
    ASSERT_TRUE(source.has_value()) << source.error().message();
    EXPECT_THAT(names_of(*source), ElementsAre("adapter_model.safetensors", "adapter_config.json"));
    EXPECT_EQ(stream_of(*source), bytes + "{}");
  }
  dir.write("model.safetensors", bytes);
  const auto source = SnapshotSource::open(real_files(), dir.path());
  ASSERT_TRUE(source.has_value()) << source.error().message();
  EXPECT_THAT(names_of(*source), ElementsAre("model.safetensors", "adapter_config.json"));
}

TEST(SnapshotSource, NamesAnAdaptersWeightsAsPeftDoes) {
  const TempDir dir;
  const std::string path = dir.write("region", one_tensor("w", "1"));
  const auto with = [&](const std::vector<std::string>& sidecars) {
    SnapshotSource source = SnapshotSource::open(real_files(), path).value();
    Sidecars added;
    for (const std::string& name : sidecars) added.emplace(name, std::make_shared<MemoryFile>(2));
    EXPECT_TRUE(source.add_sidecars(added).has_value());
    return names_of(source);
  };
  EXPECT_THAT(with({"adapter_config.json"}), ElementsAre("adapter_model.safetensors", "adapter_config.json"));
  EXPECT_THAT(with({"tokenizer.json"}), ElementsAre("model.safetensors", "tokenizer.json"));
  EXPECT_THAT(with({"adapter_config.json", "config.json"}),
              ElementsAre("model.safetensors", "adapter_config.json", "config.json"))
      << "a model, whatever lies beside it";
}

TEST(SnapshotSource, OrdersShardsIndexAndSidecars) {
  const Sharded sharded;
  sharded.dir.write("tokenizer.model", "T");
  sharded.dir.write("config.json", "{}");
  sharded.dir.write("merges.txt", "");
  sharded.dir.write("chat_template.jinja", "J");
  sharded.dir.write(".hidden.json", "no");
  sharded.dir.write("other.safetensors", "no");
  sharded.dir.write("model.py", "no");
  std::filesystem::create_directory(sharded.dir.file("folder.json"));
  ASSERT_EQ(::mkfifo(sharded.dir.file("pipe.txt").c_str(), 0600), 0);

  const auto source = SnapshotSource::open(real_files(), sharded.dir.path());
  ASSERT_TRUE(source.has_value()) << source.error().message();
  EXPECT_THAT(names_of(*source), ElementsAre("s-1.safetensors", "s-2.safetensors", "model.safetensors.index.json",
                                             "chat_template.jinja", "config.json", "merges.txt", "tokenizer.model"));
  const std::string stream = stream_of(*source);
  EXPECT_EQ(stream, sharded.shard_1 + sharded.shard_2 + sharded.index + "J{}T");
  ASSERT_EQ(source->tensors().size(), 2u);
  EXPECT_EQ(stream.substr(source->tensors()[1].offset_bytes, 2), "bb");
  EXPECT_EQ(std::to_integer<char>(
                (*source->mapping(1))[source->tensors()[1].offset_bytes - source->file_table().offset_bytes(1)]),
            'b');
}

TEST(SnapshotSource, FollowsLinksLikeThoseOfTheHuggingFaceCache) {
  const TempDir blobs;
  const TempDir dir;
  const std::string bytes = one_tensor("w", "1");
  std::filesystem::create_symlink(blobs.write("5f3a", bytes), dir.file("model.safetensors"));
  std::filesystem::create_symlink(blobs.write("77aa", "{}"), dir.file("config.json"));
  std::filesystem::create_symlink(blobs.file("absent"), dir.file("dangling.json"));
  const auto source = SnapshotSource::open(real_files(), dir.path());
  ASSERT_TRUE(source.has_value()) << source.error().message();
  EXPECT_THAT(names_of(*source), ElementsAre("model.safetensors", "config.json"));
  EXPECT_EQ(stream_of(*source), bytes + "{}");
}

TEST(SnapshotSource, RefusesWhatIsNotASnapshot) {
  const TempDir dir;
  EXPECT_EQ(error_of(dir.file("absent")).code, Errc::kNotFound);
  EXPECT_THAT(error_of(dir.path()).message(), HasSubstr("holds neither"));
  EXPECT_THAT(error_of("/dev/null").message(), HasSubstr("not a regular file"));
  EXPECT_THAT(error_of(dir.write("empty", "")).message(), HasSubstr("too few"));
  dir.write("model.safetensors", one_tensor("w", "1"));
  dir.write("model.safetensors.index.json", "{}");
  EXPECT_THAT(error_of(dir.path()).message(), HasSubstr("holds both"));
}

TEST(SnapshotSource, RefusesAnIndexThatDisagreesWithItsShards) {
  const std::vector<std::pair<std::string, std::string>> refusals{
      {R"([])", "not an object"},
      {R"({"weight_map":)", "not JSON"},
      {std::string(R"({"weight_map":{"a":"s-1.safetensors","b":"s-2.safetensors"}})") + '\0' + "more", "is a NUL"},
      {R"({"weights":{}})", "no weight_map"},
      {R"({"weight_map":["a"]})", "no weight_map"},
      {R"({"x":[{"weight_map":{"a":"b"}}]})", "no weight_map"},
      {R"({"weight_map":{},"weight_map":{}})", "weight_map is given twice"},
      {R"({"weight_map":{"a":1}})", "shard of tensor 'a' is not a string"},
      {R"({"weight_map":{"a":{"b":"c"}}})", "shard of tensor 'a' is not a string"},
      {R"({"weight_map":{"a":"s-1.safetensors","a":"s-1.safetensors"}})", "tensor 'a' is listed twice"},
      {R"({"weight_map":{"a":"../s-1.safetensors"}})", "begins with '.'"},
      {R"({"weight_map":{"a":"sub/s-1.safetensors"}})", "leads out of its directory"},
      {R"({"weight_map":{"a":"/etc/passwd"}})", "leads out of its directory"},
      {R"({"weight_map":{"a":"config.json"}})", "not a .safetensors file"},
      {R"({"weight_map":{"a":"s-9.safetensors"}})", "No such file"},
      {R"({"weight_map":{"a":"s-1.safetensors","b":"s-1.safetensors"}})", "'b' is listed in shard 's-1.safetensors'"},
      {R"({"weight_map":{"a":"s-2.safetensors","b":"s-1.safetensors"}})",
       "tensor 'a' is in shard 's-1.safetensors', but"},
      {R"({"weight_map":{"a":"s-1.safetensors","c":"s-2.safetensors"}})", "tensor 'b' of shard 's-2.safetensors'"},
  };
  const Sharded sharded;
  for (const auto& [index, says] : refusals) {
    sharded.write_index(index);
    EXPECT_THAT(error_of(sharded.dir.path()).message(), HasSubstr(says)) << index;
  }
}

TEST(SnapshotSource, RefusesATensorInTwoShards) {
  const Sharded sharded;
  sharded.dir.write("s-2.safetensors", one_tensor("a", "bb"));
  sharded.write_index(R"({"weight_map":{"a":"s-1.safetensors","b":"s-2.safetensors"}})");
  EXPECT_THAT(error_of(sharded.dir.path()).message(),
              HasSubstr("tensor 'a' is in shard 's-2.safetensors', but listed in 's-1.safetensors'"));
}

TEST(SnapshotSource, LeavesOutASidecarAboveItsLimitUnlessEnginesNeedIt) {
  const TempDir dir;
  dir.write("model.safetensors", one_tensor("w", "1"));
  const auto write = [&](const char* name, std::uint64_t bytes) {
    dir.write(name, "");
    ASSERT_EQ(::truncate(dir.file(name).c_str(), static_cast<off_t>(bytes)), 0);
  };
  write("trainer_state.json", kSidecarBytesMax);
  const auto whole = SnapshotSource::open(real_files(), dir.path());
  ASSERT_TRUE(whole.has_value()) << whole.error().message();
  EXPECT_EQ(whole->file_table().files().size(), 2u);
  EXPECT_TRUE(whole->left_out().empty());

  write("trainer_state.json", kSidecarBytesMax + 1);
  write("log.txt", kSidecarBytesMax + 1);
  const auto source = SnapshotSource::open(real_files(), dir.path());
  ASSERT_TRUE(source.has_value()) << source.error().message();
  EXPECT_EQ(source->file_table().files().size(), 1u);
  EXPECT_THAT(source->left_out(), testing::UnorderedElementsAre("trainer_state.json", "log.txt"));

  write("tokenizer.json", kSidecarBytesMax + 1);
  EXPECT_THAT(error_of(dir.path()).message(), HasSubstr("tokenizer.json: 33554433 bytes exceed"));
}

TEST(SnapshotSource, SurvivesAFileThatIsCutOffWhileOpen) {
  const TempDir dir;
  const std::string path = dir.write("w.safetensors", one_tensor("w", std::string(100'000, 'w')));
  const auto source = SnapshotSource::open(real_files(), path);
  ASSERT_TRUE(source.has_value());
  ASSERT_EQ(::truncate(path.c_str(), 5000), 0);
  std::vector<std::byte> out(source->size_bytes());
  EXPECT_THAT(source->read_at(0, out), FailsWith(Errc::kCorrupt, "ends at byte 5000"));
  EXPECT_THAT(source->check_unchanged().error().message(), HasSubstr("changed while"));
}

std::uint64_t anonymous_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8));
  }
  return 0;
}

TEST(SnapshotSource, OpensAFileLargerThanMemoryWithoutReadingIt) {
  constexpr std::uint64_t kDataBytes = std::uint64_t{64} << 30;
  const TempDir dir;
  const std::string start = safetensors_bytes(
      fmt::format(R"({{"w":{{"dtype":"BF16","shape":[{}],"data_offsets":[0,{}]}}}})", kDataBytes / 2, kDataBytes));
  const std::string path = dir.write("model.safetensors", start);
  if (::truncate(path.c_str(), static_cast<off_t>(start.size() + kDataBytes)) != 0) {
    GTEST_SKIP() << "the file system does not hold a sparse file of 64 GiB";
  }
  const std::uint64_t before_kib = anonymous_kib();
  const auto source = SnapshotSource::open(real_files(), path);
  ASSERT_TRUE(source.has_value()) << source.error().message();
  std::vector<std::byte> end(16, std::byte{1});
  ASSERT_TRUE(source->read_at(source->size_bytes() - 16, end).has_value());
  EXPECT_EQ(end.back(), std::byte{0});
  EXPECT_LT(anonymous_kib() - before_kib, 4096u);
}

TEST(FileTable, MapsRangesToPiecesAndSkipsEmptyFiles) {
  const auto table = FileTable::make({{"e", 0}, {"a", 3}, {"f", 0}, {"b", 4}, {"g", 0}});
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ(table->size_bytes(), 7u);
  EXPECT_EQ(table->offset_bytes(3), 3u);
  EXPECT_THAT(table->pieces(0, 7), ElementsAre(FilePiece{1, 0, 3}, FilePiece{3, 0, 4}));
  EXPECT_THAT(table->pieces(2, 2), ElementsAre(FilePiece{1, 2, 1}, FilePiece{3, 0, 1}));
  EXPECT_THAT(table->pieces(3, 1), ElementsAre(FilePiece{3, 0, 1}));
  EXPECT_TRUE(table->pieces(7, 0).empty());
  EXPECT_TRUE(table->pieces(0, 0).empty());
}

TEST(FileTable, RefusesTablesThatAreNotSafe) {
  using namespace std::string_literals;
  for (const std::string& name : {""s, "."s, ".."s, "/a"s, "a/"s, "a//b"s, "a/./b"s, "a/../b"s, "../a"s, "a/.."s,
                                  "a\0b"s, std::string(256, 'n'), "a/" + std::string(256, 'n')}) {
    EXPECT_EQ(FileTable::make({{name, 1}}).error().code, Errc::kInvalidArgument) << name;
  }
  EXPECT_TRUE(FileTable::make({{std::string(255, 'n'), 1}}).has_value());
  EXPECT_TRUE(FileTable::make({{"...", 1}, {".x", 1}, {"a/..b", 1}}).has_value());
  EXPECT_THAT(FileTable::make({{"a", 1}, {"a", 2}}).error().message(), HasSubstr("'a' is given twice"));
  EXPECT_EQ(FileTable::make({}).error().code, Errc::kInvalidArgument);
  EXPECT_EQ(FileTable::make({{"a", ~std::uint64_t{0}}, {"b", 2}}).error().code, Errc::kTooLarge);
  EXPECT_EQ(FileTable::make({{"a", kSnapshotBytesMax}, {"b", 1}}).error().code, Errc::kTooLarge);
  EXPECT_EQ(FileTable::make(std::vector<SnapshotFile>(kSnapshotFilesMax + 1)).error().code, Errc::kTooLarge);
}

TEST(FileTable, BoundsDepthAndLengthOfPathsAndTheNumberOfDirectories) {
  const auto path_of = [](std::size_t parts, const std::string& part) {
    std::string path = part;
    for (std::size_t i = 1; i < parts; ++i) path += "/" + part;
    return path;
  };
  EXPECT_TRUE(FileTable::make({{path_of(kFileDepthMax, "d"), 1}}).has_value());
  EXPECT_EQ(FileTable::make({{path_of(kFileDepthMax + 1, "d"), 1}}).error().code, Errc::kInvalidArgument);
  const std::string longest = path_of(8, std::string(255, 'n'));
  ASSERT_EQ(longest.size(), kFilePathBytesMax - 1);
  EXPECT_TRUE(FileTable::make({{longest, 1}}).has_value());
  EXPECT_EQ(FileTable::make({{longest + "/n", 1}}).error().code, Errc::kInvalidArgument);
  std::vector<SnapshotFile> many;
  for (std::size_t i = 0; i < kSnapshotDirectoriesMax; ++i) many.push_back({std::to_string(i) + "/f", 1});
  EXPECT_TRUE(FileTable::make(many).has_value());
  many.push_back({"another/f", 1});
  EXPECT_EQ(FileTable::make(many).error().code, Errc::kTooLarge);
}

TEST(FileTable, RefusesAFileInThePlaceOfADirectory) {
  for (const auto& files : std::vector<std::vector<SnapshotFile>>{
           {{"a", 1}, {"a/b", 1}}, {{"a/b", 1}, {"a", 1}}, {{"x/y/z", 1}, {"a", 1}, {"x/y", 1}}}) {
    EXPECT_THAT(FileTable::make(files), FailsWith(Errc::kInvalidArgument, "is a file and a directory"));
  }
  const auto table = FileTable::make({{"x/y/z", 1}, {"x/a", 1}, {"x.y", 1}, {"b", 1}});
  ASSERT_TRUE(table.has_value());
  EXPECT_THAT(table->directories(), ElementsAre("x", "x/y"));
}

TEST(FileTable, RefusesUnlikelyNamesOfWeights) {
  using namespace std::string_literals;
  for (const std::string& name : {""s, "."s, ".."s, ".x"s, "a/b"s, "/a"s, "a\0b"s, std::string(256, 'n')}) {
    EXPECT_EQ(check_file_name(name).error().code, Errc::kInvalidArgument) << name;
  }
  EXPECT_TRUE(check_file_name(std::string(255, 'n')).has_value());
}

}  // namespace
}  // namespace weightcast
