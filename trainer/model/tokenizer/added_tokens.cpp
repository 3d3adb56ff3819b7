#include "trainer/model/tokenizer/added_tokens.h"

#include <algorithm>

namespace weightcast {
namespace {

constexpr std::string_view kSpaces[] = {" ",
                                        "\t",
                                        "\n",
                                        "\v",
                                        "\f",
                                        "\r",
                                        "\xc2\x85",
                                        "\xc2\xa0",
                                        "\xe1\x9a\x80",
                                        "\xe2\x80\x80",
                                        "\xe2\x80\x81",
                                        "\xe2\x80\x82",
                                        "\xe2\x80\x83",
                                        "\xe2\x80\x84",
                                        "\xe2\x80\x85",
                                        "\xe2\x80\x86",
                                        "\xe2\x80\x87",
                                        "\xe2\x80\x88",
                                        "\xe2\x80\x89",
                                        "\xe2\x80\x8a",
                                        "\xe2\x80\xa8",
                                        "\xe2\x80\xa9",
                                        "\xe2\x80\xaf",
                                        "\xe2\x81\x9f",
                                        "\xe3\x80\x80"};

std::size_t spaces_at_begin(std::string_view text) {
  std::size_t bytes = 0;
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view space : kSpaces) {
      if (!text.substr(bytes).starts_with(space)) continue;
      bytes += space.size();
      found = true;
    }
  }
  return bytes;
}

std::size_t spaces_at_end(std::string_view text) {
  const std::size_t all = text.size();
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view space : kSpaces) {
      if (!text.ends_with(space)) continue;
      text.remove_suffix(space.size());
      found = true;
    }
  }
  return all - text.size();
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens, bool normalized) {
  for (const AddedToken& token : tokens) {
    if (token.normalized != normalized || token.content.empty()) continue;
    begins_[static_cast<unsigned char>(token.content[0])] = true;
    entries_.push_back({token});
  }
  const auto content = [](const Entry& entry) -> const std::string& { return entry.token.content; };
  // Of two with the same content the first counts.
  std::ranges::stable_sort(entries_, {}, content);
  const auto twice = std::ranges::unique(entries_, {}, content);
  entries_.erase(twice.begin(), twice.end());
  for (std::size_t i = 1; i < entries_.size(); ++i) {
    auto prefix = static_cast<std::ptrdiff_t>(i) - 1;
    while (prefix >= 0 && !entries_[i].token.content.starts_with(entries_[prefix].token.content)) {
      prefix = entries_[prefix].prefix;
    }
    entries_[i].prefix = prefix;
  }
}

// All that `text` begins with are no greater than it, and the greatest of those that are not greater begins with each
// of them: they are that one and its prefixes. So a file with many tokens that begin alike does not slow every text.
const AddedToken* AddedTokenFinder::longest(std::string_view text, bool skip_special) const {
  if (!begins_[static_cast<unsigned char>(text[0])]) return nullptr;
  const auto greater = std::ranges::upper_bound(
      entries_, text, {}, [](const Entry& entry) { return std::string_view(entry.token.content); });
  auto at = greater - entries_.begin() - 1;
  if (at < 0) return nullptr;
  const std::string& nearest = entries_[at].token.content;
  const auto common = static_cast<std::size_t>(std::ranges::mismatch(nearest, text).in1 - nearest.begin());
  while (at >= 0 && entries_[at].token.content.size() > common) at = entries_[at].prefix;
  if (at < 0) return nullptr;
  const AddedToken& token = entries_[at].token;
  return skip_special && token.special ? nullptr : &token;
}

std::vector<TextPart> AddedTokenFinder::split(std::string_view text, bool skip_special) const {
  std::vector<TextPart> parts;
  std::size_t end = 0;  // of the last part
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* token = longest(text.substr(at), skip_special);
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at, stop = at + token->content.size();
    if (token->lstrip) begin -= spaces_at_end(text.substr(end, at - end));
    if (token->rstrip) stop += spaces_at_begin(text.substr(stop));
    if (begin > end) parts.push_back({text.substr(end, begin - end), std::nullopt});
    parts.push_back({text.substr(begin, stop - begin), token->id});
    at = end = stop;
  }
  if (end < text.size()) parts.push_back({text.substr(end), std::nullopt});
  return parts;
}

}  // namespace weightcast
