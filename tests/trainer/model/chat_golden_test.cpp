// What Qwen's own templates give: tests/oracles/qwen_chat.py.
#include <gtest/gtest.h>

#include "tests/golden_lines.h"
#include "trainer/model/tokenizer/qwen_chat.h"

namespace weightcast {
namespace {

TEST(ChatGolden, IsThatOfQwensTemplates) {
  for (const auto& line : golden_lines(WEIGHTCAST_MODEL_GOLDEN "/qwen_chat.jsonl")) {
    std::vector<ChatMessage> messages;
    for (const auto& one : line["messages"]) messages.push_back({one["role"], one["content"]});
    const ChatOptions options{line["style"] == "qwen3" ? QwenChat::kQwen3 : QwenChat::kQwen2_5,
                              line["add_generation_prompt"].get<bool>(), line["enable_thinking"].get<bool>()};
    const auto text = render_qwen_chat(messages, options);
    ASSERT_TRUE(text.has_value());
    EXPECT_EQ(*text, line["text"].get<std::string>()) << line["messages"];
  }
}

TEST(Chat, RefusesWhatItCannotRender) {
  EXPECT_EQ(render_qwen_chat({}, {}).error().code, Errc::kInvalidArgument);
  const std::vector<ChatMessage> messages{{"tool", "7"}};
  EXPECT_EQ(render_qwen_chat(messages, {}).error().detail,
            "'tool' is no role of a chat (all: system, user, assistant)");
}

}  // namespace
}  // namespace weightcast
