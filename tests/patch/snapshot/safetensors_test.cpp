#include "patch/snapshot/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>

#include "tests/patch/safetensors_bytes.h"
#include "tests/patch/temp_dir.h"
#include "tests/real_files.h"
#include "tests/result_matchers.h"

namespace weightcast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<SafetensorsHeader> parse(std::string_view file) {
  return parse_safetensors_header(as_bytes(file), file.size(), "f.safetensors");
}

Result<SafetensorsHeader> parse(std::string_view header, std::size_t data_bytes) {
  return parse(safetensors_bytes(header, std::string(data_bytes, '\0')));
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string write_to_string(std::span<const TensorInfo> tensors, std::span<const Bytes> data,
                            const SafetensorsMetadata& metadata = {}) {
  const TempDir dir;
  const auto layout = lay_out_safetensors(tensors, metadata);
  EXPECT_TRUE(layout.has_value()) << layout.error().message();
  const auto file = real_files().open(dir.file("out"), {.write = true, .create = Create::kNew});
  EXPECT_TRUE(file.has_value());
  FileWriter out(**file, "out");
  EXPECT_TRUE(write_safetensors(out, *layout, data).has_value());
  return read_file(dir.file("out"));
}

TEST(Safetensors, RefusesAPrefixThatEndsWithinTheHeader) {
  const std::string file = safetensors_bytes(R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "abcd");
  EXPECT_THAT(parse_safetensors_header(as_bytes(file).first(20), file.size(), "f.safetensors"),
              FailsWith(Errc::kInvalidArgument));
}

TEST(Safetensors, WritesNothingOfDataThatWasNotLaidOut) {
  const std::vector<TensorInfo> tensors{{"a", "U8", {3}, 0, 3}, {"b", "BF16", {2}, 0, 4}};
  const auto layout = lay_out_safetensors(tensors);
  ASSERT_TRUE(layout.has_value());
  const TempDir dir;
  const auto file = real_files().open(dir.file("out"), {.write = true, .create = Create::kNew});
  ASSERT_TRUE(file.has_value());
  FileWriter out(**file, "out");
  const std::string bytes = "abcdefg";
  const Bytes all = as_bytes(bytes);
  for (const std::vector<Bytes>& data : {std::vector<Bytes>{all.first(3)},
                                         {all.first(4), all.first(3)},
                                         {all.first(3), all.first(4), all.first(1)},
                                         {all.first(3), all.first(5)}}) {
    EXPECT_THAT(write_safetensors(out, *layout, data), FailsWith(Errc::kInvalidArgument));
  }
  EXPECT_EQ(read_file(dir.file("out")), "");
}

TEST(Safetensors, WritesTheGoldenFile) {
  const std::vector<TensorInfo> tensors{
      {"b", "U8", {3}, 0, 3}, {"a\"\n", "BF16", {1, 2}, 0, 4}, {"e", "F32", {0}, 0, 0}};
  const std::string b = "xyz", a = "abcd";
  const std::vector<Bytes> data{as_bytes(b), as_bytes(a), {}};
  const std::string expected =
      std::string("\xc8\0\0\0\0\0\0\0", 8) +                             // u64: the JSON and its padding, 200 bytes
      R"({"__metadata__":{"format":"pt"},)"                              // metadata first
      R"("e":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"         // the widest dtype first
      R"("a\"\n":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]},)"  // JSON's short escapes
      R"("b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}})" +        // no spaces between tokens
      std::string("   ") +                                               // padded to a multiple of 8
      "abcd"                                                             // a, then
      "xyz";                                                             // b: in the order of the header
  const std::string written = write_to_string(tensors, data, {{"format", "pt"}});
  EXPECT_EQ(written, expected);

  const auto header = parse(written);
  ASSERT_TRUE(header.has_value()) << header.error().message();
  EXPECT_EQ(header->data_offset_bytes, 208u);
  EXPECT_EQ(header->metadata.at("format"), "pt");
  EXPECT_THAT(header->tensors,
              ElementsAre(TensorInfo{"e", "F32", {0}, 208, 0}, TensorInfo{"a\"\n", "BF16", {1, 2}, 208, 4},
                          TensorInfo{"b", "U8", {3}, 212, 3}));
}

TEST(Safetensors, WritesAnEmptyFile) {
  EXPECT_EQ(write_to_string({}, {}), safetensors_bytes("{}      "));
  EXPECT_TRUE(parse(safetensors_bytes("{}      "))->tensors.empty());
}

