#include "transport/core/origin/publication_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/units.h"

namespace weightcast {
namespace {

// Repairing a plan and telling those whom it concerns takes some 2 us for each member of it: so a fleet in which
// somebody comes or goes all the time takes a third of a core at most.
constexpr Duration kSettlingPerMember = std::chrono::microseconds(5);

}  // namespace

Publication& PublicationPlans::of(PayloadId payload) {
  return publications_.try_emplace(payload, context_, payloads_.held().at(payload)).first->second;
}

Publication* PublicationPlans::find(PayloadId payload) {
  const auto found = publications_.find(payload);
  return found == publications_.end() ? nullptr : &found->second;
}

const Publication* PublicationPlans::main_publication(Version version) const {
  const Publication* most = nullptr;
  for (const auto& [payload, publication] : publications_) {
    if (payload.version != version) continue;
    if (most == nullptr || publication.plan().members.size() >= most->plan().members.size()) most = &publication;
  }
  return most;
}

std::unordered_set<PeerId> PublicationPlans::planned() const {
  std::unordered_set<PeerId> planned;
  for (const auto& [payload, publication] : publications_) {
    planned.insert(publication.plan().members.begin(), publication.plan().members.end());
  }
  return planned;
}

std::set<PeerId> PublicationPlans::planned(Version version) const {
  std::set<PeerId> planned;
  for (const auto& [payload, publication] : publications_) {
    if (payload.version != version) continue;
    planned.insert(publication.plan().members.begin(), publication.plan().members.end());
  }
  return planned;
}

void PublicationPlans::erase(PayloadId payload) {
  publications_.erase(payload);
  unsettled_.erase(payload);
}

void PublicationPlans::unsettle(Instant now, PayloadId payload) {
  unsettled_.insert(payload);
  note_change(now);
}

void PublicationPlans::unsettle_all(Instant now) {
  for (auto& [payload, publication] : publications_) unsettle(now, payload);
}

void PublicationPlans::handle_disconnected(Instant now, PeerId member) {
  for (auto& [payload, publication] : publications_) {
    if (publication.handle_disconnected(member)) unsettle(now, payload);
  }
}

void PublicationPlans::note_change(Instant now) {
  const auto members = static_cast<std::int64_t>(context_.members.connected_count());
  const Instant earliest = settled_at_ ? *settled_at_ + kSettlingPerMember * members : now;
  if (!settle_due_) settle_due_ = std::max(now, earliest);
}

void PublicationPlans::settle(Instant now) {
  settle_due_.reset();
  settled_at_ = now;
  unsettle_outdated();
  std::vector<Publication*> repaired;
  for (const PayloadId payload : std::exchange(unsettled_, {})) {
    Publication* publication = find(payload);
    if (publication == nullptr) continue;
    repaired.push_back(publication);
    const bool begins = publication->plan().members.empty();
    publication->repair(now);
    ++repair_count_;
    const Plan& plan = publication->plan();
    if (!begins || plan.members.empty()) continue;
    context_.actions.push(action::milestone(fmt::format(
        "publishing {}: {} to {} workers by {}, chunks of {}, predicted {:.3f} s", to_string(payload),
        format_bytes(publication->manifest().planned_bytes()), plan.members.size(), to_string(plan.topology),
        format_bytes(publication->manifest().chunk_bytes), to_seconds(plan.predicted_t100))));
  }
  // A worker that gives up or finishes what it is in the middle of goes on with what was announced last: that has to be
  // what it is assigned.
  for (const bool to_assigned : {false, true}) {
    for (Publication* publication : repaired) publication->announce(now, to_assigned);
  }
}

void PublicationPlans::unsettle_outdated() {
  for (auto& [payload, publication] : publications_) {
    // The latest version's are unsettled when members are assigned.
    if (payload.version != payloads_.latest() && publication.outdated()) unsettled_.insert(payload);
  }
}

}  // namespace weightcast
