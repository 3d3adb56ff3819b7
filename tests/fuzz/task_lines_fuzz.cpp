// Any bytes as what a task's program says: cut into the same lines wherever they are cut, and read or refused.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "trainer/tasks/program/line_reader.h"
#include "trainer/tasks/program/program_messages.h"

namespace {

using namespace weightcast;

constexpr std::size_t kBytesMax = 512;

/// The lines of `bytes`, given `step` at a time; and "too long" at the end if one is.
std::vector<std::string> lines_of(std::string_view bytes, std::size_t step) {
  LineReader reader(kBytesMax);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    reader.add(bytes.substr(at, step));
    for (;;) {
      auto line = reader.next();
      if (!line.has_value()) {
        lines.emplace_back("too long");
        return lines;
      }
      if (!*line) break;
      WC_CHECK((*line)->size() <= kBytesMax);
      lines.push_back(**std::move(line));
    }
  }
  return lines;
}

template <typename T>
void check(const Result<T>& answer) {
  WC_CHECK(answer.has_value() || !answer.error().message().empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string> lines = lines_of(bytes, 1);
  WC_CHECK(lines == lines_of(bytes, 7));
  for (const std::string& line : lines) {
    const auto hello = read_hello(line, 1);
    check(hello);
    if (hello.has_value()) WC_CHECK(is_program_task(program_task_name(*hello)) && hello->prompt_count != 0);
    const auto prompt = read_prompt(line, 1, hello.value_or(ProgramHello{"n", "1", false, 3, {"a"}}), 5);
    check(prompt);
    if (prompt.has_value()) WC_CHECK(!prompt->messages.empty() && !prompt->tag.empty());
    check(read_score(line, 1));
    check(read_step(line, 1));
  }
  return 0;
}