TEST(Safetensors, ReadsAnyOrderPaddingAndUnknownField) {
  const auto header =
      parse(R"({ "late" : {"data_offsets":[2,4],"extra":{"x":[1,{"y":null}]},"shape":[],"dtype":"I16"},)"
            "\n\t"
            R"("early":{"more":1.5,"shape":[2],"dtype":"BOOL","data_offsets":[0,2]},"__metadata__":null}      )",
            4);
  ASSERT_TRUE(header.has_value()) << header.error().message();
  EXPECT_EQ(header->tensors[0].name, "early");
  EXPECT_EQ(header->tensors[1].name, "late");
  EXPECT_TRUE(header->tensors[1].shape.empty());
}

TEST(Safetensors, ReadsEveryDtypeOfTheFormat) {
  // Eight elements of a dtype take as many bytes as one element has bits.
  for (const auto& [dtype, bits] : std::map<std::string, unsigned>{
           {"BOOL", 8},    {"F4", 4},   {"F6_E2M3", 6},     {"F6_E3M2", 6},    {"U8", 8},   {"I8", 8},
           {"F8_E5M2", 8}, {"I16", 16}, {"F8_E4M3", 8},     {"F8_E8M0", 8},    {"U16", 16}, {"F16", 16},
           {"BF16", 16},   {"I32", 32}, {"U32", 32},        {"F32", 32},       {"C64", 64}, {"F64", 64},
           {"I64", 64},    {"U64", 64}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}}) {
    EXPECT_EQ(dtype_bits(dtype), bits) << dtype;
    const auto entry = fmt::format(R"({{"t":{{"dtype":"{}","shape":[2,4],"data_offsets":[0,{}]}}}})", dtype, bits);
    EXPECT_TRUE(parse(entry, bits).has_value()) << dtype;
  }
}

TEST(Safetensors, CarriesUnknownDtypesAsRawBytes) {
  EXPECT_EQ(dtype_bits("I4"), 0u);
  const auto header = parse(R"({"t":{"dtype":"I4","shape":[3,5],"data_offsets":[0,8]}})", 8);
  ASSERT_TRUE(header.has_value());
  EXPECT_EQ(header->tensors[0].size_bytes, 8u);
}

TEST(Safetensors, ReadsEmptyAndZeroDimensionalTensors) {
  const auto header = parse(R"({"z":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                            R"("e":{"dtype":"F64","shape":[5,0],"data_offsets":[4,4]},)"
                            R"("d":{"dtype":"F64","shape":[0],"data_offsets":[0,0]},)"
                            R"("":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}})",
                            4);
  ASSERT_TRUE(header.has_value()) << header.error().message();
  std::vector<std::string> names;
  for (const TensorInfo& tensor : header->tensors) names.push_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("d", "z", "", "e"));
}

struct Refusal {
  std::string header;
  std::size_t data_bytes;
  Errc code;
  std::string says;
};

