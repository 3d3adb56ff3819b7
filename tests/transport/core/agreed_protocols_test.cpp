// What a peer's release does not know is not sent to it.
#include "transport/core/agreed_protocols.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <vector>

#include "tests/transport/core/payload_fixture.h"
#include "transport/core/action.h"

namespace weightcast {
namespace {

TEST(AgreedProtocols, AConnectionSpeaksTheOldestUntilItsEndsAgreeAndAgainAfterItsEnd) {
  AgreedProtocols protocols;
  EXPECT_EQ(protocols.of(ConnId{1}), kProtocolVersionMin);
  protocols.agree(ConnId{1}, kProtocolVersion);
  EXPECT_EQ(protocols.of(ConnId{1}), kProtocolVersion);
  EXPECT_EQ(protocols.of(ConnId{2}), kProtocolVersionMin);
  protocols.forget(ConnId{1});
  EXPECT_EQ(protocols.of(ConnId{1}), kProtocolVersionMin);
  EXPECT_EQ(protocols.size(), 0u);
}

// Connections come, agree on any version of the range, are sent any message, and end, in any order.
RC_GTEST_PROP(ActionQueue, GivesNoConnectionAMessageThatItsReleaseDoesNotKnowAndEveryOther, ()) {
  const std::vector<wire::Message> messages = every_message();
  ActionQueue actions;
  std::map<ConnId, std::uint32_t> spoken;  // by those that have agreed
  std::vector<std::pair<ConnId, wire::Message::KindCase>> expected;
  const int steps = *rc::gen::inRange(1, 200);
  for (int step = 0; step < steps; ++step) {
    const ConnId conn{*rc::gen::inRange<std::uint64_t>(1, 6)};
    switch (*rc::gen::inRange(0, 6)) {
      case 0:
        spoken[conn] = *rc::gen::inRange(kProtocolVersionMin, kProtocolVersion + 1);
        actions.protocols().agree(conn, spoken[conn]);
        break;
      case 1:
        spoken.erase(conn);
        actions.push(action::Close{conn});
        break;
      default: {
        const wire::Message& message = *rc::gen::elementOf(messages);
        const std::uint32_t speaks = spoken.contains(conn) ? spoken[conn] : kProtocolVersionMin;
        if (first_protocol_of(message.kind_case()) <= speaks) expected.emplace_back(conn, message.kind_case());
        actions.push(action::Send{conn, message});
      }
    }
  }
  std::vector<std::pair<ConnId, wire::Message::KindCase>> sent;
  while (const auto action = actions.poll()) {
    if (const auto* send = std::get_if<action::Send>(&*action))
      sent.emplace_back(send->conn, send->message.kind_case());
  }
  RC_ASSERT(sent == expected);
}

TEST(ActionQueue, KeepsEveryMessageThatIsNewFromWhoeverSpeaksTheVersionBefore) {
  for (const wire::Message& message : every_message()) {
    const std::uint32_t first = first_protocol_of(message.kind_case());
    for (std::uint32_t spoken = kProtocolVersionMin; spoken <= kProtocolVersion; ++spoken) {
      ActionQueue actions;
      actions.protocols().agree(ConnId{1}, spoken);
      actions.push(action::Send{ConnId{1}, message});
      EXPECT_EQ(actions.poll().has_value(), first <= spoken) << message.ShortDebugString() << " at " << spoken;
    }
  }
}

}  // namespace
}  // namespace weightcast
