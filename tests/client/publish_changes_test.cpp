#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <map>

#include "tests/client/code_of.h"
#include "tests/client/publish_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST_F(PublishTest, ChangesArriveAsATableOfIndicesAndValues) {
  const std::vector<std::uint32_t> narrow{1, 4};
  const std::string narrow_values = "xy";
  const std::vector<std::uint64_t> wide{7};
  const float value = 2.5;
  const std::vector<wc::Change> given{
      change(narrow, narrow_values),
      {.name = "f", .dtype = "F32", .indices = wide.data(), .index_bytes = 8, .values = &value, .count = 1},
      {.name = "none", .dtype = "I64"}};
  const Offered offered = accept_during(
      12, [&] { EXPECT_EQ(client.publish_sparse(11, given, {.version = 12, .allow_nonfinite = true}, 5s), 12u); });
  const local::PublishChangesRequest request = as<local::PublishChangesRequest>(offered.request);
  EXPECT_EQ(request.version, 12u);
  EXPECT_EQ(request.base_version, 11u);
  EXPECT_TRUE(request.allow_nonfinite);
  const std::string file = offered.bytes().substr(0, request.changes_bytes);
  ASSERT_EQ(file.size(), request.changes_bytes);
  const auto bytes_of = [](const auto& from) { return std::string(reinterpret_cast<const char*>(&from), sizeof from); };
  const std::map<std::string, std::string> expected{{"U32 indices/w", bytes_of(std::array{1u, 4u})},
                                                    {"U8 values/w", "xy"},
                                                    {"U64 indices/f", bytes_of(wide[0])},
                                                    {"F32 values/f", bytes_of(value)},
                                                    {"U32 indices/none", ""},
                                                    {"I64 values/none", ""}};
  EXPECT_EQ(Offered::tensors_of(file, true), expected);
}

TEST_F(PublishTest, ChangesGoByMemoryOfTheirOwn) {
  const Offered whole = publish(1, 'a');
  const Offered changes = publish_changes(2, 'b', 1000);
  const std::string sent = changes.bytes();
  EXPECT_THAT(sent, HasSubstr(std::string(1000, 'b')));
  const std::vector<std::uint32_t> one{0};
  EXPECT_EQ(code_of([&] { return client.publish_sparse(2, {change(one, "c")}, {}, 20ms); }), WC_TIMED_OUT)
      << "the origin is still reading";
  EXPECT_EQ(changes.bytes(), sent);
  const Offered second = publish_changes(3, 'c', 10, {.second_region = true});
  EXPECT_EQ(changes.bytes(), sent);
  daemon.send(taken_reply(2), changes.id());
  // A few more fit into the memory that is there.
  const Offered third = publish_changes(4, 'd', 1100);
  struct stat of_first {
  }, of_third{};
  ASSERT_EQ(::fstat(changes.fd, &of_first), 0);
  ASSERT_EQ(::fstat(third.fd, &of_third), 0);
  EXPECT_EQ(of_first.st_ino, of_third.st_ino) << "the memory is used again";
  EXPECT_THAT(third.bytes(), HasSubstr(std::string(1100, 'd')));
}

TEST_F(PublishTest, ChangesThatAreRefusedLeaveWhatWasBegun) {
  fill('a');
  const std::vector<std::uint32_t> one{0};
  for (int i = 0; i < 3; ++i) {
    daemon.play([this] {
      const Offered refused = receive();
      daemon.send(error_reply(Errc::kWrongBase, "the last one is 7"), refused.id());
    });
    EXPECT_EQ(code_of([&] { return client.publish_sparse(2, {change(one, "c")}, {}, 5s); }), WC_WRONG_BASE);
  }
  const Offered whole = commit(8);
  EXPECT_THAT(whole.bytes(), HasSubstr(std::string(kBytes, 'a')));
  const Offered changes = publish_changes(9, 'b', 10);
  EXPECT_TRUE(changes.request.get<local::PublishChangesRequest>());
}