TEST(Safetensors, RefusesEachBrokenRuleWithItsOwnMessage) {
  const std::string name_20k(20'000, 'n');
  std::string deep_shape = "1";
  for (int i = 0; i < 64; ++i) deep_shape += ",1";
  const std::vector<Refusal> refusals{
      {"", 0, Errc::kCorrupt, "does not start with '{'"},
      {" {}", 0, Errc::kCorrupt, "does not start with '{'"},
      {"[]", 0, Errc::kCorrupt, "does not start with '{'"},
      {"{", 0, Errc::kCorrupt, "not JSON"},
      {"{}x", 0, Errc::kCorrupt, "not JSON"},
      {"{\"a\xff\":{}}", 0, Errc::kCorrupt, "not JSON"},
      {R"({"a":1})", 0, Errc::kCorrupt, "tensor 'a' is a number, not an object"},
      {R"({"a":[]})", 0, Errc::kCorrupt, "tensor 'a' is an array"},
      {R"({"__metadata__":{"k":1}})", 0, Errc::kCorrupt, "metadata 'k' is a number, not a string"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", 0, Errc::kCorrupt, "metadata 'k' is given twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, Errc::kCorrupt, "__metadata__ is given twice"},
      {R"({"a":{"shape":[0],"data_offsets":[0,0]}})", 0, Errc::kCorrupt, "dtype is missing"},
      {R"({"a":{"dtype":"U8","data_offsets":[0,0]}})", 0, Errc::kCorrupt, "shape is missing"},
      {R"({"a":{"dtype":"U8","shape":[0]}})", 0, Errc::kCorrupt, "data_offsets is missing"},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0, Errc::kCorrupt,
       "dtype is given twice"},
      {R"({"a":{"dtype":8,"shape":[0],"data_offsets":[0,0]}})", 0, Errc::kCorrupt, "dtype holds a number"},
      {R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}})", 0, Errc::kCorrupt, "shape holds a negative number"},
      {R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1, Errc::kCorrupt, "not an integer below 2^64"},
      {R"({"a":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,1]}})", 1, Errc::kCorrupt, "below 2^64"},
      {R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", 1, Errc::kCorrupt, "shape holds an array"},
      {R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0]}})", 0, Errc::kCorrupt, "data_offsets are not two"},
      {R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0,0]}})", 0, Errc::kCorrupt, "more than two data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, Errc::kCorrupt, "end before they begin"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2, Errc::kCorrupt, "a hole"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, Errc::kCorrupt, "an overlap"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2, Errc::kCorrupt, "tensor 'a' is given twice"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, Errc::kCorrupt, "takes 8 bytes, but it has 4"},
      {R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1, Errc::kCorrupt, "not a whole number of bytes"},
      {R"({"a":{"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", 0, Errc::kCorrupt,
       "2^64 bits"},
      {R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0, Errc::kCorrupt, "2^64 bits"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 3, Errc::kCorrupt, "truncated"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 5, Errc::kCorrupt, "1 bytes after the last tensor"},
      {R"({"a":{"dtype":"X","shape":[],"data_offsets":[0,18446744073709551615]}})", 5, Errc::kCorrupt, "truncated"},
      {R"({")" + name_20k + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0, Errc::kTooLarge,
       "is 20000 bytes long, above the limit of 16384"},
      {R"({"a":{"dtype":"U8","shape":[)" + deep_shape + R"(],"data_offsets":[0,1]}})", 1, Errc::kTooLarge,
       "64 dimensions"},
  };
  for (const Refusal& refusal : refusals) {
    const auto header = parse(refusal.header, refusal.data_bytes);
    ASSERT_THAT(header, FailsWith(refusal.code, refusal.says, "f.safetensors")) << refusal.header;
    EXPECT_LT(header.error().message().size(), 1000u);
  }
}

enum class Verdict { kAccepted, kRefused };
constexpr auto kAccepted = Verdict::kAccepted, kRefused = Verdict::kRefused;

struct Ruling {
  std::string header;
  std::size_t data_bytes;
  Verdict reference;  // what safetensors 0.8.0 said, asked by its Python binding's deserialize()
  Verdict ours;
};

// One tensor of U8 with a field replaced.
std::string tensor(std::string_view shape, std::string_view offsets, std::string_view dtype = "U8",
                   std::string_view more = "") {
  return fmt::format(R"({{"a":{{"dtype":"{}","shape":{},"data_offsets":{}{}}}}})", dtype, shape, offsets, more);
}

std::string nested(std::size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); }

// An entry of no bytes under a name in JSON's spelling.
std::string named(std::string_view name) {
  return fmt::format(R"({{"{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}}})", name);
}

