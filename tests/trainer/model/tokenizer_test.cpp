#include "trainer/model/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/json_text.h"
#include "trainer/model/tokenizer/byte_level.h"
#include "trainer/model/tokenizer/qwen_chat.h"
#include "trainer/model/tokenizer/unicode_text.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<TokenId>;

std::string data(const std::string& name) {
  std::ifstream file(WEIGHTCAST_MODEL_DATA "/" + name);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

const Tokenizer& tiny() {
  static const Tokenizer tokenizer = *Tokenizer::parse(data("tiny_bpe_tokenizer.json"));
  return tokenizer;
}

const Tokenizer& bytes() {
  static const Tokenizer tokenizer = *Tokenizer::parse(byte_tokenizer_json());
  return tokenizer;
}

/// The error of a tokenizer.json that `change` has damaged.
template <typename Change>
std::string refusal(Change change) {
  Json json = Json::parse(byte_tokenizer_json());
  change(json);
  const auto tokenizer = Tokenizer::parse(json_text(json));
  return tokenizer.has_value() ? "read" : tokenizer.error().detail;
}

constexpr TokenId kImStart = 1;  // of the trained one

const Tokenizer& trained() {
  static const Tokenizer tokenizer = *Tokenizer::parse(data("trained_tokenizer.json"));
  return tokenizer;
}

TEST(Tokenizer, ReferenceOfTorchtune) {
  const Json expected = Json::parse(data("tiny_bpe_expected.json"));
  std::string text;
  for (const Json& message : expected["messages"]) {
    text += "<|im_start|>" + message["role"].get<std::string>() + "\n" + message["content"].get<std::string>() +
            "<|im_end|>\n";
  }
  text.pop_back();  // the last answer ends at its <|im_end|>
  const Ids ids = *tiny().encode(text);
  const Ids wanted = expected["expected_tokens"].get<Ids>();
  EXPECT_EQ(ids, wanted);
}

RC_GTEST_PROP(Tokenizer, AnyBytesComeBackExactly, (const std::vector<std::uint8_t>& raw, bool special)) {
  const std::string text(raw.begin(), raw.end());
  for (const Tokenizer* tokenizer : {&trained(), &bytes()}) {
    const auto ids = tokenizer->encode(text, {.normalize = false, .special_tokens = special});
    RC_ASSERT(ids.has_value());
    RC_ASSERT(*tokenizer->decode(*ids) == text);
  }
}

TEST(Tokenizer, BytesThatAreNotUtf8AreKeptBesideText) {
  const std::string text = "caf\xc3\xa9\xff\xfe ok\xc3";
  EXPECT_EQ(*trained().decode(*trained().encode(text)), text);
  // An 'e' and an accent become one character, the bytes beside them do not change.
  EXPECT_EQ(*trained().decode(*trained().encode("e\xcc\x81\xff")), "\xc3\xa9\xff");
  EXPECT_EQ(*trained().decode(*trained().encode("e\xcc\x81\xff", {.normalize = false})), "e\xcc\x81\xff");
}

TEST(Tokenizer, SpecialTokensOfStrangersAreText) {
  const std::string text = "<|im_start|>system";
  EXPECT_EQ(trained().encode(text)->front(), kImStart);
  const Ids ids = *trained().encode(text, {.special_tokens = false});
  EXPECT_EQ(std::count(ids.begin(), ids.end(), kImStart), 0);
  EXPECT_EQ(*trained().decode(ids), text);
}

TEST(Tokenizer, DecodeLeavesSpecialTokensOutIfAsked) {
  EXPECT_EQ(*trained().decode(*trained().encode("<|im_start|>hi<|im_end|>"), {.skip_special_tokens = true}), "hi");
}

TEST(Tokenizer, RefusesIdsThatAreNoToken) {
  EXPECT_EQ(tiny().decode(Ids{1, 2003}).error().detail,
            "tokenizer: ids[1] is 2003, which is no token (the vocabulary has 2003)");
  EXPECT_FALSE(tiny().decode(Ids{-1}).has_value());
}

TEST(Tokenizer, KnowsItself) {
  EXPECT_EQ(tiny().vocab_size(), 2003);
  EXPECT_EQ(bytes().vocab_size(), 259);
  EXPECT_EQ(tiny().added_token("<|im_end|>"), 2002);
  EXPECT_EQ(tiny().added_token("<|no|>"), std::nullopt);
  EXPECT_EQ(tiny().digest().size(), 64u);
  EXPECT_NE(tiny().digest(), bytes().digest());
}

TEST(Tokenizer, ByteTokenizerHasTheBytesAsIds) {
  EXPECT_EQ(*bytes().encode("A\xff <|im_end|>"), (Ids{0x41, 0xff, 0x20, 258}));
  EXPECT_EQ(*bytes().encode(""), Ids());
}

TEST(Tokenizer, LongRunsTakeTimeInProportion) {
  for (const char* unit : {"a", " ", "ab", "\n", "\xe4\xb8\xad", "!", "\xff", "1", "e\xcc\x81", "<|im_start|", "'"}) {
    std::string text;
    while (text.size() < 200'000) text += unit;
    const auto ids = trained().encode(text, {.normalize = false});
    ASSERT_TRUE(ids.has_value()) << unit;
    EXPECT_EQ(*trained().decode(*ids), text);
  }
}

TEST(Tokenizer, RefusesWhatItDoesNotHaveByName) {
  EXPECT_EQ(
      refusal([](Json& j) {
        j["normalizer"] = {{"type", "Lowercase"}};
      }),
      "tokenizer: normalizer Lowercase; there are NFC, Prepend, Replace of a String, Sequence of these, and none");
  EXPECT_EQ(refusal([](Json& j) { j["model"] = {{"type", "Unigram"}}; }), "tokenizer: model Unigram; there is BPE");
  EXPECT_EQ(refusal([](Json& j) { j["model"]["byte_fallback"] = true; }),
            "tokenizer: model with byte_fallback and a pre_tokenizer that is not Metaspace");
  EXPECT_EQ(refusal([](Json& j) { j["model"]["fuse_unk"] = true; }),
            "tokenizer: model with fuse_unk, without byte_fallback");
  EXPECT_EQ(refusal([](Json& j) { j["model"]["dropout"] = 0.1; }), "tokenizer: model with dropout");
  EXPECT_EQ(refusal([](Json& j) { j["pre_tokenizer"] = nullptr; }),
            "tokenizer: neither ByteLevel in pre_tokenizer nor byte_fallback in model");
  EXPECT_THAT(refusal([](Json& j) {
                j["decoder"] = {{"type", "WordPiece"}};
              }),
              testing::HasSubstr("tokenizer: decoder WordPiece"));
  EXPECT_EQ(refusal([](Json& j) { j["decoder"] = nullptr; }).substr(0, 23), "tokenizer: decoder none");
  EXPECT_EQ(
      refusal([](Json& j) {
        j["post_processor"] = {{"type", "BertProcessing"}};
      }),
      "tokenizer: post_processor BertProcessing; there are ByteLevel, one TemplateProcessing, Sequence of these, and "
      "none");
  EXPECT_EQ(refusal([](Json& j) { j["pre_tokenizer"]["add_prefix_space"] = true; }),
            "tokenizer: pre_tokenizer ByteLevel with add_prefix_space");
  EXPECT_EQ(
      refusal([](Json& j) {
        j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Digits"}}, j["pre_tokenizer"]}}};
      }),
      "tokenizer: pre_tokenizer Digits; there are ByteLevel, Split by a Regex with behavior Isolated, Metaspace, and "
      "Sequence");
  EXPECT_EQ(refusal([](Json& j) { j["added_tokens"][0]["single_word"] = true; }),
            "tokenizer: added token '<|endoftext|>' with single_word");
  const auto split = [](const char* pattern) {
    return [pattern](Json& j) {
      const Json cut = {
          {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
      j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {cut, j["pre_tokenizer"]}}};
    };
  };
  EXPECT_EQ(refusal(split("a+")), "read");
  EXPECT_EQ(refusal(split("(a")), "tokenizer: pattern (a: missing closing parenthesis");
  EXPECT_EQ(refusal(split("[a\\S]")), "tokenizer: pattern [a\\S]: \\S in a class is not supported");
}

TEST(Tokenizer, RefusesWhatIsDamaged) {
  Json without_a = Json::parse(byte_tokenizer_json());
  without_a["model"]["vocab"].erase("a");
  EXPECT_EQ(Tokenizer::parse(json_text(without_a))->encode("cab").error().detail, "tokenizer: byte 0x61 has no token");
  EXPECT_EQ(refusal([](Json& j) { j["model"]["merges"] = {"a b"}; }),
            "tokenizer: merge 0 of 'a' and 'b' has a part or a result that is no token");
  EXPECT_EQ(refusal([](Json& j) { j["model"]["merges"] = {"ab"}; }), "tokenizer: model.merges[0] is no pair of tokens");
  EXPECT_EQ(refusal([](Json& j) { j["model"]["merges"] = Json::array({Json::array({"a"})}); }),
            "tokenizer: model.merges[0] is no pair of tokens");
  EXPECT_EQ(refusal([](Json& j) { j["model"]["merges"] = 7; }), "tokenizer: model.merges is no array");
  EXPECT_EQ(refusal([](Json& j) { j["model"]["vocab"] = 7; }), "tokenizer: model.vocab is no object");
  EXPECT_EQ(refusal([](Json& j) { j["model"]["vocab"]["b"] = 97; }),
            "tokenizer: two tokens of model.vocab have the id 97, one is 'b'");
  for (const Json& id : {Json(-1), Json("x"), Json(1.5), Json(std::uint64_t{1} << 62), Json(~std::uint64_t{0})}) {
    EXPECT_NE(refusal([&](Json& j) { j["model"]["vocab"]["a"] = id; }).find("the id of 'a' is "), std::string::npos);
    EXPECT_NE(refusal([&](Json& j) { j["added_tokens"][0]["id"] = id; }).find("the id of '<|endoftext|>' is"),
              std::string::npos);
  }
  EXPECT_EQ(refusal([](Json& j) { j["added_tokens"][0].erase("content"); }),
            "tokenizer: an added token has no content");
  const std::string whole = byte_tokenizer_json();
  for (std::size_t n = 0; n < whole.size(); n += 7) {
    ASSERT_FALSE(Tokenizer::parse(std::string_view(whole).substr(0, n)).has_value()) << n;
  }
}

TEST(Tokenizer, RefusesPatternsThatCutCharactersOrAreWithoutBound) {
  const auto with = [](const Json& pre_tokenizers) {
    return [=](Json& j) { j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", pre_tokenizers}}; };
  };
  const auto split = [](const std::string& pattern) {
    return Json{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  };
  const Json byte_level = {{"type", "ByteLevel"}, {"use_regex", false}};
  // \C matches one byte of a character. The next pattern would read on behind the end of the text.
  EXPECT_THAT(refusal(with({split("\\C"), split("."), byte_level})), testing::HasSubstr("pattern \\C: "));
  EXPECT_THAT(refusal(with({split(std::string(70'000, 'a')), byte_level})), testing::HasSubstr("70000 bytes"));
  Json many = Json::array({byte_level});
  for (int i = 0; i < 100; ++i) many.push_back(split("a"));
  EXPECT_THAT(refusal(with(many)), testing::HasSubstr("more than 32 patterns"));
}

TEST(Tokenizer, APatternThatGoesBackAndForthEndsWithinItsShareOfTime) {
  Json json = Json::parse(byte_tokenizer_json());
  // Each match of it takes milliseconds, which PCRE2 allows, and there are as many as the text has letters.
  const Json slow = {{"type", "Split"},
                     {"pattern", {{"Regex", "(?:(?:a|aa)+b|(?:a?){16}a{16}c)|."}}},
                     {"behavior", "Isolated"},
                     {"invert", false}};
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {slow, json["pre_tokenizer"]}}};
  const auto tokenizer = Tokenizer::parse(json_text(json));
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().detail;
  std::string text;
  while (text.size() < 100'000) text += std::string(22, 'a') + ' ';
  const std::clock_t begun = std::clock();
  const auto ids = tokenizer->encode(text);
  const double seconds = static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 20);
  ASSERT_FALSE(ids.has_value());
  EXPECT_THAT(ids.error().detail, testing::HasSubstr("s of processor time"));
}

TEST(Tokenizer, IdsFarBeyondItsTokensTakeNoMemory) {
  EXPECT_THAT(refusal([](Json& j) { j["model"]["vocab"]["a"] = 16'000'000; }),
              testing::HasSubstr("the id of 'a' is 16000000, not one of 0 to 69"));
  EXPECT_THAT(refusal([](Json& j) { j["added_tokens"][0]["id"] = 16'000'000; }),
              testing::HasSubstr("16000000, not one"));
}

TEST(Tokenizer, ManyAddedTokensThatBeginAlikeCostATextLittle) {
  Json json = Json::parse(byte_tokenizer_json());
  Json token = json["added_tokens"][0];
  json["added_tokens"] = Json::array();
  constexpr int kTokens = 50'000;
  for (int i = 0; i < kTokens; ++i) {
    token["content"] = "<" + std::to_string(kTokens + i) + ">";
    token["id"] = 256 + i;
    json["added_tokens"].push_back(token);
  }
  const auto tokenizer = Tokenizer::parse(json_text(json));
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().detail;
  // One look at each of them in each place would take a minute.
  const std::clock_t begun = std::clock();
  const auto ids = tokenizer->encode(std::string(500'000, '<') + "<50007><5000");
  EXPECT_LT(static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC, 5);
  ASSERT_TRUE(ids.has_value());
  EXPECT_EQ((*ids)[500'000], 256 + 7);
  EXPECT_EQ(ids->size(), 500'000U + 1 + 5);
}

/// The members that json may have, set to each kind of nonsense in turn: an error or a tokenizer, never an end.
TEST(Tokenizer, SurvivesEveryMemberOfAnotherType) {
  for (const char* file : {"tiny_bpe_tokenizer.json", "trained_llama2_tokenizer.json"}) {
    const Json whole = Json::parse(data(file));
    for (const Json& nonsense :
         {Json(), Json(1), Json("x"), Json::array(), Json::object(), Json::array({1}), Json(true)}) {
      for (const auto& [name, value] : whole.items()) {
        Json json = whole;
        json[name] = nonsense;
        (void)Tokenizer::parse(json_text(json));
        if (!value.is_object()) continue;
        for (const auto& [inner, inner_value] : value.items()) {
          json = whole;
          json[name][inner] = nonsense;
          (void)Tokenizer::parse(json_text(json));
        }
      }
    }
  }
}

TEST(Tokenizer, TakesMergesAsPairsAndIgnoresThemIfTold) {
  Json json = Json::parse(byte_tokenizer_json());
  json["model"]["vocab"]["ab"] = 259;
  json["model"]["vocab"]["abc"] = 260;
  json["model"]["vocab"]["bc"] = 261;
  json["model"]["merges"] = Json::array({Json::array({"b", "c"}), Json::array({"a", "b"})});
  EXPECT_EQ(*Tokenizer::parse(json_text(json))->encode("abc"), (Ids{'a', 261}));
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(*Tokenizer::parse(json_text(json))->encode("abc"), (Ids{260}));
  EXPECT_EQ(*Tokenizer::parse(json_text(json))->encode("abcab"), (Ids{'a', 261, 259}));
}

TEST(Tokenizer, AddedTokensTakeWhiteSpaceIfToldAndTheLongestWins) {
  Json json = Json::parse(byte_tokenizer_json());
  Json token = json["added_tokens"][0];
  const auto add = [&](const char* content, int id, bool lstrip, bool rstrip) {
    token["content"] = content;
    token["id"] = id;
    token["lstrip"] = lstrip;
    token["rstrip"] = rstrip;
    json["added_tokens"].push_back(token);
  };
  add("<a>", 300, true, false);
  add("<a><b>", 301, false, true);
  const auto tokenizer = *Tokenizer::parse(json_text(json));
  EXPECT_EQ(*tokenizer.encode("x \xe3\x80\x80<a>y"), (Ids{'x', 300, 'y'}));
  EXPECT_EQ(*tokenizer.encode("x <a><b> \n<a> y"), (Ids{'x', ' ', 301, 300, ' ', 'y'}));
  EXPECT_EQ(tokenizer.vocab_size(), 302);
  EXPECT_FALSE(tokenizer.decode(Ids{270}).has_value()) << "nobody has that id";
}

/// Of SentencePiece's kind, as Llama 2's.
Json sentence_piece_json() { return Json::parse(data("trained_llama2_tokenizer.json")); }

template <typename Change>
std::string sentence_piece_refusal(Change change) {
  Json json = sentence_piece_json();
  change(json);
  const auto tokenizer = Tokenizer::parse(json_text(json));
  return tokenizer.has_value() ? "read" : tokenizer.error().detail;
}

TEST(SentencePieceTokenizer, WritesWhatHasNoTokenAsBytes) {
  const auto tokenizer = *Tokenizer::parse(json_text(sentence_piece_json()));
  // <unk>, <s> and </s> come first.
  EXPECT_THAT(*tokenizer.encode("\xf0\x9f\xa6\x99"),
              testing::ElementsAre(testing::_, 3 + 0xf0, 3 + 0x9f, 3 + 0xa6, 3 + 0x99));
  EXPECT_EQ(*tokenizer.decode(*tokenizer.encode("\xf0\x9f\xa6\x99")), "\xf0\x9f\xa6\x99");
  // Bytes that are not UTF-8 stay what they are, and put no space before what follows.
  for (const char* text : {"\xff", "caf\xc3\xa9\xff\xfe ok\xc3", " \xff x", "a\xf0\x9f"}) {
    EXPECT_EQ(*tokenizer.decode(*tokenizer.encode(text)), text);
  }
}

TEST(SentencePieceTokenizer, LeavesOutTheSpaceWhereATextBeginsAlone) {
  const auto tokenizer = *Tokenizer::parse(json_text(sentence_piece_json()));
  const Ids ids = *tokenizer.encode("one two");
  EXPECT_EQ(*tokenizer.decode(ids), "one two");
  EXPECT_EQ(*tokenizer.decode(ids, {.begins = false}), " one two");
  EXPECT_EQ(*tokenizer.decode(*tokenizer.encode("  one")), "  one");
  EXPECT_EQ(*tokenizer.decode(*tokenizer.encode("<s>one"), {.skip_special_tokens = true}), "one");
}

TEST(SentencePieceTokenizer, SpecialTokensOfStrangersAreText) {
  const auto tokenizer = *Tokenizer::parse(json_text(sentence_piece_json()));
  const Ids ids = *tokenizer.encode("</s>x", {.special_tokens = false});
  EXPECT_EQ(std::count(ids.begin(), ids.end(), *tokenizer.added_token("</s>")), 0);
  EXPECT_EQ(*tokenizer.decode(ids), "</s>x");
}

TEST(SentencePieceTokenizer, RefusesWhatItDoesNotHaveByName) {
  EXPECT_EQ(sentence_piece_refusal([](Json&) {}), "read");
  EXPECT_EQ(sentence_piece_refusal([](Json& j) { j["model"]["vocab"].erase("<0x41>"); }),
            "tokenizer: the model has byte_fallback, and no token <0x41>");
  EXPECT_EQ(sentence_piece_refusal([](Json& j) {
              j["decoder"] = {{"type", "ByteLevel"}};
            }),
            "tokenizer: model with byte_fallback, and no ByteFallback in decoder");
  EXPECT_EQ(sentence_piece_refusal([](Json& j) { j["model"]["byte_fallback"] = false; }),
            "tokenizer: model with fuse_unk, without byte_fallback");
  EXPECT_THAT(
      sentence_piece_refusal([](Json& j) { std::swap(j["decoder"]["decoders"][0], j["decoder"]["decoders"][1]); }),
      testing::HasSubstr("decoder Replace, or its members or place"));
  EXPECT_THAT(sentence_piece_refusal([](Json& j) { j["decoder"]["decoders"][3]["start"] = ~std::uint64_t{0}; }),
              testing::HasSubstr("decoder Strip, or its members or place"));
  const Json metaspace = {{"type", "Metaspace"}, {"replacement", "\xe2\x96\x81"}};
  const auto with = [&](const char* name, const Json& value) {
    return [=](Json& j) {
      j["pre_tokenizer"] = metaspace;
      j["pre_tokenizer"][name] = value;
    };
  };
  EXPECT_EQ(sentence_piece_refusal(with("split", false)), "read");
  EXPECT_EQ(sentence_piece_refusal(with("prepend_scheme", "last")),
            "tokenizer: pre_tokenizer Metaspace with prepend_scheme last; there are always, first and never");
  EXPECT_EQ(sentence_piece_refusal(with("replacement", "__")),
            "tokenizer: pre_tokenizer Metaspace: its replacement is not one character");
  const Json growing = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  EXPECT_EQ(sentence_piece_refusal([&](Json& j) { j["normalizer"] = growing; }), "read");
  EXPECT_THAT(sentence_piece_refusal([&](Json& j) {
                j["normalizer"] = {{"type", "Sequence"}, {"normalizers", {growing, growing, growing}}};
              }),
              testing::HasSubstr("makes text more than 4 times as long"));
  EXPECT_EQ(sentence_piece_refusal([&](Json& j) {
              j["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", "a"}}}, {"content", "b"}};
            }),
            "tokenizer: normalizer Replace of anything but a String");
  EXPECT_EQ(sentence_piece_refusal([](Json& j) { j["post_processor"]["special_tokens"]["<s>"]["ids"] = {900}; }),
            "tokenizer: post_processor has the id 900, which is no token");
  EXPECT_THAT(sentence_piece_refusal([](Json& j) { j["post_processor"]["special_tokens"].erase("<s>"); }),
              testing::HasSubstr("'<s>' is neither the text nor one of its special_tokens"));
}

TEST(ByteLevel, EveryByteHasItsCharacter) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += byte_level_character(static_cast<unsigned char>(byte));
  const auto back = bytes_of_byte_level(all);
  ASSERT_TRUE(back.has_value());
  for (int byte = 0; byte < 256; ++byte) EXPECT_EQ(static_cast<unsigned char>((*back)[byte]), byte);
  EXPECT_EQ(byte_level_character(' '), "\xc4\xa0");
  for (const char* other : {" ", "\xe4\xb8\xad", "\xc5\x85", "\xc2", "\xc2\xa0", "\xff"}) {
    EXPECT_EQ(bytes_of_byte_level(other), std::nullopt) << other;
  }
}

TEST(UnicodeText, KnowsValidUtf8) {
  const auto valid = [](std::string_view text) { return valid_utf8_prefix(text); };
  EXPECT_EQ(valid("ab\xc3\xa9\xff"), 4);
  EXPECT_EQ(valid("\xff\xfe"
                  "a"),
            -2);
  EXPECT_EQ(valid("\xf4\x8f\xbf\xbf"), 4);
  EXPECT_EQ(valid("\xf4\x90\x80\x80"), -4) << "beyond the last character";
  EXPECT_EQ(valid("\xed\xa0\x80"), -3) << "a surrogate";
  EXPECT_EQ(valid("\xc0\x80"), -2) << "longer than needed";
  EXPECT_EQ(valid("\xe0\x80\x80"), -3) << "longer than needed";
  EXPECT_EQ(valid("\xe4\xb8"), -2) << "cut off";
}

// All templates that TRL ships are the oracle's: tests/oracles/chat_templates_test.py.
TEST(QwenChatTemplate, IsRecognisedByItsSystemMessage) {
  const std::string given = R"({{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }})";
  EXPECT_EQ(recognise_qwen_chat(given), QwenChat::kQwen3);
  EXPECT_EQ(recognise_qwen_chat(given + R"({{- '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a )"
                                        R"(helpful assistant.<|im_end|>\n' }})"),
            QwenChat::kQwen2_5);
  EXPECT_EQ(recognise_qwen_chat(given + R"({{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }})"),
            QwenChat::kQwen2_5Base);
  EXPECT_EQ(recognise_qwen_chat(given + R"({{- '<|im_start|>system\nPlease reason step by step, and put your final )"
                                        R"(answer within \\boxed{}.<|im_end|>\n' }})"),
            QwenChat::kQwen2_5Math);
  EXPECT_EQ(recognise_qwen_chat(given + R"({{- '<|im_start|>system\nYou are a pirate.<|im_end|>\n' }})"), std::nullopt);
  EXPECT_EQ(recognise_qwen_chat(given + "{% if part.type == 'image' %}"), std::nullopt);
  EXPECT_EQ(recognise_qwen_chat("[INST] {{ messages[0].content }} [/INST]"), std::nullopt);
  EXPECT_EQ(recognise_qwen_chat(""), std::nullopt);
}

TEST(QwenChatTemplate, EachHasItsDefaultSystemMessage) {
  const std::vector<ChatMessage> asked{{"user", "2+2?"}};
  const auto rendered = [&](QwenChat style) { return render_qwen_chat(asked, {.style = style}).value(); };
  const std::string turn = "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(rendered(QwenChat::kQwen3), turn);
  EXPECT_EQ(rendered(QwenChat::kQwen2_5Base), "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n" + turn);
  EXPECT_EQ(
      rendered(QwenChat::kQwen2_5Math),
      "<|im_start|>system\nPlease reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n" + turn);
}

TEST(QwenChatTemplate, IsTheModelsOwn) {
  const std::string qwen3 = R"({{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }})";
  const std::string qwen2_5 =
      R"('<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n')";
  const auto config = [](const Json& chat_template) { return json_text({{"chat_template", chat_template}}); };
  EXPECT_EQ(chat_style_of({}), QwenChat::kQwen3);
  EXPECT_EQ(chat_style_of({{"tokenizer_config.json", "{}"}}), QwenChat::kQwen3);
  EXPECT_EQ(chat_style_of({{"tokenizer_config.json", config(nullptr)}}), QwenChat::kQwen3);
  EXPECT_EQ(chat_style_of({{"tokenizer_config.json", config(qwen2_5)}}), QwenChat::kQwen2_5);
  EXPECT_EQ(chat_style_of({{"tokenizer_config.json", config(qwen2_5)}, {"chat_template.jinja", qwen3}}),
            QwenChat::kQwen3)
      << "the file of its own comes first";
  EXPECT_EQ(chat_style_of({{"tokenizer_config.json", config(qwen3)}, {"chat_template.jinja", "[INST]"}}), std::nullopt);
  EXPECT_EQ(chat_style_of({{"tokenizer_config.json", config("[INST]")}}), std::nullopt);
  EXPECT_EQ(chat_style_of({{"tokenizer_config.json", config(Json::array({qwen3}))}}), std::nullopt);
  EXPECT_EQ(chat_style_of({{"tokenizer_config.json", "[]"}}).error().code, Errc::kInvalidArgument);
}

}  // namespace
}  // namespace weightcast
