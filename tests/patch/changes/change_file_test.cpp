#include "patch/changes/change_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <random>

#include "base/files/memory_file.h"
#include "patch/codec/segment.h"
#include "tests/patch/safetensors_bytes.h"
#include "tests/patch/temp_dir.h"
#include "tests/real_files.h"

namespace weightcast {
namespace {

using testing::HasSubstr;

/// Indices and values of one tensor.
struct Given {
  std::string dtype;
  std::vector<std::uint64_t> indices;
  std::string values;
  unsigned index_bytes = 4;
};

template <typename Int>
std::string bytes_of(const std::vector<std::uint64_t>& numbers) {
  std::string out;
  for (const std::uint64_t number : numbers) {
    const auto narrow = static_cast<Int>(number);
    out.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
  }
  return out;
}

std::string file_of(const std::map<std::string, Given>& given) {
  std::string header, data;
  const auto add = [&](const std::string& name, const std::string& dtype, std::size_t count, const std::string& bytes) {
    header += header.empty() ? "{" : ",";
    header += "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + std::to_string(count) +
              "],\"data_offsets\":[" + std::to_string(data.size()) + "," + std::to_string(data.size() + bytes.size()) +
              "]}";
    data += bytes;
  };
  for (const auto& [name, one] : given) {
    // Of a piece, `name` begins with its box.
    const std::string slash = name.front() == '[' ? "" : "/";
    add("indices" + slash + name, one.index_bytes == 4 ? "U32" : "U64", one.indices.size(),
        one.index_bytes == 4 ? bytes_of<std::uint32_t>(one.indices) : bytes_of<std::uint64_t>(one.indices));
    const unsigned bits = dtype_bits(one.dtype);
    add("values" + slash + name, one.dtype, one.values.size() * 8 / (bits == 0 ? 8 : bits), one.values);
  }
  return safetensors_bytes(header.empty() ? "{}" : header + "}", data);
}

struct ChangeFileTest : testing::Test {
  TempDir temp;
  std::vector<TensorInfo> tensors{{"raw", "U8", {10}, 3, 10},  {"half", "BF16", {4, 5}, 13, 40},
                                  {"none", "F32", {0}, 53, 0}, {"pair", "C64", {3}, 53, 24},
                                  {"tiny", "F4", {4}, 77, 2},  {"odd", "XYZ", {4}, 79, 4}};

  Result<ChangeFile> open(const std::string& bytes, std::optional<std::uint64_t> size = {}) {
    const std::string path = temp.file("changes");
    const auto made = real_files().open(path, {.write = true, .create = Create::kEmpty});
    EXPECT_TRUE(write_fully(**made, 0, as_bytes(bytes), path).has_value());
    auto file = real_files().open(path, {.write = true});
    return ChangeFile::open(FileRef(std::move(*file)), size.value_or(bytes.size()), "the changes", tensors);
  }
  Result<ChangeFile> open(const std::map<std::string, Given>& given) { return open(file_of(given)); }