TEST(Safetensors, RefusesWhatTheReferenceImplementationRefuses) {
  using namespace std::string_literals;
  const std::vector<Ruling> rulings{
      // What may stand around the object.
      {"{}", 0, kAccepted, kAccepted},
      {"{}  ", 0, kAccepted, kAccepted},
      {"{}\n\t\r ", 0, kAccepted, kAccepted},
      {" {}", 0, kAccepted, kRefused},
      {"\xef\xbb\xbf{}", 0, kRefused, kRefused},
      {"{}\0"s, 0, kRefused, kRefused},
      {"{}\0}"s, 0, kRefused, kRefused},
      {"{} \0 "s, 0, kRefused, kRefused},
      {"{}\0\xff\xff"s, 0, kRefused, kRefused},
      {"{\"a\":\0"s, 0, kRefused, kRefused},
      {"{}{}", 0, kRefused, kRefused},
      {"{},", 0, kRefused, kRefused},
      {"{}//", 0, kRefused, kRefused},
      {"{}\xff", 0, kRefused, kRefused},
      {"[]", 0, kRefused, kRefused},
      {"null", 0, kRefused, kRefused},
      // JSON.
      {tensor("[1]", "[0,1]"), 1, kAccepted, kAccepted},
      {tensor("[1,]", "[0,1]"), 1, kRefused, kRefused},
      {tensor("[1]", "[0,1]", "U8", ","), 1, kRefused, kRefused},
      {"{/**/}", 0, kRefused, kRefused},
      {"{'a':{}}", 0, kRefused, kRefused},
      {tensor("[0]", "[0,0]", "U8", R"(,"x":NaN)"), 0, kRefused, kRefused},
      {tensor("[0]", "[0,0]", "U8", R"(,"x":1e400)"), 0, kRefused, kRefused},
      {tensor("[0]", "[0,0]", "U8", R"(,"x":1,"x":2)"), 0, kAccepted, kAccepted},
      {tensor("[0]", "[0,0]", "U8", R"(,"x":)" + nested(125)), 0, kAccepted, kAccepted},
      {tensor("[0]", "[0,0]", "U8", R"(,"x":)" + nested(126)), 0, kRefused, kRefused},
      {tensor("[0]", "[0,0]", "U8", R"(,"x":)" + nested(100'000)), 0, kRefused, kRefused},
      // Names.
      {named(""), 0, kAccepted, kAccepted},
      {named(R"(\u0000)"), 0, kAccepted, kAccepted},
      {named("a\0"s), 0, kRefused, kRefused},
      {named("a\n"), 0, kRefused, kRefused},
      {named(R"(\x)"), 0, kRefused, kRefused},
      {named(R"(\ud83d\ude00)"), 0, kAccepted, kAccepted},
      {named(R"(\ud800)"), 0, kRefused, kRefused},
      {named(R"(\udc00\ud800)"), 0, kRefused, kRefused},
      {named("\xc0\x80"), 0, kRefused, kRefused},
      {named("\xed\xa0\x80"), 0, kRefused, kRefused},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1, kAccepted, kRefused},
      // Types of values.
      {R"({"a":null})", 0, kRefused, kRefused},
      {R"({"a":"x"})", 0, kRefused, kRefused},
      {R"({"a":["U8",[0],[0,0]]})", 0, kAccepted, kRefused},
      {R"({"a":{"dtype":{"U8":null},"shape":[0],"data_offsets":[0,0]}})", 0, kAccepted, kRefused},
      {R"({"a":{"shape":[0],"data_offsets":[0,0]}})", 0, kRefused, kRefused},
      {R"({"a":{"dtype":"U8","data_offsets":[0,0]}})", 0, kRefused, kRefused},
      {R"({"a":{"dtype":"U8","shape":[0]}})", 0, kRefused, kRefused},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0, kRefused, kRefused},
      {tensor("[01]", "[0,1]"), 1, kRefused, kRefused},
      {tensor("[+1]", "[0,1]"), 1, kRefused, kRefused},
      {tensor("[-0]", "[0,0]"), 0, kRefused, kRefused},
      {tensor("[1.0]", "[0,1]"), 1, kRefused, kRefused},
      {tensor("[1e0]", "[0,1]"), 1, kRefused, kRefused},
      {tensor(R"(["1"])", "[0,1]"), 1, kRefused, kRefused},
      {tensor("[null]", "[0,1]"), 1, kRefused, kRefused},
      {tensor("null", "[0,1]"), 1, kRefused, kRefused},
      {tensor("1", "[0,1]"), 1, kRefused, kRefused},
      {tensor("{}", "[0,1]"), 1, kRefused, kRefused},
      {tensor("[1]", "[0]"), 1, kRefused, kRefused},
      {tensor("[1]", "[0,1,1]"), 1, kRefused, kRefused},
      {tensor("[1]", "[0,1.0]"), 1, kRefused, kRefused},
      {tensor("[1]", R"({"0":0,"1":1})"), 1, kRefused, kRefused},
      // Offsets: from 0, without a hole or an overlap, to the file's end.
      {tensor("[1]", "[1,2]"), 2, kRefused, kRefused},
      {tensor("[1]", "[1,0]"), 1, kRefused, kRefused},
      {tensor("[1]", "[0,1]"), 2, kRefused, kRefused},
      {tensor("[2]", "[0,2]"), 1, kRefused, kRefused},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
       3, kRefused, kRefused},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, kRefused, kRefused},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
       2, kRefused, kRefused},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}})",
       2, kRefused, kRefused},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
       2, kAccepted, kAccepted},
      // Sizes: shape times dtype, whole bytes, below 2^64.
      {tensor("[2]", "[0,1]"), 1, kRefused, kRefused},
      {tensor("[18446744073709551616]", "[0,0]"), 0, kRefused, kRefused},
      {tensor("[18446744073709551615,0]", "[0,0]"), 0, kAccepted, kAccepted},
      {tensor("[0,18446744073709551615,2]", "[0,0]"), 0, kAccepted, kAccepted},
      {tensor("[18446744073709551615,2,0]", "[0,0]"), 0, kRefused, kRefused},
      {tensor("[2]", "[0,1]", "F4"), 1, kAccepted, kAccepted},
      {tensor("[3]", "[0,1]", "F4"), 1, kRefused, kRefused},
      {tensor("[3]", "[0,2]", "F4"), 2, kRefused, kRefused},
      {tensor("[4]", "[0,3]", "F6_E2M3"), 3, kAccepted, kAccepted},
      {tensor("[1]", "[0,1]", "F6_E2M3"), 1, kRefused, kRefused},
      {tensor("[4]", "[0,3]", "F6_E3M2"), 3, kAccepted, kAccepted},
      {tensor("[1]", "[0,8]", "C64"), 8, kAccepted, kAccepted},
      {tensor("[1]", "[0,1]", "F8_E4M3FNUZ"), 1, kAccepted, kAccepted},
      {tensor("[2]", "[0,1]", "F8_E5M2FNUZ"), 1, kRefused, kRefused},
      {tensor("[1]", "[0,1]", "u8"), 1, kRefused, kAccepted},  // a dtype that it does not know: raw bytes
      // Metadata: strings by strings.
      {R"({"__metadata__":null})", 0, kAccepted, kAccepted},
      {R"({"__metadata__":{}})", 0, kAccepted, kAccepted},
      {R"({"__met\u0061data__":{"k":"v"}})", 0, kAccepted, kAccepted},
      {R"({"__metadata__":{"k":"v","k":"w"}})", 0, kAccepted, kRefused},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, kRefused, kRefused},
      {R"({"__metadata__":null,"__metadata__":null})", 0, kRefused, kRefused},
      {R"({"__metadata__":[]})", 0, kRefused, kRefused},
      {R"({"__metadata__":1})", 0, kRefused, kRefused},
      {R"({"__metadata__":{"k":1}})", 0, kRefused, kRefused},
      {R"({"__metadata__":{"k":null}})", 0, kRefused, kRefused},
      {R"({"__metadata__":{"k":{}}})", 0, kRefused, kRefused},
      {R"({"__metadata__":{"k":["v"]}})", 0, kRefused, kRefused},
  };
  std::size_t laxer = 0;
  for (const Ruling& ruling : rulings) {
    const auto header = parse(ruling.header, ruling.data_bytes);
    EXPECT_EQ(header.has_value() ? kAccepted : kRefused, ruling.ours) << quoted_name(ruling.header);
    laxer += ruling.reference == kRefused && ruling.ours == kAccepted;
  }
  EXPECT_EQ(laxer, 1u) << "only unknown dtypes are accepted beyond what the reference accepts";
}

