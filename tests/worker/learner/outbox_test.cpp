#include "worker/learner/outbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weightcast {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
using Ids = std::vector<Outbox::Id>;

Outbox::Entry entry(std::uint64_t version, std::uint64_t bytes = 10) {
  return {.sequence = 0, .oldest = Version{version}, .newest = Version{version}, .bytes = bytes};
}

Outbox::Learner learner(std::string life, std::uint64_t begun, std::uint64_t durable, std::uint64_t version = 10,
                        std::uint64_t floor = 0) {
  return {std::move(life), begun, durable, Version{version}, Version{floor}};
}

Ids removed(Outbox& outbox) {
  Ids ids;
  while (const auto id = outbox.poll_removed()) ids.push_back(*id);
  return ids;
}

Ids batch(Outbox& outbox) { return outbox.poll_batch(100, 1'000'000); }

TEST(Outbox, SendsInOrderWithinBounds) {
  Outbox outbox(1000);
  for (Outbox::Id id = 1; id <= 5; ++id) outbox.add(id, entry(1, 10 * id));
  EXPECT_THAT(outbox.poll_batch(2, 1000), ElementsAre(1, 2));
  EXPECT_THAT(outbox.poll_batch(9, 75), ElementsAre(3, 4));
  EXPECT_THAT(outbox.poll_batch(9, 1), ElementsAre(5)) << "one always goes";
  EXPECT_THAT(outbox.poll_batch(9, 1000), IsEmpty());
  outbox.handle_not_sent({3, 1});
  EXPECT_THAT(batch(outbox), ElementsAre(1, 3));
  EXPECT_EQ(outbox.pending(), 5u);
}

TEST(Outbox, KeepsWhatIsAcknowledgedUntilACheckpointHasIt) {
  Outbox outbox(1000);
  outbox.add(1, entry(1));
  outbox.add(2, entry(1));
  EXPECT_THAT(batch(outbox), ElementsAre(1, 2));
  outbox.handle_learner(learner("a", 2, 1));
  outbox.handle_acknowledged(1);
  EXPECT_EQ(outbox.kept(), 1u);
  EXPECT_EQ(outbox.pending(), 1u);
  outbox.handle_learner(learner("a", 3, 2));  // the copy that was begun before the acknowledgement
  EXPECT_THAT(removed(outbox), IsEmpty());
  outbox.handle_acknowledged(2);
  outbox.handle_learner(learner("a", 3, 3));
  EXPECT_THAT(removed(outbox), ElementsAre(1));
  outbox.handle_learner(learner("a", 4, 4));
  EXPECT_THAT(removed(outbox), ElementsAre(2));
  EXPECT_EQ(outbox.bytes(), 0u);
  EXPECT_EQ(outbox.kept() + outbox.pending() + outbox.dropped(), 0u);
}

TEST(Outbox, SendsAllThatIsKeptAgainToAnotherLife) {
  Outbox outbox(1000);
  for (Outbox::Id id = 1; id <= 3; ++id) outbox.add(id, entry(1));
  outbox.handle_learner(learner("a", 0, 0));
  EXPECT_EQ(batch(outbox).size(), 3u);
  outbox.handle_acknowledged(1);
  outbox.handle_acknowledged(3);
  outbox.handle_learner(learner("b", 5, 5));  // its copies are others
  EXPECT_THAT(removed(outbox), IsEmpty());
  EXPECT_THAT(batch(outbox), ElementsAre(1, 3)) << "2 is still on its way";
}

TEST(Outbox, ForgetsWhatIsRefused) {
  Outbox outbox(1000);
  outbox.add(7, entry(1));
  EXPECT_EQ(batch(outbox).size(), 1u);
  outbox.handle_refused(7);
  outbox.handle_refused(7);
  EXPECT_THAT(removed(outbox), ElementsAre(7));
  EXPECT_EQ(outbox.pending(), 0u);
}

TEST(Outbox, DefersWhatTheLearnerDoesNotKnowYet) {
  Outbox outbox(1000);
  outbox.add(1, entry(12));
  EXPECT_EQ(batch(outbox).size(), 1u);
  outbox.handle_learner(learner("a", 0, 0, 10));
  outbox.handle_deferred(1);
  EXPECT_THAT(batch(outbox), IsEmpty());
  outbox.handle_learner(learner("a", 0, 0, 11));
  EXPECT_THAT(batch(outbox), IsEmpty());
  outbox.handle_learner(learner("a", 0, 0, 12));
  EXPECT_THAT(batch(outbox), ElementsAre(1));
}

TEST(Outbox, MakesRoomOfWhatIsTooOldFirst) {
  Outbox outbox(40);
  outbox.add(1, entry(5));
  outbox.add(2, entry(3));
  outbox.add(3, entry(5));
  outbox.add(4, entry(3));
  outbox.handle_learner(learner("a", 0, 0, 8, 4));
  EXPECT_TRUE(outbox.make_room(10));
  EXPECT_THAT(removed(outbox), ElementsAre(2)) << "the oldest of them, and no more than needed";
  EXPECT_TRUE(outbox.make_room(20));
  EXPECT_THAT(removed(outbox), ElementsAre(4));
  EXPECT_FALSE(outbox.make_room(21)) << "the learner could still take the others";
  EXPECT_EQ(outbox.dropped(), 2u);
  EXPECT_EQ(outbox.pending(), 2u);
}

TEST(Outbox, MakesRoomOfWhatIsKeptNext) {
  Outbox outbox(30);
  for (Outbox::Id id = 1; id <= 3; ++id) outbox.add(id, entry(5));
  EXPECT_EQ(batch(outbox).size(), 3u);
  outbox.handle_learner(learner("a", 0, 0));
  outbox.handle_acknowledged(2);
  outbox.handle_not_sent({1, 3});
  EXPECT_TRUE(outbox.make_room(10));
  EXPECT_THAT(removed(outbox), ElementsAre(2));
  EXPECT_FALSE(outbox.make_room(11));
}

TEST(Outbox, ClearsAllOfAnotherRun) {
  Outbox outbox(100);
  outbox.add(1, entry(1));
  outbox.add(2, entry(1));
  EXPECT_EQ(outbox.poll_batch(1, 10).size(), 1u);
  outbox.clear();
  EXPECT_THAT(removed(outbox), UnorderedElementsAre(1, 2));
  EXPECT_EQ(outbox.pending(), 0u);
  outbox.handle_acknowledged(1);  // its verdict comes late
  EXPECT_EQ(outbox.kept(), 0u);
}

}  // namespace
}  // namespace weightcast
