#include "worker/rollout/prompt_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weightcast {
namespace {

using testing::HasSubstr;

PromptCodec codec_of(const PromptOptions& options) {
  return PromptCodec::make(Tokenizer::parse(byte_tokenizer_json()).value(), options).value();
}

Prompt asks(std::string text) { return {{{"user", std::move(text)}}, "tag", {}}; }

std::string text_of(const PromptCodec& codec, const std::vector<TokenId>& ids) {
  return codec.tokenizer().decode(ids).value();
}

TEST(PromptCodec, AsksInTheModelsChatTemplate) {
  const PromptCodec plain = codec_of({}), qwen2_5 = codec_of({.chat_style = QwenChat::kQwen2_5}),
                    qwen3 = codec_of({.chat_style = QwenChat::kQwen3}),
                    thinks = codec_of({.chat_style = QwenChat::kQwen3, .enable_thinking = true});
  EXPECT_EQ(text_of(plain, plain.prompt_ids(asks("2+2?")).value()), "2+2?");
  EXPECT_EQ(text_of(qwen2_5, qwen2_5.prompt_ids(asks("2+2?")).value()),
            "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
            "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(text_of(thinks, thinks.prompt_ids(asks("2+2?")).value()),
            "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(text_of(qwen3, qwen3.prompt_ids(asks("2+2?")).value()),
            "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  EXPECT_EQ(plain.end_token(), plain.tokenizer().added_token("<|endoftext|>"));
  EXPECT_EQ(qwen2_5.end_token(), qwen2_5.tokenizer().added_token("<|im_end|>"));
}

// Qwen2.5's template keeps every answer as it is, so turns one after the other are the whole conversation.
TEST(PromptCodec, TurnsOfAnEpisodeAreOneConversation) {
  const PromptCodec codec = codec_of({.chat_style = QwenChat::kQwen2_5});
  const std::vector<ChatMessage> conversation{
      {"user", "Go."}, {"assistant", "up"}, {"user", "A wall."}, {"assistant", "left"}, {"user", "Well?"}};
  for (const bool is_ended : {true, false}) {
    std::vector<TokenId> ids = codec.prompt_ids({{conversation[0]}, "tag", {}}).value();
    const auto append = [&](std::span<const TokenId> more) { ids.insert(ids.end(), more.begin(), more.end()); };
    for (const std::size_t answer : {1u, 3u}) {
      std::vector<TokenId> sampled = codec.response_ids(conversation[answer].content).value();
      if (!is_ended) sampled.pop_back();
      append(sampled);
      append(codec.observation_ids(conversation[answer + 1].content, is_ended).value());
    }
    EXPECT_EQ(text_of(codec, ids), render_qwen_chat(conversation, {.style = QwenChat::kQwen2_5}).value());
  }
}

TEST(PromptCodec, AConversationIsWhatARolloutOfItHas) {
  for (const PromptOptions& options : {PromptOptions{}, PromptOptions{.chat_style = QwenChat::kQwen3}}) {
    const PromptCodec codec = codec_of(options);
    const std::vector<ChatMessage> conversation{
        {"system", "Play."}, {"user", "Go."}, {"assistant", "up"}, {"user", "A wall."}, {"assistant", "left"}};
    std::vector<TokenId> ids = codec.prompt_ids({{conversation[0], conversation[1]}, "tag", {}}).value();
    std::vector<std::uint8_t> is_answer(ids.size(), 0);
    const auto append = [&](const std::vector<TokenId>& more, std::uint8_t answer) {
      ids.insert(ids.end(), more.begin(), more.end());
      is_answer.resize(ids.size(), answer);
    };
    append(codec.response_ids("up").value(), 1);
    append(codec.observation_ids("A wall.", true).value(), 0);
    append(codec.response_ids("left").value(), 1);
    const ConversationIds found = codec.conversation_ids(conversation).value();
    EXPECT_EQ(found.tokens, ids);
    EXPECT_EQ(found.is_answer, is_answer);
    // Before the answer it is what the answer goes on from.
    const ConversationIds asked = codec.conversation_ids(std::span(conversation).first(4)).value();
    EXPECT_EQ(asked.tokens, std::vector<TokenId>(ids.begin(), ids.begin() + asked.tokens.size()));
    EXPECT_EQ(asked.tokens.size(), ids.size() - codec.response_ids("left")->size());
  }
}

TEST(PromptCodec, RefusesAConversationThatIsNoRollout) {
  const PromptCodec codec = codec_of({.max_prompt_length = 8});
  const auto why = [&](const std::vector<ChatMessage>& conversation) {
    return codec.conversation_ids(conversation).error().message();
  };
  EXPECT_THAT(why({{"user", "a"}, {"assistant", "b"}, {"assistant", "c"}}),
              HasSubstr("an answer has the role 'assistant'"));
  EXPECT_THAT(why({{"user", "a"}, {"assistant", "b"}, {"tool", "c"}}), HasSubstr("an answer has the role 'tool'"));
  EXPECT_THAT(why({{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"user", "d"}}),
              HasSubstr("the user's has the role 'user'"));
  EXPECT_THAT(why({{"user", "a"}, {"assistant", "b"}, {"user", "far too long"}}), HasSubstr("max_prompt_length"));
  EXPECT_THAT(why({}), HasSubstr("prompt conversation has 0 tokens"));
}

TEST(PromptCodec, NamesStylesAsARunDoes) {
  for (const char* name : {"none", "qwen", "qwen2.5", "qwen2.5-base", "qwen2.5-math"}) {
    EXPECT_EQ(chat_template_name(parse_chat_template(name).value()), name);
  }
  EXPECT_EQ(parse_chat_template("qwen").value(), QwenChat::kQwen3) << "what earlier learners say and mean";
  EXPECT_EQ(
      parse_chat_template("qwen3").error().detail,
      "'qwen3' is no chat_template; the nearest is 'qwen' (all: none, qwen, qwen2.5, qwen2.5-base, qwen2.5-math)");
}

// As tokenizer.json of a Llama has it: a token before each text, and another name for the end.
TEST(PromptCodec, BeginsTextsAsTheTokenizerSaysAndEndsThemByItsOwnToken) {
  std::string json = byte_tokenizer_json();
  const auto replace = [&](const std::string& from, const std::string& to) {
    json.replace(json.find(from), from.size(), to);
  };
  replace("<|endoftext|>", "<|end_of_text|>");
  replace("<|im_start|>", "<|begin_of_text|>");
  replace("\"post_processor\": null", R"("post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<|begin_of_text|>"}}, {"Sequence": {"id": "A"}}],
    "special_tokens": {"<|begin_of_text|>": {"ids": [257]}}})");
  const PromptCodec codec = PromptCodec::make(Tokenizer::parse(json).value(), {}).value();
  EXPECT_EQ(codec.end_token(), 256);
  EXPECT_EQ(codec.prompt_ids(asks("2+2?")).value(), (std::vector<TokenId>{257, '2', '+', '2', '?'}));
  EXPECT_EQ(codec.observation_ids("4", true).value(), (std::vector<TokenId>{'4'}));
  EXPECT_EQ(codec.response_ids("4").value(), (std::vector<TokenId>{'4', 256}));
}

TEST(PromptCodec, RefusesATokenizerWithoutTheEndOfAResponse) {
  std::string json = byte_tokenizer_json();
  const std::string end = "<|im_end|>";
  json.replace(json.find(end), end.size(), "<|im_stop|>");
  EXPECT_TRUE(PromptCodec::make(Tokenizer::parse(json).value(), {}).has_value());
  const auto refused = PromptCodec::make(Tokenizer::parse(json).value(), {.chat_style = QwenChat::kQwen2_5});
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().detail, HasSubstr("no <|im_end|>"));
  EXPECT_THAT(refused.error().detail, HasSubstr("chat_template is 'qwen2.5'"));
}

}  // namespace
}  // namespace weightcast