  std::string error_of(const std::map<std::string, Given>& given) {
    const Result<ChangeFile> opened = open(given);
    return opened.has_value() ? "none" : opened.error().message();
  }
  /// What reading all of it says.
  std::string read_error_of(const std::map<std::string, Given>& given, bool finite_only = true) {
    const Result<ChangeFile> opened = open(given);
    if (!opened.has_value()) return "not opened: " + opened.error().message();
    CellChanges changes;
    for (std::uint64_t at = 0; at < 83; at += 7) {
      const Status read = opened->read(at, 7, 1, finite_only, changes);
      if (!read.has_value()) {
        EXPECT_EQ(read.error().code, Errc::kInvalidArgument);
        return read.error().message();
      }
    }
    return "none";
  }
};

TEST_F(ChangeFileTest, GivesTheCellsOfARange) {
  const auto opened = open({{"raw", {"U8", {0, 9}, "ab"}}, {"half", {"BF16", {0, 3, 19}, "cdefgh", 8}}});
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  EXPECT_EQ(opened->count(), 5u);
  EXPECT_EQ(opened->value_bytes(), 8u);
  CellChanges changes;
  ASSERT_TRUE(opened->read(3, 10, 1, true, changes).has_value());
  EXPECT_EQ(changes.cells, (std::vector<std::uint32_t>{0, 9}));
  EXPECT_EQ(changes.values, (std::vector<std::byte>{std::byte{'a'}, std::byte{'b'}}));
  ASSERT_TRUE(opened->read(13, 40, 2, true, changes).has_value());
  EXPECT_EQ(changes.cells, (std::vector<std::uint32_t>{0, 3, 19}));
  EXPECT_EQ(changes.values.size(), 6u);
  ASSERT_TRUE(opened->read(15, 4, 2, true, changes).has_value());
  EXPECT_TRUE(changes.cells.empty() && changes.values.empty());
  ASSERT_TRUE(opened->read(53, 30, 1, true, changes).has_value());
  EXPECT_TRUE(changes.cells.empty());
}

TEST_F(ChangeFileTest, WithoutChangesIsAFileWithoutTensors) {
  const auto opened = open(std::map<std::string, Given>{});
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  EXPECT_EQ(opened->count(), 0u);
  EXPECT_EQ(read_error_of({{"none", {"F32", {}, ""}}}), "none");
}

TEST_F(ChangeFileTest, SplitsAnElementThatRangesShare) {
  const auto opened = open({{"pair", {"C64", {0, 1, 2}, "abcdefghijklmnopqrstuvwx"}}});
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  CellChanges changes;
  std::string seen(24, '?');
  for (std::uint32_t at = 0; at < 24; at += 4) {
    ASSERT_TRUE(opened->read(53 + at, 4, 4, true, changes).has_value());
    ASSERT_EQ(changes.cells, std::vector<std::uint32_t>{0});
    std::memcpy(seen.data() + at, changes.values.data(), 4);
  }
  EXPECT_EQ(seen, "abcdefghijklmnopqrstuvwx");
}

RC_GTEST_FIXTURE_PROP(ChangeFileTest, RangesOfAnyLengthGiveEachChangeOnce, ()) {
  std::mt19937 random(*rc::gen::arbitrary<unsigned>());
  std::map<std::string, Given> given;
  std::string before(83, '.'), after = before;
  for (const TensorInfo& tensor : tensors) {
    const unsigned bits = dtype_bits(tensor.dtype);
    if (bits % 8 != 0 || bits == 0) continue;
    Given& one = given[tensor.name];
    one.dtype = tensor.dtype;
    one.index_bytes = random() % 2 == 0 ? 4 : 8;
    for (std::uint64_t i = 0; i < tensor.size_bytes / (bits / 8); ++i) {
      if (random() % 3 == 0) continue;
      one.indices.push_back(i);
      for (unsigned b = 0; b < bits / 8; ++b) {
        const char value = char('a' + random() % 26);
        one.values += value;
        after[tensor.offset_bytes + i * (bits / 8) + b] = value;
      }
    }
  }
  const auto opened = open(given);
  RC_ASSERT(opened.has_value());
  std::string made = before;
  CellChanges changes;
  for (std::uint64_t at = 0; at < made.size();) {
    const auto size = std::uint32_t(std::min<std::uint64_t>(1 + random() % 20, made.size() - at));
    RC_ASSERT(opened->read(at, size, 1, false, changes).has_value());
    for (std::size_t i = 0; i < changes.cells.size(); ++i) {
      RC_ASSERT(changes.cells[i] < size);
      made[at + changes.cells[i]] = char(changes.values[i]);
    }
    at += size;
  }
  RC_ASSERT(made == after);
}

TEST_F(ChangeFileTest, MergesThePiecesOfATensor) {
  // Of 4 x 5 elements of two bytes: the left two columns, and the others in two pieces.
  const auto opened = open({{"[0+4,0+2]/half", {"BF16", {1, 6, 7}, "abcdef"}},
                            {"[0+1,2+3]/half", {"BF16", {0}, "gh", 8}},
                            {"[1+3,2+3]/half", {"BF16", {2, 8}, "ijkl"}},
                            {"raw", {"U8", {0, 9}, "yz"}}});
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  EXPECT_EQ(opened->count(), 8u);
  CellChanges changes;
  ASSERT_TRUE(opened->read(13, 40, 2, true, changes).has_value());
  EXPECT_EQ(changes.cells, (std::vector<std::uint32_t>{1, 2, 9, 15, 16, 19}));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(changes.values.data()), changes.values.size()), "abghijcdefkl");
}

