#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>

#include "base/digest/content_digest.h"
#include "transport/http/message.h"

namespace weightcast {

/// Answers to requests with an Idempotency-Key, to be repeated. Pure. Bounded in bytes: for a new one the oldest answer
/// of the worker that has most makes way. So a worker loses none before it has an equal share of all.
class KeptAnswers {
 public:
  struct Kept {
    ContentDigest body;  ///< of the request
    HttpResponse answer;
  };

  explicit KeptAnswers(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  /// The answer to a worker's request with that key; null if there is none any more.
  [[nodiscard]] const Kept* find(const std::string& worker, const std::string& key) const;
  /// Keeps an answer that find() does not have, unless it is larger than all may be together.
  void add(const std::string& worker, const std::string& key, const ContentDigest& body, HttpResponse answer);
  /// Of all, with what it takes to keep them.
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  struct Worker {
    std::map<std::string, Kept> answers;  // by key
    std::deque<std::string> order;        // the oldest first
    std::size_t bytes = 0;
  };
  void make_way();

  const std::size_t bytes_max_;
  std::map<std::string, Worker> workers_;  // of none without answers
  std::size_t bytes_ = 0;
};

}  // namespace weightcast