TEST_F(PublishTest, RefusesWhatAreNoChanges) {
  const std::vector<std::uint32_t> one{0};
  const auto refused = [&](wc::Change given) {
    return code_of([&] { return client.publish_sparse(1, {given}, {}, 20ms); });
  };
  const wc::Change good = change(one, "a");
  const auto with = [&](auto member, auto value) {
    wc::Change bad = good;
    bad.*member = value;
    return refused(bad);
  };
  EXPECT_EQ(with(&wc::Change::indices, nullptr), WC_INVALID_ARGUMENT);
  EXPECT_EQ(with(&wc::Change::values, nullptr), WC_INVALID_ARGUMENT);
  EXPECT_EQ(with(&wc::Change::index_bytes, 2u), WC_INVALID_ARGUMENT);
  EXPECT_EQ(with(&wc::Change::dtype, "F4"), WC_INVALID_ARGUMENT);
  EXPECT_EQ(with(&wc::Change::dtype, "what"), WC_INVALID_ARGUMENT);
  EXPECT_EQ(with(&wc::Change::name, "\xff"), WC_INVALID_ARGUMENT);
  EXPECT_EQ(with(&wc::Change::name, std::string(16380, 'n')), WC_TOO_LARGE);
  EXPECT_EQ(with(&wc::Change::count, std::uint64_t{1} << 62), WC_TOO_LARGE);
  EXPECT_EQ(with(&wc::Change::count, std::uint64_t{1} << 55), WC_NO_SPACE);
  EXPECT_THAT(([&] {
                client.publish_sparse(1, {good, good}, {}, 20ms);
              }),
              ThrowsMessage<wc::Error>(HasSubstr("change 1 of those given, of tensor 'w': it is given twice")));
  EXPECT_EQ(refused(good), WC_TIMED_OUT) << "after all of these; nobody answers";
}

TEST_F(PublishTest, ChangesAreFilledInPlaceByPieces) {
  const std::vector<wc::Piece> pieces{
      {.name = "m", .dtype = "BF16", .start = {0, 0}, .lengths = {4, 2}, .count = 2},
      {.name = "m", .dtype = "BF16", .start = {0, 2}, .lengths = {4, 3}, .count = 1, .index_bytes = 8},
      {.name = "v", .dtype = "U8", .start = {}, .lengths = {}, .count = 3}};
  const auto places = client.begin_changes(11, pieces, {.allow_nonfinite = true, .parts = 2}, 1s);
  EXPECT_EQ(code_of([&] { return client.begin(tensors, {}, 1s); }), WC_BUSY);
  EXPECT_EQ(code_of([&] { return client.publish_sparse(11, {}, {}, 1s); }), WC_BUSY) << "it would move the lists";
  wc::Region mine(client), theirs(client.region_fd());
  std::memcpy(places[0].indices, std::array{1u, 7u}.data(), 8);
  std::memcpy(places[0].values, "abcd", 4);
  const wc_slot indices = theirs.find("indices[0+4,2+3]/m"), values = theirs.find("values[0+4,2+3]/m");
  EXPECT_STREQ(indices.dtype, "U64");
  EXPECT_STREQ(values.dtype, "BF16");
  std::memcpy(indices.address, std::array<std::uint64_t, 1>{5}.data(), 8);
  std::memcpy(values.address, "ef", 2);
  std::memcpy(places[2].indices, std::array{0u, 1u, 2u}.data(), 12);
  std::memcpy(places[2].values, "xyz", 3);
  mine.done(client.region_id(), 0);
  EXPECT_EQ(code_of([&] { return client.commit(1s); }), WC_BUSY);
  theirs.done(client.region_id(), 1);
  const Offered offered = commit(12);
  ASSERT_TRUE(offered.request.get<local::PublishChangesRequest>());
  const local::PublishChangesRequest request = as<local::PublishChangesRequest>(offered.request);
  EXPECT_EQ(request.base_version, 11u);
  EXPECT_TRUE(request.allow_nonfinite);
  const std::string file = offered.bytes().substr(0, request.changes_bytes);
  std::map<std::string, std::string> found = Offered::tensors_of(file);
  std::erase_if(found, [](const auto& tensor) { return !tensor.first.starts_with("values"); });
  EXPECT_EQ(found, (std::map<std::string, std::string>{
                       {"values[0+4,0+2]/m", "abcd"}, {"values[0+4,2+3]/m", "ef"}, {"values/v", "xyz"}}));
  // The memory is the changes', which come and go beside the whole tensors'.
  fill('a');
  EXPECT_TRUE(commit(13).request.get<local::PublishRequest>());
}