/// Cuts a box in two at a time, at random, along any dimension.
void cut(const Box& box, std::mt19937& random, std::vector<Box>& pieces) {
  std::vector<std::size_t> wide;
  for (std::size_t i = 0; i < box.size(); ++i) {
    if (box[i].length > 1) wide.push_back(i);
  }
  if (wide.empty() || random() % 4 == 0) return pieces.push_back(box);
  const std::size_t side = wide[random() % wide.size()];
  const std::uint64_t at = 1 + random() % (box[side].length - 1);
  Box first = box, second = box;
  first[side].length = at;
  second[side] = {box[side].start + at, box[side].length - at};
  cut(first, random, pieces);
  cut(second, random, pieces);
}

RC_GTEST_FIXTURE_PROP(ChangeFileTest, PiecesGiveWhatOneListOfTheTensorGives, ()) {
  std::mt19937 random(*rc::gen::arbitrary<unsigned>());
  const std::string dtype = random() % 2 == 0 ? "F32" : "I16";
  const unsigned width = dtype == "F32" ? 4 : 2;
  TensorInfo tensor{"w", dtype, {}, 3, width};
  Box whole;
  for (unsigned i = 0, rank = random() % 4; i < rank; ++i) {
    tensor.shape.push_back(1 + random() % 6);
    whole.push_back({0, tensor.shape.back()});
    tensor.size_bytes *= tensor.shape.back();
  }
  tensors = {tensor};
  std::vector<Box> pieces;
  cut(whole, random, pieces);
  std::map<std::string, Given> given;
  std::string after(3 + tensor.size_bytes, '.');
  for (const Box& piece : pieces) {
    Given& one = given[piece.empty() ? "w" : change_name(kIndicesPrefix, piece, "w").substr(7)];
    one.dtype = dtype;
    one.index_bytes = random() % 2 == 0 ? 4 : 8;
    for (std::uint64_t inside = 0; inside < *volume_of(piece); ++inside) {
      if (random() % 2 == 0) continue;
      one.indices.push_back(inside);
      std::uint64_t element = 0, rest = inside, stride = 1;
      for (std::size_t i = piece.size(); i-- > 0; rest /= piece[i].length, stride *= tensor.shape[i]) {
        element += (piece[i].start + rest % piece[i].length) * stride;
      }
      for (unsigned b = 0; b < width; ++b) {
        one.values += after[3 + element * width + b] = char('a' + random() % 26);
      }
    }
  }
  const auto opened = open(given);
  RC_ASSERT(opened.has_value());
  std::string made(after.size(), '.');
  CellChanges changes;
  for (std::uint64_t at = 0; at < made.size();) {
    const auto size = std::uint32_t(std::min<std::uint64_t>(1 + random() % 20, made.size() - at));
    RC_ASSERT(opened->read(at, size, 1, false, changes).has_value());
    RC_ASSERT(changes.values.size() == changes.cells.size());
    for (std::size_t i = 0; i < changes.cells.size(); ++i) {
      RC_ASSERT(changes.cells[i] < size && (i == 0 || changes.cells[i - 1] < changes.cells[i]));
      made[at + changes.cells[i]] = char(changes.values[i]);
    }
    at += size;
  }
  RC_ASSERT(made == after);
}

