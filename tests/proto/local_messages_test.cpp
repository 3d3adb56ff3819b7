#include "proto/local_messages.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <type_traits>
#include <vector>

namespace weightcast::local {
namespace {

/// Gives each field a value of its own, which follows from `base` and the field's number. A list gets three elements.
struct Filler {
  std::uint32_t base;

  void operator()(std::uint32_t number, std::uint64_t& field) const {
    field = (std::uint64_t{1} << 63) + base + number;
  }
  void operator()(std::uint32_t number, std::uint32_t& field) const { field = (1u << 31) + base + number; }
  void operator()(std::uint32_t number, std::int64_t& field) const { field = -std::int64_t{base + number}; }
  void operator()(std::uint32_t, bool& field) const { field = true; }
  void operator()(std::uint32_t number, double& field) const { field = -0.5 * (base + number); }
  void operator()(std::uint32_t number, std::optional<double>& field) const { field = -0.5 * (base + number); }
  void operator()(std::uint32_t number, std::string& field) const { field = "ü" + std::to_string(base + number); }
  void operator()(std::uint32_t number, std::vector<std::string>& field) const {
    for (int i = 0; i < 3; ++i) field.push_back("ü" + std::to_string(base + number) + "." + std::to_string(i));
  }
  template <typename M>
  void operator()(std::uint32_t number, std::vector<M>& field) const {
    for (std::uint32_t i = 0; i < 3; ++i) M::fields(field.emplace_back(), Filler{(base + number) * 10 + i});
  }
};

/// A message of each kind, by its number: without and with all its fields.
struct Pair {
  Message empty, full;
};
template <std::size_t I = 1>
void add_kinds(std::map<std::uint32_t, Pair>& pairs) {
  if constexpr (I < std::variant_size_v<Message::Kind>) {
    using M = std::variant_alternative_t<I, Message::Kind>;
    M full;
    M::fields(full, Filler{1000});
    if constexpr (std::is_same_v<M, PublishResult>) full.kind = 1002;  // Protobuf has an enum there
    EXPECT_TRUE(pairs.emplace(M::kNumber, Pair{{M()}, {std::move(full), 1000 + Message::kRequestIdNumber}}).second)
        << "two kinds have number " << M::kNumber;
    add_kinds<I + 1>(pairs);
  }
}
std::map<std::uint32_t, Pair> all_kinds() {
  std::map<std::uint32_t, Pair> pairs;
  add_kinds(pairs);
  return pairs;
}

std::string from_hex(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  return bytes;
}

// golden/local_messages.txt is what Protobuf 3.21 wrote by the .proto file that described these messages until release
// 0.1.0: a kind's number, then in hexadecimal the empty message and the one with all fields. Daemons and programs of
// any two releases meet on one host, so no line ever changes; a message that gets a field gets one more line.
TEST(LocalMessages, AreWhatProtobufWrites) {
  std::ifstream golden(WEIGHTCAST_PROTO_GOLDEN "/local_messages.txt");
  const std::map<std::uint32_t, Pair> kinds = all_kinds();
  std::map<std::uint32_t, std::pair<std::string, std::string>> latest;
  std::uint32_t number = 0;
  for (std::string empty, full, name; golden >> number >> empty >> full >> name;) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(kinds.contains(number));
    latest[number] = {from_hex(empty), from_hex(full)};
    for (const std::string& bytes : {from_hex(empty), from_hex(full)}) {
      const Result<Message> read = decode(bytes);
      ASSERT_TRUE(read.has_value()) << read.error().message();
      EXPECT_EQ(read->kind.index(), kinds.at(number).full.kind.index());
      EXPECT_EQ(encode(*read), bytes);
    }
  }
  for (const auto& [kind, messages] : kinds) {
    SCOPED_TRACE(kind);
    EXPECT_EQ(encode(messages.empty), latest[kind].first);
    EXPECT_EQ(encode(messages.full), latest[kind].second);
  }
}

TEST(LocalMessages, TakeEachValueToItsField) {
  PublishResult result;
  result.version = 7;
  result.t90_s = 0;
  result.reached = true;
  result.missing = {"gpu-1"};
  result.topology = "\xff";
  const Result<Message> read = decode(encode({.kind = result}));
  ASSERT_TRUE(read.has_value());
  const auto* got = read->get<PublishResult>();
  ASSERT_NE(got, nullptr);
  EXPECT_EQ(got->version, 7u);
  EXPECT_EQ(got->t90_s, std::optional(0.0)) << "there, although it is 0";
  EXPECT_FALSE(got->t50_s.has_value());
  EXPECT_TRUE(got->reached);
  EXPECT_EQ(got->missing, std::vector<std::string>{"gpu-1"});
  EXPECT_EQ(got->topology, "\xff") << "a path may have any bytes";
}

TEST(LocalMessages, HistoryAloneIsReadAgain) {
  const HistoryReply history{.publications = {{.version = 7, .t100_s = 4.5}}, .workers = {{.name = "a"}}};
  const Result<HistoryReply> read = decode_history(encode_history(history));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->publications, history.publications);
  EXPECT_EQ(read->workers.at(0).name, "a");
  EXPECT_EQ(decode_history("\x0a\x09").error().code, Errc::kCorrupt) << "nine bytes are missing";
}

TEST(LocalMessages, ANodeTakesAsManyBytesAsItIsSaidTo) {
  StatusReply status;
  const std::size_t before = encode({.kind = status}).size();
  status.nodes.push_back({.name = std::string(1000, 'n')});
  const std::size_t added = encode({.kind = status}).size() - before;
  EXPECT_GE(added, encoded_bytes(status.nodes[0]));
  EXPECT_LE(added, encoded_bytes(status.nodes[0]) + 8);
}

// Whatever arrives is a message or an error.
TEST(LocalMessages, CutOffOrDamagedBytesAreAnErrorOrAMessage) {
  for (const auto& [number, kind] : all_kinds()) {
    const std::string bytes = encode(kind.full);
    std::size_t refused = 0;
    for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
      refused += decode(std::string_view(bytes).substr(0, cut)).has_value() ? 0 : 1;
    }
    // Only between two fields of the envelope a message may end: at its beginning, and after its first field.
    EXPECT_EQ(refused, bytes.size() - 2) << "kind " << number;
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      for (const char flip : {'\x01', '\x07', '\x80', '\xff'}) {
        std::string damaged = bytes;
        damaged[at] = static_cast<char>(damaged[at] ^ flip);
        static_cast<void>(decode(damaged));
      }
    }
  }
  EXPECT_FALSE(decode("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").has_value()) << "a length past the end";
}

TEST(LocalMessages, OfALaterReleaseAreReadWithoutWhatIsNew) {
  // Field 1000, a varint, and then the request's number.
  const std::string bytes("\xc0\x3e\x05\x68\x09", 5);
  const Result<Message> read = decode(bytes);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->kind.index(), 0u);
  EXPECT_EQ(read->request_id, 9u);
}

}  // namespace
}  // namespace weightcast::local
