#include "trainer/intake/kept_answers.h"

#include <algorithm>
#include <utility>

namespace weightcast {
namespace {

// The nodes of the containers, and the allocator's own part of each block.
constexpr std::size_t kEntryBytes = 512;

std::size_t bytes_of(const std::string& key, const HttpResponse& answer) {
  std::size_t bytes = kEntryBytes + 2 * key.size() + answer.content_type.size() + answer.body.size();
  for (const HttpHeader& header : answer.headers) bytes += sizeof header + header.name.size() + header.value.size();
  return bytes;
}

}  // namespace

const KeptAnswers::Kept* KeptAnswers::find(const std::string& worker, const std::string& key) const {
  const auto whose = workers_.find(worker);
  if (whose == workers_.end()) return nullptr;
  const auto found = whose->second.answers.find(key);
  return found == whose->second.answers.end() ? nullptr : &found->second;
}

void KeptAnswers::add(const std::string& worker, const std::string& key, const ContentDigest& body,
                      HttpResponse answer) {
  answer.body.shrink_to_fit();
  const std::size_t bytes = bytes_of(key, answer);
  if (bytes > bytes_max_) return;
  Worker& whose = workers_[worker];
  whose.answers.emplace(key, Kept{body, std::move(answer)});
  whose.order.push_back(key);
  whose.bytes += bytes;
  bytes_ += bytes;
  while (bytes_ > bytes_max_) make_way();
}

void KeptAnswers::make_way() {
  const auto most =
      std::ranges::max_element(workers_, [](const auto& a, const auto& b) { return a.second.bytes < b.second.bytes; });
  Worker& whose = most->second;
  const auto oldest = whose.answers.find(whose.order.front());
  const std::size_t bytes = bytes_of(oldest->first, oldest->second.answer);
  whose.bytes -= bytes;
  bytes_ -= bytes;
  whose.answers.erase(oldest);
  whose.order.pop_front();
  if (whose.answers.empty()) workers_.erase(most);
}

}  // namespace weightcast