TEST_F(ChangeFileTest, RefusesPiecesThatAreNone) {
  const auto error = [&](const std::string& box) { return error_of({{box + "/half", {"BF16", {0}, "ab"}}}); };
  EXPECT_EQ(error("[3+1,4+1]"), "none");
  for (const char* const beyond : {"[0+5,0+5]", "[4+1,0+5]", "[3+2,0+5]", "[0+4]", "[0+4,0+5,0+1]",
                                   "[0+4,18446744073709551615+5]", "[18446744073709551615+2,0+5]"}) {
    EXPECT_THAT(error(beyond), HasSubstr("is no piece of it")) << beyond;
  }
  for (const char* const none : {"[]", "[0+4,0+5", "[0+4,0+5,]", "[+4,0+5]", "[0-4,0+5]", "[0+4,0+5]]", "[-1+4,0+5]",
                                 "[0+18446744073709551616,0+5]"}) {
    EXPECT_THAT(error(none), HasSubstr("neither indices/NAME nor values/NAME")) << none;
  }
  EXPECT_THAT(error_of({{"[0+1,0+2]/half", {"BF16", {0, 1, 1}, "abcdef"}}}), HasSubstr("3 changes of 2 elements"));
  // Each on its own is in order.
  EXPECT_THAT(read_error_of({{"[0+2,0+5]/half", {"BF16", {9}, "ab"}}, {"[1+1,0+5]/half", {"BF16", {4}, "cd"}}}),
              HasSubstr("two pieces change element 9"));
  EXPECT_THAT(read_error_of({{"half", {"BF16", {9}, "ab"}}, {"[1+1,0+5]/half", {"BF16", {4}, "cd"}}}),
              HasSubstr("two pieces change element 9"));
  std::vector<std::uint64_t> all(20);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  EXPECT_THAT(error_of({{"half", {"BF16", all, std::string(40, 'a')}}, {"[0+1,0+1]/half", {"BF16", {0}, "cd"}}}),
              HasSubstr("more changes than it has elements"));
}

TEST_F(ChangeFileTest, RefusesWhatDoesNotFitTheVersion) {
  EXPECT_THAT(error_of({{"what", {"U8", {0}, "a"}}}),
              HasSubstr("tensor 'what': the version that is changed has no such tensor"));
  EXPECT_THAT(error_of({{"raw", {"I8", {0}, "a"}}}), HasSubstr("its values are of dtype 'I8', its elements of U8"));
  EXPECT_THAT(error_of({{"tiny", {"F4", {0, 1}, "a"}}}), HasSubstr("not whole bytes"));
  EXPECT_THAT(error_of({{"odd", {"XYZ", {0}, "a"}}}), HasSubstr("not whole bytes"));
  EXPECT_THAT(error_of({{"raw", {"U8", {0, 1}, "a"}}}), HasSubstr("1 values for 2 indices"));
  EXPECT_THAT(error_of({{"raw", {"U8", {0}, "ab"}}}), HasSubstr("2 values for 1 indices"));
  EXPECT_THAT(error_of({{"raw", {"U8", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9}, "abcdefghijk"}}}),
              HasSubstr("11 changes of 10 elements"));
  EXPECT_THAT(error_of({{"none", {"F32", {0}, "abcd"}}}), HasSubstr("1 changes of 0 elements"));
}

TEST_F(ChangeFileTest, RefusesTensorsThatAreNoChanges) {
  const auto error = [&](const std::string& header, const std::string& data) {
    const auto opened = open(safetensors_bytes(header, data));
    return opened.has_value() ? std::string("none") : opened.error().message();
  };
  EXPECT_THAT(error(R"({"raw":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "a"), HasSubstr("neither"));
  EXPECT_THAT(error(R"({"values/raw":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "a"),
              HasSubstr("has no indices"));
  EXPECT_THAT(error(R"({"indices/raw":{"dtype":"U32","shape":[1],"data_offsets":[0,4]}})", "abcd"),
              HasSubstr("has no values"));
  EXPECT_THAT(error(R"({"indices/raw":{"dtype":"I32","shape":[1],"data_offsets":[0,4]},)"
                    R"("values/raw":{"dtype":"U8","shape":[1],"data_offsets":[4,5]}})",
                    "abcde"),
              HasSubstr("give U32 or U64"));
  EXPECT_THAT(error(R"({"indices/raw":{"dtype":"U32","shape":[1,1],"data_offsets":[0,4]},)"
                    R"("values/raw":{"dtype":"U8","shape":[1,1],"data_offsets":[4,5]}})",
                    "abcde"),
              HasSubstr("rows of one length"));
  EXPECT_NE(error("", ""), "none");
  EXPECT_NE(error("{", ""), "none");
}

TEST_F(ChangeFileTest, RefusesAFileThatIsCutShortAtAnyLength) {
  const std::string whole = file_of({{"raw", {"U8", {0, 9}, "ab"}}, {"half", {"BF16", {0, 3}, "cdef"}}});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(open(whole.substr(0, size)).has_value()) << size;
    EXPECT_FALSE(open(whole, size).has_value()) << size;
  }
  EXPECT_FALSE(open(whole, whole.size() + 1).has_value());
  EXPECT_TRUE(open(whole + "what comes behind them", whole.size()).has_value());
}

TEST_F(ChangeFileTest, RefusesIndicesThatAreOutOfBoundsOrDoNotAscend) {
  const auto error = [&](const std::vector<std::uint64_t>& indices) {
    return read_error_of({{"raw", {"U8", indices, std::string(indices.size(), 'a'), 8}}});
  };
  EXPECT_EQ(error({0, 1, 9}), "none");
  EXPECT_THAT(error({0, 10}), HasSubstr("index 10 is not one of its 10 elements"));
  EXPECT_THAT(error({~std::uint64_t{0}}), HasSubstr("index -1 is not one of its 10 elements"));
  EXPECT_NE(error({3, 3}), "none");
  EXPECT_NE(error({3, 2}), "none");
  EXPECT_NE(error({0, 1, 2, 3, 9, 4, 5}), "none");
}

// Whatever list it is: it is refused, or it ascends.
RC_GTEST_FIXTURE_PROP(ChangeFileTest, NoListIsTakenThatDoesNotAscend, ()) {
  const auto indices = *rc::gen::resize(10, rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange(0u, 12u)));
  if (indices.size() > 10) return;
  bool ascends = true;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    ascends = ascends && indices[i] < 10 && (i == 0 || indices[i] > indices[i - 1]);
  }
  const std::string error = read_error_of({{"raw", {"U8", indices, std::string(indices.size(), 'a')}}});
  RC_ASSERT((error == "none") == ascends);
}

