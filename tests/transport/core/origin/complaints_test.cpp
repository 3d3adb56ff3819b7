#include "transport/core/origin/relays/complaints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace weightcast {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Weight = Complaints::Weight;

constexpr PeerId kA{1}, kB{2}, kC{3}, kD{4}, kE{5}, kF{6};

bool are_apart(const Complaints& complaints, PeerId parent, PeerId child) {
  const std::vector<ApartPair> pairs = complaints.apart();
  return std::ranges::find(pairs, ApartPair{parent, child}) != pairs.end();
}

struct ComplaintsTest : testing::Test {
  Complaints complaints;
};

TEST_F(ComplaintsTest, OneChildKeepsItselfApartFromItsParentAndConvictsNobody) {
  EXPECT_EQ(complaints.handle_complaint(kB, kA, PeerFault::kCorrupt), Weight::kCounts);
  EXPECT_EQ(complaints.handle_complaint(kB, kA, PeerFault::kCorrupt), Weight::kRepeated);
  EXPECT_THAT(complaints.apart(), ElementsAre(ApartPair{kA, kB}));
  EXPECT_FALSE(complaints.convicted(kA));
}

TEST_F(ComplaintsTest, TwoChildrenConvictAlsoInDifferentPublications) {
  (void)complaints.handle_complaint(kB, kA, PeerFault::kCorrupt);
  complaints.handle_publication_end();
  (void)complaints.handle_complaint(kC, kA, PeerFault::kSlow);
  EXPECT_TRUE(complaints.convicted(kA));
  EXPECT_FALSE(complaints.convicted_of_corruption(kA));
  (void)complaints.handle_complaint(kD, kA, PeerFault::kCorrupt);
  EXPECT_TRUE(complaints.convicted_of_corruption(kA));
}

TEST_F(ComplaintsTest, OneChildThatSaysItInEveryPublicationIsStillOneWitness) {
  for (int i = 0; i < 100; ++i) {
    (void)complaints.handle_complaint(kB, kA, PeerFault::kCorrupt);
    complaints.handle_publication_end();
  }
  EXPECT_FALSE(complaints.convicted(kA));
}

TEST_F(ComplaintsTest, PutBothEndsInDisputeUntilTheyAreForgotten) {
  (void)complaints.handle_complaint(kB, kA, PeerFault::kSlow);
  for (std::uint32_t i = 0; i < Complaints::kRemembered; ++i) {
    EXPECT_TRUE(complaints.in_dispute(kA) && complaints.in_dispute(kB)) << i;
    EXPECT_FALSE(complaints.in_dispute(kC));
    complaints.handle_publication_end();
  }
  EXPECT_FALSE(complaints.in_dispute(kA) || complaints.in_dispute(kB));
}

TEST_F(ComplaintsTest, ALaterPublicationClearsWhoTookPartInItWithoutAnother) {
  (void)complaints.handle_complaint(kB, kA, PeerFault::kSlow);
  complaints.handle_publication_end({kA, kB, kC});
  EXPECT_TRUE(complaints.in_dispute(kA) && complaints.in_dispute(kB)) << "it is of this publication";
  complaints.handle_publication_end({kB, kC});
  EXPECT_FALSE(complaints.in_dispute(kB));
  EXPECT_TRUE(complaints.in_dispute(kA)) << "it did not have the version";
  complaints.handle_publication_end({kA, kB, kC});
  EXPECT_FALSE(complaints.in_dispute(kA));
  EXPECT_EQ(complaints.count_of(kA), 0u);
  EXPECT_EQ(complaints.count_by(kB), 0u);
  EXPECT_TRUE(are_apart(complaints, kA, kB));
  (void)complaints.handle_complaint(kC, kA, PeerFault::kSlow);
  EXPECT_TRUE(complaints.convicted(kA)) << "who does wrong every other time is found";
}

TEST_F(ComplaintsTest, PublicationWithAnotherOneClearsNobodyOfIt) {
  (void)complaints.handle_complaint(kB, kA, PeerFault::kSlow);
  complaints.handle_publication_end();
  (void)complaints.handle_complaint(kB, kC, PeerFault::kSlow);
  complaints.handle_publication_end({kA, kB, kC});
  EXPECT_FALSE(complaints.in_dispute(kA));
  EXPECT_EQ(complaints.count_by(kB), 2u);
}

TEST_F(ComplaintsTest, OfDamageNobodyIsCleared) {
  (void)complaints.handle_complaint(kB, kA, PeerFault::kCorrupt);
  for (int i = 0; i < 3; ++i) complaints.handle_publication_end({kA, kB});
  EXPECT_TRUE(complaints.in_dispute(kA) && complaints.in_dispute(kB));
}