TEST(Safetensors, AcceptsNamesThatLookLikeNumbersOrControl) {
  const auto header = parse(R"({"NaN":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                            R"("\u0000\u001b[2J":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                            0);
  ASSERT_TRUE(header.has_value());
  EXPECT_EQ(quoted_name(header->tensors[0].name), R"('\x00\x1b[2J')");
  EXPECT_EQ(header->tensors[1].name, "NaN");
}

TEST(Safetensors, RefusesLyingHeaderLengths) {
  const auto with_length = [](std::uint64_t length) {
    std::string file = safetensors_bytes("{}");
    std::memcpy(file.data(), &length, sizeof length);
    return parse(file);
  };
  EXPECT_TRUE(with_length(2).has_value());
  EXPECT_THAT(with_length(0).error().message(), HasSubstr("does not start with '{'"));
  EXPECT_THAT(with_length(3).error().message(), HasSubstr("truncated"));
  EXPECT_EQ(with_length(100'000'000).error().code, Errc::kCorrupt);
  EXPECT_EQ(with_length(100'000'001).error().code, Errc::kTooLarge);
  EXPECT_EQ(with_length(std::uint64_t{1} << 63).error().code, Errc::kTooLarge);
  EXPECT_EQ(with_length(~std::uint64_t{0}).error().code, Errc::kTooLarge);
}

TEST(Safetensors, RefusesTruncationAtEveryLength) {
  const std::string whole = safetensors_bytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}} )", "12345678");
  ASSERT_TRUE(parse(whole).has_value());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THAT(parse(std::string_view(whole).substr(0, length)), FailsWith(Errc::kCorrupt)) << length;
  }
}

