#include "worker/learner/outbox.h"

#include "base/result.h"

namespace weightcast {

void Outbox::set_state(Tracked& tracked, State state) {
  pending_ -= is_pending(tracked.state) ? 1 : 0;
  pending_ += is_pending(state) ? 1 : 0;
  tracked.state = state;
}

std::map<Outbox::Id, Outbox::Tracked>::iterator Outbox::remove(std::map<Id, Tracked>::iterator at) {
  set_state(at->second, State::kKept);
  bytes_ -= at->second.entry.bytes;
  removed_.push_back(at->first);
  return entries_.erase(at);
}

bool Outbox::make_room(std::uint64_t bytes) {
  const auto fits = [&] { return bytes_ + bytes <= bytes_max_; };
  const auto drop = [&](const auto& may_go) {
    for (auto at = entries_.begin(); at != entries_.end() && !fits();) {
      // Of what is on its way, the verdict comes soon.
      const bool goes = at->second.state != State::kSent && may_go(at->second);
      dropped_ += goes ? 1 : 0;
      at = goes ? remove(at) : std::next(at);
    }
  };
  drop([&](const Tracked& tracked) { return tracked.entry.oldest < learner_.oldest_admissible; });
  drop([&](const Tracked& tracked) { return !is_pending(tracked.state); });
  return fits();
}

void Outbox::add(Id id, const Entry& entry) {
  const bool is_new = entries_.emplace(id, Tracked{entry, State::kPending, 0}).second;
  WC_CHECK(is_new);
  ++pending_;
  bytes_ += entry.bytes;
}

void Outbox::clear() {
  dropped_ += entries_.size();
  for (auto at = entries_.begin(); at != entries_.end();) at = remove(at);
  learner_ = {};
}

std::vector<Outbox::Id> Outbox::poll_batch(std::size_t count_max, std::uint64_t bytes_max) {
  std::vector<Id> batch;
  std::uint64_t bytes = 0;
  for (auto& [id, tracked] : entries_) {
    if (tracked.state != State::kPending) continue;
    bytes += tracked.entry.bytes;
    if (batch.size() == count_max || (!batch.empty() && bytes > bytes_max)) break;
    set_state(tracked, State::kSent);
    batch.push_back(id);
  }
  return batch;
}

void Outbox::handle_not_sent(const std::vector<Id>& ids) {
  for (const Id id : ids) {
    const auto found = entries_.find(id);
    if (found != entries_.end() && found->second.state == State::kSent) set_state(found->second, State::kPending);
  }
}

void Outbox::handle_learner(const Learner& learner) {
  const bool is_another = learner.life != learner_.life;
  learner_ = learner;
  for (auto at = entries_.begin(); at != entries_.end();) {
    Tracked& tracked = at->second;
    if (is_another && !is_pending(tracked.state)) {
      set_state(tracked, State::kPending);
    } else if (tracked.state == State::kKept && tracked.copy <= learner.copies_durable) {
      at = remove(at);
      continue;
    } else if (tracked.state == State::kDeferred && tracked.entry.newest <= learner.version) {
      set_state(tracked, State::kPending);
    }
    ++at;
  }
}

void Outbox::handle_acknowledged(Id id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  set_state(found->second, State::kKept);
  found->second.copy = learner_.copies_begun + 1;
}

void Outbox::handle_refused(Id id) {
  const auto found = entries_.find(id);
  if (found != entries_.end()) remove(found);
}

void Outbox::handle_deferred(Id id) {
  const auto found = entries_.find(id);
  if (found != entries_.end()) set_state(found->second, State::kDeferred);
}

std::optional<Outbox::Id> Outbox::poll_removed() {
  if (removed_.empty()) return std::nullopt;
  const Id id = removed_.back();
  removed_.pop_back();
  return id;
}

}  // namespace weightcast