TEST_F(ComplaintsTest, DiscreditedAuthorIsInDisputeAloneAfterwards) {
  (void)complaints.handle_complaint(kB, kA, PeerFault::kSlow);
  complaints.discredit(kB);
  EXPECT_FALSE(complaints.in_dispute(kA));
  EXPECT_TRUE(complaints.in_dispute(kB));
}

TEST_F(ComplaintsTest, LoseTheirWeightWithTheirNumber) {
  for (const PeerId parent : {kA, kB, kC}) {
    EXPECT_EQ(complaints.handle_complaint(kF, parent, PeerFault::kSlow), Weight::kCounts);
  }
  EXPECT_EQ(complaints.handle_complaint(kF, kD, PeerFault::kSlow), Weight::kNoVoice);
  EXPECT_FALSE(are_apart(complaints, kD, kF));
  for (std::uint32_t i = 0; i < Complaints::kRemembered; ++i) complaints.handle_publication_end();
  EXPECT_EQ(complaints.handle_complaint(kF, kD, PeerFault::kSlow), Weight::kCounts);
  EXPECT_EQ(complaints.handle_complaint(kF, kE, PeerFault::kSlow), Weight::kNoVoice);
}

TEST_F(ComplaintsTest, CountThoseThatNobodyShares) {
  (void)complaints.handle_complaint(kF, kA, PeerFault::kSlow);
  (void)complaints.handle_complaint(kF, kB, PeerFault::kSlow);
  EXPECT_EQ(complaints.unshared(kF), 2u);
  (void)complaints.handle_complaint(kE, kA, PeerFault::kSlow);
  EXPECT_EQ(complaints.unshared(kF), 1u);
  complaints.handle_publication_end();
  EXPECT_EQ(complaints.unshared(kF), 0u);
}

TEST_F(ComplaintsTest, OfOneThatIsDiscreditedConvictNobodyAndStillKeepItApart) {
  (void)complaints.handle_complaint(kF, kA, PeerFault::kSlow);
  complaints.discredit(kF);
  (void)complaints.handle_complaint(kE, kA, PeerFault::kSlow);
  EXPECT_FALSE(complaints.convicted(kA));
  EXPECT_TRUE(are_apart(complaints, kA, kF));
}

TEST_F(ComplaintsTest, AreForgottenAfterAWhile) {
  (void)complaints.handle_complaint(kB, kA, PeerFault::kSlow);
  for (std::uint32_t i = 0; i + 1 < Complaints::kRemembered; ++i) complaints.handle_publication_end();
  EXPECT_TRUE(are_apart(complaints, kA, kB));
  complaints.handle_publication_end();
  EXPECT_THAT(complaints.apart(), IsEmpty());
}

TEST_F(ComplaintsTest, OfOneThatIsGoneAreNoComplaints) {
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(complaints.handle_complaint(kB, kA, PeerFault::kClosed), Weight::kCounts);
    EXPECT_TRUE(complaints.closed_on_a_child(kA));
    complaints.handle_lost(kA);
  }
  EXPECT_FALSE(are_apart(complaints, kA, kB));
}

TEST(Complaints, OutliveARestart) {
  Complaints before, after;
  (void)before.handle_complaint(kB, kA, PeerFault::kCorrupt);
  before.handle_publication_end();
  (void)before.handle_complaint(kB, kC, PeerFault::kSlow);
  EXPECT_EQ(before.made_count(), 2u);
  after.restore(kB, before.record(kB));
  after.restore(kD, before.record(kD));
  EXPECT_TRUE(are_apart(after, kA, kB));
  EXPECT_EQ(after.count_by(kB), 2u);
  EXPECT_EQ(after.count_by(kD), 0u);
  (void)after.handle_complaint(kD, kA, PeerFault::kCorrupt);
  EXPECT_TRUE(after.convicted_of_corruption(kA)) << "the other one was said before the restart";
  EXPECT_EQ(after.handle_complaint(kB, kD, PeerFault::kSlow), Weight::kCounts);
  EXPECT_EQ(after.handle_complaint(kB, kE, PeerFault::kSlow), Weight::kNoVoice) << "a restart gives no new voice";
  for (std::uint32_t i = 1; i < Complaints::kRemembered; ++i) after.handle_publication_end();
  EXPECT_FALSE(are_apart(after, kA, kB)) << "its age counts on";
  EXPECT_TRUE(are_apart(after, kC, kB));
}

TEST_F(ComplaintsTest, WhatComesFromAFileIsBroughtIntoRange) {
  Complaints::Author author{.complaints = {}, .voice = 1000, .since_regained = 1000};
  for (std::uint32_t i = 0; i < 20; ++i) author.complaints.push_back({PeerId{i + 10}, PeerFault::kSlow, i, false});
  complaints.restore(kB, author);
  EXPECT_EQ(complaints.count_by(kB), Complaints::kVoiceMax + 1);
  EXPECT_EQ(complaints.record(kB).voice, Complaints::kVoiceMax);
}

}  // namespace
}  // namespace weightcast
