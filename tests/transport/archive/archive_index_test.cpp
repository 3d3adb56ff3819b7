#include "transport/archive/archive_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/result_matchers.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

ArchiveIndex sample() {
  ArchiveIndex index;
  index.run = RunId{0x00c0ffee00c0ffee};
  index.model_id = "tiny";
  index.payloads = {{Version{8}, 1000, 4096, "0123"}, {patch_of(Version{9}, Version{8}), 70, 8192, "0123"}};
  return index;
}

constexpr const char* kText = R"({
 "form": 1,
 "model": "tiny",
 "object_bytes": 33554432,
 "payloads": [
  {
   "bytes": 1000,
   "chunk_bytes": 4096,
   "files": "0123",
   "version": 8
  },
  {
   "base": 8,
   "bytes": 70,
   "chunk_bytes": 8192,
   "files": "0123",
   "version": 9
  }
 ],
 "run": "00c0ffee00c0ffee"
}
)";

TEST(ArchiveIndex, TextIsTheFormsOwn) {
  EXPECT_EQ(to_json(sample()), kText);
  EXPECT_THAT(parse_index(kText), Gives(sample()));
}

TEST(ArchiveIndex, ARunWithoutANameIsRead) {
  ArchiveIndex index = sample();
  index.run = kNoRun;
  EXPECT_EQ(parse_index(to_json(index))->run, kNoRun);
}

TEST(ArchiveIndex, RefusesWhatIsCutAnywhere) {
  const std::string text = kText;
  for (std::size_t size = 0; size + 2 < text.size(); ++size) {
    ASSERT_FALSE(parse_index(text.substr(0, size)).has_value()) << size;
  }
}

TEST(ArchiveIndex, RefusesWhatIsOutOfRange) {
  const auto refused = [](const char* pointer, const Json& value) {
    Json json = Json::parse(kText);
    json[Json::json_pointer(pointer)] = value;
    return !parse_index(json.dump()).has_value();
  };
  EXPECT_FALSE(refused("/model", "other")) << "a change that is none";
  EXPECT_TRUE(refused("/run", "00C0FFEE00C0FFEE"));
  EXPECT_TRUE(refused("/run", "c0ffee"));
  EXPECT_TRUE(refused("/model", std::string(300, 'm')));
  EXPECT_TRUE(refused("/object_bytes", 0));
  EXPECT_TRUE(refused("/object_bytes", 4194305));
  EXPECT_TRUE(refused("/object_bytes", std::uint64_t{1} << 40));
  EXPECT_TRUE(refused("/payloads", Json::object()));
  EXPECT_TRUE(refused("/payloads/0", 1));
  for (const Json& number : {Json(0), Json(-1), Json(1.5), Json("8"), Json(std::uint64_t{1} << 63)}) {
    for (const char* key :
         {"/payloads/0/version", "/payloads/0/bytes", "/payloads/0/chunk_bytes", "/payloads/1/base"}) {
      EXPECT_TRUE(refused(key, number)) << key << " " << number;
    }
  }
  EXPECT_TRUE(refused("/payloads/0/chunk_bytes", 5000));
  EXPECT_TRUE(refused("/payloads/1/base", 9));
  EXPECT_TRUE(refused("/payloads/1", Json::parse(kText)["payloads"][0])) << "twice";
}

TEST(ArchiveIndex, AnotherFormIsOfAnotherRelease) {
  Json json = Json::parse(kText);
  json["form"] = 2;
  EXPECT_THAT(parse_index(json.dump()), FailsWith(Errc::kUnsupported, "form 2"));
}

TEST(ArchiveIndex, NamesBeginWithTheRun) {
  const PayloadId patch = patch_of(Version{9}, Version{8});
  EXPECT_EQ(record_object(RunId{0xa}, Version{8}), "000000000000000a-000000000008.record");
  EXPECT_EQ(digests_object(RunId{0xa}, Version{8}), "000000000000000a-000000000008.digests");
  EXPECT_EQ(data_object(RunId{0xa}, patch, 3), "000000000000000a-000000000009-000000000008.00003");
}

TEST(ArchiveIndex, FilesKeyTellsNamesSizesAndOrder) {
  const std::vector<SnapshotFile> files{{"a", 12}, {"b", 3}};
  EXPECT_EQ(files_key(files), files_key(files));
  EXPECT_NE(files_key(files), files_key({{"b", 3}, {"a", 12}}));
  EXPECT_NE(files_key(files), files_key({{"a", 1}, {"b", 3}}));
  EXPECT_NE(files_key(files), files_key({{"a", 12}}));
  EXPECT_NE(files_key({{"run", 1, true}}), files_key({{"run", 1}})) << "fetch makes files of one mode";
  EXPECT_NE(files_key({{"a", 1}, {"b", 2}}), files_key({{"a/1\nb", 2}})) << "a tree's paths have '/'";
}

}  // namespace
}  // namespace weightcast
