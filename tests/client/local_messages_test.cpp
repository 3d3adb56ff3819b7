#include "client/local_messages.h"

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "proto/local.pb.h"

namespace weightcast {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Reflection;

/// Gives each field of a message, and of those in it, a value of its own.
void fill(google::protobuf::Message& message, unsigned& seed) {
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    if (field->real_containing_oneof() != nullptr) continue;
    for (int n = 0; n < (field->is_repeated() ? 3 : 1); ++n) {
      ++seed;
      const bool list = field->is_repeated();
      switch (field->cpp_type()) {
        case FieldDescriptor::CPPTYPE_UINT64: {
          ASSERT_FALSE(list);
          reflection.SetUInt64(&message, field, (std::uint64_t{1} << 63) + seed);
          break;
        }
        case FieldDescriptor::CPPTYPE_INT64: reflection.SetInt64(&message, field, -std::int64_t(seed)); break;
        case FieldDescriptor::CPPTYPE_UINT32: reflection.SetUInt32(&message, field, (1u << 31) + seed); break;
        case FieldDescriptor::CPPTYPE_BOOL: reflection.SetBool(&message, field, true); break;
        case FieldDescriptor::CPPTYPE_DOUBLE: reflection.SetDouble(&message, field, -0.5 * seed); break;
        case FieldDescriptor::CPPTYPE_ENUM: reflection.SetEnumValue(&message, field, 2); break;
        case FieldDescriptor::CPPTYPE_STRING: {
          // Bytes may be anything, text is UTF-8.
          const std::string value =
              (field->type() == FieldDescriptor::TYPE_BYTES ? std::string("\0\xff", 2) : "text ") +
              std::to_string(seed);
          list ? reflection.AddString(&message, field, value) : reflection.SetString(&message, field, value);
          break;
        }
        case FieldDescriptor::CPPTYPE_MESSAGE:
          fill(list ? *reflection.AddMessage(&message, field) : *reflection.MutableMessage(&message, field), seed);
          break;
        default: FAIL() << field->full_name() << ": no field of this type was expected";
      }
    }
  }
}

/// A message of each kind, without and with all its fields.
std::vector<local::Message> all_messages() {
  std::vector<local::Message> messages;
  const auto* kinds = local::Message::descriptor()->FindOneofByName("kind");
  unsigned seed = 0;
  for (int i = 0; i < kinds->field_count(); ++i) {
    for (const bool filled : {false, true}) {
      local::Message& message = messages.emplace_back();
      google::protobuf::Message& kind = *message.GetReflection()->MutableMessage(&message, kinds->field(i));
      if (!filled) continue;
      message.set_request_id(1000 + seed);
      fill(kind, seed);
    }
  }
  return messages;
}

// What the daemon writes the library reads, and what it writes the daemon reads: to the same message, field by field.
TEST(LocalMessages, AreTheSameToTheLibraryAndToTheDaemon) {
  for (const local::Message& message : all_messages()) {
    const Result<client::Message> read = client::decode(message.SerializeAsString());
    ASSERT_TRUE(read.has_value()) << read.error().message();
    EXPECT_NE(read->kind.index(), 0u) << "of no kind: " << message.ShortDebugString();
    EXPECT_EQ(read->request_id, message.request_id());
    local::Message back;
    ASSERT_TRUE(back.ParseFromString(client::encode(*read)));
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(message, back))
        << message.DebugString() << "became\n"
        << back.DebugString();
  }
}

TEST(LocalMessages, TakeEachValueToItsField) {
  local::Message message;
  local::PublishResult& result = *message.mutable_publish_result();
  result.set_version(7);
  result.set_t90_s(0);
  result.set_reached(true);
  result.add_missing("gpu-1");
  const Result<client::Message> read = client::decode(message.SerializeAsString());
  ASSERT_TRUE(read.has_value());
  const auto* got = read->get<client::PublishResult>();
  ASSERT_NE(got, nullptr);
  EXPECT_EQ(got->version, 7u);
  EXPECT_EQ(got->t90_s, std::optional(0.0)) << "there, although it is 0";
  EXPECT_FALSE(got->t50_s.has_value());
  EXPECT_TRUE(got->reached);
  EXPECT_EQ(got->missing, std::vector<std::string>{"gpu-1"});
}

// Whatever arrives is a message or an error.
TEST(LocalMessages, CutOffOrDamagedBytesAreAnErrorOrAMessage) {
  for (const local::Message& message : all_messages()) {
    const std::string bytes = message.SerializeAsString();
    for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
      const auto read = client::decode(std::string_view(bytes).substr(0, cut));
      local::Message daemon;
      EXPECT_EQ(read.has_value(), daemon.ParseFromString(bytes.substr(0, cut))) << cut << " of " << bytes.size();
    }
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      for (const char flip : {'\x01', '\x07', '\x80', '\xff'}) {
        std::string damaged = bytes;
        damaged[at] = static_cast<char>(damaged[at] ^ flip);
        static_cast<void>(client::decode(damaged));
      }
    }
  }
  EXPECT_FALSE(client::decode("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").has_value()) << "a length past the end";
}

TEST(LocalMessages, OfALaterReleaseAreReadWithoutWhatIsNew) {
  // Field 1000, a varint, and then the request's number.
  const std::string bytes("\xc0\x3e\x05\x68\x09", 5);
  const Result<client::Message> read = client::decode(bytes);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->kind.index(), 0u);
  EXPECT_EQ(read->request_id, 9u);
}

}  // namespace
}  // namespace weightcast