TEST(Safetensors, RefusesToWriteWhatItWouldNotRead) {
  const auto code = [](std::vector<TensorInfo> tensors) { return lay_out_safetensors(tensors).error().code; };
  EXPECT_EQ(code({{"a", "U8", {1}, 0, 1}, {"a", "I8", {1}, 0, 1}}), Errc::kInvalidArgument);
  EXPECT_EQ(code({{"__metadata__", "U8", {1}, 0, 1}}), Errc::kInvalidArgument);
  EXPECT_EQ(code({{"a\xff", "U8", {1}, 0, 1}}), Errc::kInvalidArgument);
  EXPECT_EQ(code({{"a", "U8", {1}, 0, 2}}), Errc::kInvalidArgument);
  EXPECT_EQ(code({{std::string(kTensorNameBytesMax + 1, 'n'), "U8", {1}, 0, 1}}), Errc::kTooLarge);
  EXPECT_EQ(code({{"a", "X", {}, 0, ~std::uint64_t{0}}, {"b", "X", {}, 0, 2}}), Errc::kTooLarge);
}

RC_GTEST_PROP(Safetensors, ReadsBackWhatItWritesInAnyOrder, ()) {
  const auto names =
      *rc::gen::unique<std::vector<std::string>>(rc::gen::container<std::string>(rc::gen::inRange<char>(0, 127)));
  std::vector<TensorInfo> tensors;
  std::vector<std::string> contents;
  for (const std::string& name : names) {
    const auto dtype = *rc::gen::element<std::string>("BF16", "F32", "F8_E4M3", "F4", "I64", "BOOL", "NF4X");
    std::vector<std::uint64_t> shape =
        *rc::gen::resize(3, rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange<std::uint64_t>(0, 4)));
    shape.push_back(2);
    const auto known = tensor_bytes(dtype, shape);
    const std::uint64_t size = known.has_value() ? *known : *rc::gen::inRange<std::uint64_t>(0, 9);
    tensors.push_back({name, dtype, shape, 0, size});
    contents.push_back(*rc::gen::container<std::string>(size, rc::gen::arbitrary<char>()));
  }
  const auto write = [&] {
    std::vector<Bytes> data;
    for (const std::string& content : contents) data.push_back(as_bytes(content));
    return write_to_string(tensors, data, {{"k", "v"}});
  };
  const std::string file = write();
  RC_ASSERT(file.size() >= 16);
  const auto header = parse(file);
  RC_ASSERT(header.has_value());
  RC_ASSERT(header->data_offset_bytes % 8 == 0);
  RC_ASSERT(header->tensors.size() == tensors.size());
  for (const TensorInfo& read : header->tensors) {
    const auto at = static_cast<std::size_t>(
        std::find_if(tensors.begin(), tensors.end(), [&](const TensorInfo& t) { return t.name == read.name; }) -
        tensors.begin());
    TensorInfo expected = tensors.at(at);
    expected.offset_bytes = read.offset_bytes;
    RC_ASSERT(read == expected);
    RC_ASSERT(file.substr(read.offset_bytes, read.size_bytes) == contents[at]);
  }
  std::reverse(tensors.begin(), tensors.end());
  std::reverse(contents.begin(), contents.end());
  RC_ASSERT(write() == file);
}

TEST(Safetensors, ReadsAHundredThousandTensorsWithinASecondOfProcessorTime) {
  std::vector<TensorInfo> tensors;
  for (int i = 0; i < 100'000; ++i) {
    tensors.push_back(
        {fmt::format("model.layers.{}.mlp.experts.{}.up_proj.weight", i / 1000, i % 1000), "BF16", {2}, 0, 4});
  }
  const auto layout = lay_out_safetensors(tensors);
  ASSERT_TRUE(layout.has_value());
  const std::clock_t begin = std::clock();
  const auto header = parse_safetensors_header(as_bytes(layout->header), layout->file_bytes, "many");
  const double taken_s = double(std::clock() - begin) / CLOCKS_PER_SEC;
  ASSERT_TRUE(header.has_value());
  EXPECT_EQ(header->tensors.size(), tensors.size());
  RecordProperty("seconds", fmt::format("{:.3f}", taken_s));
#if defined(NDEBUG)  // sanitizers are not what the bound is for
  EXPECT_LT(taken_s, 1.0);
#endif
}

}  // namespace
}  // namespace weightcast
