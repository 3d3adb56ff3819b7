#include "proto/message_kind.h"

#include <gtest/gtest.h>

#include <string>

#include "proto/wire.pb.h"

namespace weightcast {
namespace {

TEST(MessageKind, IsThatOfEveryMessageThatProtobufWrites) {
  const auto* fields = wire::Message::descriptor();
  for (int i = 0; i < fields->field_count(); ++i) {
    const auto* field = fields->field(i);
    ASSERT_EQ(field->type(), google::protobuf::FieldDescriptor::TYPE_MESSAGE) << field->name();
    wire::Message message;
    message.GetReflection()->MutableMessage(&message, field);
    const std::string body = message.SerializeAsString();
    EXPECT_EQ(message_kind_of(body).value(), static_cast<std::uint32_t>(field->number())) << field->name();
  }
  EXPECT_EQ(message_kind_of("").value(), 0u);
}

TEST(MessageKind, WhatIsNotOneWholeFieldIsRefusedAtEveryLength) {
  wire::Message message;
  message.mutable_hello()->set_name(std::string(300, 'n'));
  const std::string body = message.SerializeAsString();
  for (std::size_t bytes = 1; bytes < body.size(); ++bytes) {
    EXPECT_FALSE(message_kind_of(std::string_view(body).substr(0, bytes)).has_value()) << bytes;
  }
  EXPECT_FALSE(message_kind_of(body + body).has_value()) << "a large one behind a small one";
  EXPECT_FALSE(message_kind_of(std::string("\x08\x01", 2)).has_value()) << "a number, not a message";
  EXPECT_FALSE(message_kind_of(std::string(12, '\xff')).has_value());
}

}  // namespace
}  // namespace weightcast