TEST_F(ChangeFileTest, RefusesValuesThatAreNotFinite) {
  const std::string nan("\xc0\x7f", 2);
  const std::map<std::string, Given> given{{"half", {"BF16", {2}, nan}}};
  EXPECT_THAT(read_error_of(given), HasSubstr("tensor 'half': a new value is NaN or infinite"));
  EXPECT_EQ(read_error_of(given, false), "none");
}

/// A file that its owner writes to between any two reads.
class RestlessFile final : public ReadOnlyFile {
 public:
  RestlessFile(std::string bytes, std::size_t data_at, unsigned seed)
      : bytes_(std::move(bytes)), data_at_(data_at), random_(seed) {}
  Result<std::size_t> read_at(std::uint64_t offset, MutableBytes into) override {
    for (int i = 0; i < 3; ++i) bytes_[data_at_ + random_() % (bytes_.size() - data_at_)] = char(random_() % 12);
    const std::size_t count = std::min<std::size_t>(into.size(), bytes_.size() - offset);
    std::memcpy(into.data(), bytes_.data() + offset, count);
    return count;
  }
  Result<FileInfo> info() override {
    FileInfo info;
    info.kind = FileInfo::Kind::kFile;
    info.size_bytes = bytes_.size();
    return info;
  }

 private:
  std::string bytes_;
  const std::size_t data_at_;
  std::mt19937 random_;
};

// What is returned was checked: indices ascend within the range, with a value for each.
TEST_F(ChangeFileTest, GivesOnlyWhatFitsWhateverIsWrittenMeanwhile) {
  const std::string bytes =
      file_of({{"raw", {"U8", {1, 5, 7, 8}, "abcd"}}, {"half", {"BF16", {0, 3, 11, 19}, "abcdefgh"}}});
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  int taken = 0, refused = 0;
  for (unsigned seed = 0; seed < 2000; ++seed) {
    const auto opened = ChangeFile::open(std::make_shared<RestlessFile>(bytes, 8 + header_bytes, seed), bytes.size(),
                                         "the changes", tensors);
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    CellChanges changes;
    for (std::uint64_t at = 0; at < 60; at += 6) {
      const Status read = opened->read(at, 6, 1, false, changes);
      read.has_value() ? ++taken : ++refused;
      if (!read.has_value()) continue;
      ASSERT_EQ(changes.values.size(), changes.cells.size());
      for (std::size_t i = 0; i < changes.cells.size(); ++i) {
        ASSERT_LT(changes.cells[i], 6u);
        ASSERT_TRUE(i == 0 || changes.cells[i] > changes.cells[i - 1]);
      }
    }
  }
  EXPECT_GT(taken, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace weightcast