TEST_F(PublishTest, RefusesWhatAreNoPieces) {
  const wc::Piece good{.name = "m", .dtype = "BF16", .start = {0, 0}, .lengths = {4, 2}, .count = 2};
  const auto begun = [&](const std::vector<wc::Piece>& pieces, const wc::PublishOptions& options = {}) {
    const wc_code code = code_of([&] { return client.begin_changes(1, pieces, options, 20ms); });
    client.abort();
    return code;
  };
  const auto with = [&](auto member, auto value) {
    wc::Piece bad = good;
    bad.*member = value;
    return begun({bad});
  };
  EXPECT_EQ(begun({good}), WC_OK);
  EXPECT_EQ(begun({}), WC_OK) << "a copy of the last one";
  EXPECT_EQ(with(&wc::Piece::dtype, "F4"), WC_INVALID_ARGUMENT);
  EXPECT_EQ(with(&wc::Piece::dtype, "what"), WC_INVALID_ARGUMENT);
  EXPECT_EQ(with(&wc::Piece::name, "\xff"), WC_INVALID_ARGUMENT);
  EXPECT_EQ(with(&wc::Piece::index_bytes, 2u), WC_INVALID_ARGUMENT);
  EXPECT_EQ(with(&wc::Piece::count, std::uint64_t{9}), WC_INVALID_ARGUMENT) << "more than elements";
  const std::uint64_t many = std::uint64_t{1} << 33;
  EXPECT_EQ(with(&wc::Piece::lengths, std::vector<std::uint64_t>{many, 1}), WC_INVALID_ARGUMENT) << "narrow indices";
  EXPECT_EQ(with(&wc::Piece::lengths, std::vector<std::uint64_t>{many, many}), WC_INVALID_ARGUMENT);
  EXPECT_EQ(begun({good, good}), WC_INVALID_ARGUMENT) << "given twice";
  EXPECT_EQ(begun({good}, {.new_model = true}), WC_INVALID_ARGUMENT);
  EXPECT_EQ(begun({good}, {.files = {{"config.json", "{}", 2, 0}}}), WC_INVALID_ARGUMENT);
  wc_piece piece = good.view();
  piece.start = nullptr;
  wc_client* raw = nullptr;
  ASSERT_EQ(wc_open(daemon.state_dir().c_str(), 1000, &raw, nullptr), WC_OK);
  void* places[2];
  EXPECT_EQ(wc_begin_changes(raw, nullptr, 1, &piece, 1, places, places + 1, 20, nullptr), WC_INVALID_ARGUMENT);
  EXPECT_EQ(wc_begin_changes(raw, nullptr, 1, nullptr, 1, places, places + 1, 20, nullptr), WC_INVALID_ARGUMENT);
  wc_close(raw);
}

TEST(Shadow, IsUpdatedAndItsChangesAreListed) {
  std::array<std::uint16_t, 5> shadow{1, 2, 3, 4, 5};
  const std::array<std::uint16_t, 5> now{1, 7, 3, 8, 9};
  std::array<std::uint32_t, 3> indices{};
  std::array<std::uint16_t, 3> values{};
  EXPECT_EQ(wc::update_shadow(shadow.data(), now.data(), 5, 2, 3, indices.data(), values.data()), 3u);
  EXPECT_EQ(shadow, now);
  EXPECT_EQ(indices, (std::array<std::uint32_t, 3>{1, 3, 4}));
  EXPECT_EQ(values, (std::array<std::uint16_t, 3>{7, 8, 9}));
  EXPECT_EQ(wc::update_shadow(nullptr, nullptr, 0, 2, 0, nullptr, nullptr), 0u);
  const auto code = [&](std::uint64_t count, std::uint32_t width, std::uint64_t capacity) {
    return code_of(
        [&] { return wc::update_shadow(shadow.data(), now.data(), count, width, capacity, nullptr, nullptr); });
  };
  EXPECT_EQ(code(5, 3, 0), WC_INVALID_ARGUMENT);
  EXPECT_EQ(code(5, 0, 0), WC_INVALID_ARGUMENT);
  EXPECT_EQ(code(5, 32, 0), WC_INVALID_ARGUMENT);
  EXPECT_EQ(code(5, 2, 1), WC_INVALID_ARGUMENT) << "no room is given";
  EXPECT_EQ(code((std::uint64_t{1} << 32) + 1, 2, 0), WC_TOO_LARGE);
}

TEST_F(PublishTest, ChangesOfCellsKeepTheFilesOfTheirBase) {
  const std::vector<std::uint32_t> indices{0};
  const std::string values = "x";
  for (const wc::PublishOptions& options :
       {wc::PublishOptions{.files = {{"config.json", "{}", 2, 0}}}, wc::PublishOptions{.new_model = true}}) {
    EXPECT_EQ(code_of([&] { return client.publish_sparse(1, {change(indices, values)}, options, 1s); }),
              WC_INVALID_ARGUMENT);
  }
}

}  // namespace
}  // namespace weightcast
