#include "base/text.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/json_text.h"

namespace weightcast {
namespace {

// nlohmann's parser refuses what is not UTF-8, so that a second opinion is at hand.
bool is_utf8(const std::string& text) {
  try {
    static_cast<void>(nlohmann::json(text).dump());
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

TEST(Printable, LeavesTextAlone) {
  for (const std::string text : {"", "worker-1", "a\\b \"c\"", "Gerät", "重み", "\U0001f600", "\u00a0"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, EscapesWhatForgesLinesOrDrivesATerminal) {
  EXPECT_EQ(printable("a\nerror b\r\n\tc"), "a\\nerror b\\r\\n\\tc");
  EXPECT_EQ(printable("\x1b[2J\x07\x7f"), "\\x1b[2J\\x07\\x7f");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\u009b2J"), "\\xc2\\x9b2J") << "C1 begins a control sequence, too";
  EXPECT_EQ(printable("\u2028\u202e"), "\\u{2028}\\u{202e}");
}

TEST(Printable, EscapesBytesThatAreNoUtf8) {
  EXPECT_EQ(printable("gpu-\xff"), "gpu-\\xff");
  EXPECT_EQ(printable("\xc3"), "\\xc3") << "cut inside a character";
  EXPECT_EQ(printable("\xc3(\xe4\xb8"), "\\xc3(\\xe4\\xb8");
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf") << "overlong";
  EXPECT_EQ(printable("\xe0\x80\x8a"), "\\xe0\\x80\\x8a") << "an overlong line feed";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond the last character";
  EXPECT_EQ(printable("\x9b"), "\\x9b");
}

// Every pair of bytes, alone and inside a text.
TEST(Printable, IsUtf8InOneLineWhateverTheBytes) {
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const std::string out = printable(std::string{'x', char(a), char(b), 'y'});
      ASSERT_TRUE(is_utf8(out)) << a << " " << b;
      ASSERT_TRUE(std::ranges::none_of(out, [](unsigned char c) { return c < 0x20 || c == 0x7f; })) << a << " " << b;
    }
  }
}

TEST(CutText, CutsBetweenCharacters) {
  EXPECT_EQ(cut_text("abc", 3), "abc");
  EXPECT_EQ(cut_text("abc", 2), "ab");
  EXPECT_EQ(cut_text("abc", 0), "");
  const std::string text = "aä重\U0001f600";  // 1 + 2 + 3 + 4 bytes
  const std::size_t ends[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10};
  for (std::size_t i = 0; i <= text.size(); ++i) EXPECT_EQ(cut_text(text, i).size(), ends[i]) << i;
}

TEST(CutText, CutsBytesThatAreNoTextNearTheirBound) {
  const std::string bytes(100, '\x80');
  EXPECT_GE(cut_text(bytes, 50).size(), 47u);
  EXPECT_LE(cut_text(bytes, 50).size(), 50u);
}

TEST(JsonText, TakesAnyBytes) {
  const nlohmann::json names = {"gpu-\xff", "cut \xc3", "重み"};
  EXPECT_EQ(json_text(names), "[\"gpu-\ufffd\",\"cut \ufffd\",\"重み\"]");
  EXPECT_EQ(json_text(nlohmann::json{{"a", 1}}, 1), "{\n \"a\": 1\n}");
}

std::string nested(std::size_t depth, const std::string& inside = "") {
  return std::string(depth, '[') + inside + std::string(depth, ']');
}

TEST(ParseJson, RefusesWhatIsNestedTooDeeply) {
  EXPECT_FALSE(parse_json(nested(kJsonDepthMax)).is_discarded());
  EXPECT_TRUE(parse_json(nested(kJsonDepthMax + 1)).is_discarded());
  const nlohmann::json deep = parse_json(nested(100'000));
  EXPECT_TRUE(deep.is_discarded());
  EXPECT_FALSE(deep.is_array() || deep.is_object());
}

TEST(ParseJson, TakesBracketsInTextsAsText) {
  const std::string brackets(2 * kJsonDepthMax, '[');
  for (const std::string& text : {"\"" + brackets + "\"", "{\"" + brackets + "\":\"\\\"" + brackets + "\"}",
                                 "[\"\\\\\",\"" + brackets + "\"]", nested(kJsonDepthMax - 1, "[],[],{}")}) {
    EXPECT_FALSE(parse_json(text).is_discarded()) << text;
  }
  EXPECT_TRUE(parse_json("[\"\\\\\"," + brackets).is_discarded()) << "a backslash does not hide the next quote";
}

TEST(ParseJson, RefusesWhatIsNoJson) {
  for (const std::string text : {"", "]", "[", "\"", "\"\\", "]]]][[", "{\"a\":}"}) {
    EXPECT_TRUE(parse_json(text).is_discarded()) << text;
  }
}

}  // namespace
}  // namespace weightcast
