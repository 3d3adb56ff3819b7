#include "trainer/tasks/answer_text.h"

namespace weightcast {

std::string_view last_answer(std::string_view response) {
  constexpr std::string_view kBegin = "<answer>", kEnd = "</answer>";
  const std::size_t begin = response.rfind(kBegin);
  if (begin == std::string_view::npos) return response;
  response.remove_prefix(begin + kBegin.size());
  return response.substr(0, response.find(kEnd));
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kWhiteSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kWhiteSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kWhiteSpace) - begin + 1);
}

std::string ascii_lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t found = text.find(separator, begin);
    parts.push_back(text.substr(begin, found - begin));
    if (found == std::string_view::npos) return parts;
    begin = found + separator.size();
  }
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (std::size_t begin = 0;;) {
    const std::size_t found = text.find(from, begin);
    result += text.substr(begin, found - begin);
    if (found == std::string_view::npos) return result;
    result += to;
    begin = found + from.size();
  }
}

}  // namespace weightcast
