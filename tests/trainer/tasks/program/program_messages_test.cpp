#include "trainer/tasks/program/program_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weightcast {
namespace {

using testing::HasSubstr;

constexpr std::string_view kHello =
    R"({"id": 1, "protocol": 1, "name": "sums", "version": "2.0", "offers": "prompts", "prompt_count": 7, "metadata": ["b", "a"]})";

/// `text` with `from` replaced.
std::string with(std::string_view text, std::string_view from, std::string_view to) {
  std::string changed(text);
  const std::size_t at = changed.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return changed.replace(at, from.size(), to);
}

std::string refusal(const std::string& line) {
  const auto hello = read_hello(line, 1);
  return hello.has_value() ? "read" : hello.error().detail;
}

TEST(ProgramMessages, AreWrittenAsTheDocumentSays) {
  EXPECT_EQ(write_hello_call(1, {{"digits", "2"}}),
            "{\"call\":\"hello\",\"id\":1,\"options\":{\"digits\":\"2\"},\"protocol\":1}\n");
  EXPECT_EQ(write_hello_call(1, {}), "{\"call\":\"hello\",\"id\":1,\"options\":{},\"protocol\":1}\n");
  EXPECT_EQ(write_prompt_call(2, 18446744073709551615u),
            "{\"call\":\"prompt\",\"id\":2,\"index\":18446744073709551615}\n");
  EXPECT_EQ(write_score_call(3, {{"answer", "4"}}, "a\nb"),
            "{\"call\":\"score\",\"id\":3,\"metadata\":{\"answer\":\"4\"},\"response\":\"a\\nb\"}\n");
  EXPECT_EQ(write_reset_call(4, 9, 5, std::vector<std::uint64_t>{7, 8}),
            "{\"call\":\"reset\",\"closed\":[7,8],\"episode\":9,\"id\":4,\"seed\":5}\n");
  EXPECT_EQ(write_step_call(5, 9, "up"), "{\"action\":\"up\",\"call\":\"step\",\"episode\":9,\"id\":5}\n");
  // What a policy samples need not be UTF-8.
  EXPECT_EQ(write_step_call(5, 9, "\xff"), "{\"action\":\"\xef\xbf\xbd\",\"call\":\"step\",\"episode\":9,\"id\":5}\n");
}

TEST(ProgramMessages, HelloSaysWhatTheProgramOffers) {
  const ProgramHello hello = read_hello(kHello, 1).value();
  EXPECT_EQ(hello, (ProgramHello{"sums", "2.0", false, 7, {"a", "b"}}));
  EXPECT_EQ(program_task_name(hello), "program:sums@2.0");
  EXPECT_TRUE(is_program_task("program:sums@2.0"));
  EXPECT_FALSE(is_program_task("program"));
  EXPECT_EQ(read_hello(R"({"id":1,"protocol":1,"name":"x","version":"1","offers":"episodes"})", 1).value(),
            (ProgramHello{"x", "1", true, std::nullopt, {}}));
}

TEST(ProgramMessages, RefuseAHelloOfAnotherVersionClearly) {
  const auto hello = read_hello(with(kHello, "\"protocol\": 1", "\"protocol\": 2"), 1);
  ASSERT_FALSE(hello.has_value());
  EXPECT_EQ(hello.error().code, Errc::kUnsupported);
  EXPECT_THAT(hello.error().detail,
              HasSubstr("it speaks version 2 of the protocol of tasks, and this program version 1"));
}

TEST(ProgramMessages, RefuseWhatIsNoHelloAndShowIt) {
  EXPECT_EQ(refusal("Loading..."), "its answer is refused: no JSON object; received 'Loading...'");
  EXPECT_EQ(refusal("[1]"), "its answer is refused: no JSON object; received '[1]'");
  EXPECT_EQ(refusal(with(kHello, "\"id\": 1", "\"id\": 2")).substr(0, 45),
            "its answer is refused: no answer to call 1; r");
  EXPECT_THAT(refusal(with(kHello, "\"id\": 1", "\"id\": \"1\"")), HasSubstr("no answer to call 1"));
  EXPECT_THAT(refusal(with(kHello, "\"protocol\": 1, ", "")), HasSubstr("'protocol' is missing"));
  EXPECT_THAT(refusal(with(kHello, "\"sums\"", "\"\"")), HasSubstr("'name' is not 1 to 64 letters"));
  EXPECT_THAT(refusal(with(kHello, "\"sums\"", "\"su ms\"")), HasSubstr("'name' is not 1 to 64 letters"));
  EXPECT_THAT(refusal(with(kHello, "\"2.0\"", "2")), HasSubstr("'version' is no text"));
  EXPECT_THAT(refusal(with(kHello, "\"prompts\"", "\"both\"")), HasSubstr("'offers' is neither prompts nor episodes"));
  EXPECT_THAT(refusal(with(kHello, "7", "0")), HasSubstr("'prompt_count' is no whole number from 1 on"));
  EXPECT_THAT(refusal(with(kHello, "7", "-7")), HasSubstr("'prompt_count' is no whole number from 1 on"));
  EXPECT_THAT(refusal(with(kHello, "\"b\", \"a\"", "\"a\", \"a\"")), HasSubstr("stands twice"));
  EXPECT_THAT(refusal(with(kHello, "\"b\"", "3")), HasSubstr("a name in 'metadata' is none"));
  // Any beginning of it is refused.
  for (std::size_t n = 0; n < kHello.size(); ++n) EXPECT_NE(refusal(std::string(kHello.substr(0, n))), "read") << n;
}

TEST(ProgramMessages, APromptHasMessagesAndThePromisedMetadata) {
  const ProgramHello hello{"sums", "1", false, 7, {"answer"}};
  const auto read = [&](std::string_view line) { return read_prompt(line, 2, hello, 9); };
  const std::string line =
      R"({"id":2,"messages":[{"role":"system","content":"s"},{"role":"user","content":"1+1="}],"metadata":{"answer":"2"}})";
  const Prompt prompt = read(line).value();
  EXPECT_EQ(prompt.messages, (std::vector<ChatMessage>{{"system", "s"}, {"user", "1+1="}}));
  EXPECT_EQ(prompt.metadata, (Metadata{{"answer", "2"}}));
  EXPECT_EQ(prompt.tag, "sums/2");  // 9 is the third again
  EXPECT_EQ(read(with(line, "\"id\":2", "\"id\":2,\"tag\":\"t\"")).value().tag, "t");

  const auto why = [&](const std::string& text) { return read(text).error().detail; };
  EXPECT_THAT(why(R"({"id":2})"), HasSubstr("'messages' is missing"));
  EXPECT_THAT(why(R"({"id":2,"messages":[]})"), HasSubstr("'messages' is no list of 1 to 64"));
  EXPECT_THAT(why(with(line, "system", "tool")), HasSubstr("role is none of system, user, assistant"));
  EXPECT_THAT(why(with(line, "\"s\"", "1")), HasSubstr("a message is not"));
  EXPECT_THAT(why(with(line, "\"2\"", "2")), HasSubstr("metadata 'answer' is no text"));
  EXPECT_THAT(why(with(line, "answer", "other")), HasSubstr("its hello promised the metadata [answer]"));
  EXPECT_THAT(why(with(line, "\"id\":2", "\"id\":2,\"tag\":\"\"")), HasSubstr("'tag' is not of 1 to 256 bytes"));
}

TEST(ProgramMessages, ScoresAndStepsAreFinite) {
  EXPECT_EQ(read_score(R"({"id":3,"reward":0.5,"success":false})", 3).value(), (Score{0.5, false}));
  EXPECT_THAT(read_score(R"({"id":3,"reward":1e999,"success":true})", 3).error().detail, HasSubstr("no JSON object"));
  EXPECT_THAT(read_score(R"({"id":3,"reward":"1","success":true})", 3).error().detail,
              HasSubstr("'reward' is no number"));
  EXPECT_THAT(read_score(R"({"id":3,"reward":1})", 3).error().detail, HasSubstr("'success' is missing"));
  const auto step = read_step(R"({"id":3,"reward":-1,"done":false,"success":false,"observation":"o"})", 3);
  ASSERT_TRUE(step.has_value());
  EXPECT_EQ(step->observation, "o");
  EXPECT_EQ(step->reward, -1);
  EXPECT_FALSE(step->done);
  // The last one needs no observation; others do.
  EXPECT_TRUE(read_step(R"({"id":3,"reward":1,"done":true,"success":true})", 3)->done);
  EXPECT_THAT(read_step(R"({"id":3,"reward":1,"done":false,"success":true})", 3).error().detail,
              HasSubstr("'observation' is missing"));
}

TEST(ProgramMessages, AnErrorOfTheProgramIsNoFaultOfTheProtocol) {
  const auto score = read_score(R"({"id":3,"error":"KeyError: 'x'"})", 3);
  ASSERT_FALSE(score.has_value());
  EXPECT_EQ(score.error().code, Errc::kInvalidArgument);
  EXPECT_EQ(score.error().detail, "it says: KeyError: 'x'");
  EXPECT_EQ(read_score(R"({"id":3,"error":7})", 3).error().code, Errc::kCorrupt);
}

}  // namespace
}  // namespace weightcast
