// Who can dial whom, as an origin hears it.
#include "transport/core/origin/members/reachability.h"

#include <gmock/gmock.h>

#include "origin_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
using testing::HasSubstr;
using testing::SizeIs;

struct ReachabilityTest : OriginCoreTest {
  void join_all(std::initializer_list<const char*> names) {
    for (const char* name : names) join(name);
    answer_probes(true);
  }
  static wire::Message probed(const Member& target, bool reached, const std::string& why = "") {
    wire::Message message;
    message.mutable_probed()->set_peer_id(target.id.value);
    message.mutable_probed()->set_reached(reached);
    message.mutable_probed()->mutable_address()->set_host(target.host);
    message.mutable_probed()->mutable_address()->set_port(target.port);
    message.mutable_probed()->set_reason(why);
    return message;
  }
  void cannot_reach(const std::string& dialler, const std::string& target, const std::string& why = "timed out") {
    tell(dialler, probed(member(target), false, why));
  }
  void reaches(const std::string& dialler, const std::string& target) { tell(dialler, probed(member(target), true)); }
  /// How often `dialler` was asked to dial `target`.
  std::size_t asked(const std::string& dialler, const std::string& target) {
    return std::size_t(std::ranges::count_if(heard_by(dialler, Kind::kProbe), [&](const wire::Message& message) {
      return message.probe().peer_id() == member(target).id.value;
    }));
  }
  void pass(Duration span) {
    for (const Instant until = now + span; now < until;) {
      const auto due = origin.poll_deadline();
      now = due ? std::clamp(*due, now, until) : until;
      origin.handle_timeout(now);
      run();
      if (!due || *due > until) break;
    }
  }
};

TEST_F(ReachabilityTest, EdgeThatCannotBeDialledIsNamedAndNotPlannedUntilADialSucceeds) {
  join_all({"a", "b", "c"});
  publish(1);
  ASSERT_EQ(parent_of("b"), member("a").id);
  warnings.clear();
  cannot_reach("b", "a");
  EXPECT_THAT(warnings, testing::ElementsAre("worker b cannot reach a at a:1: timed out"));
  EXPECT_NE(parent_of("b"), member("a").id) << "the plan in use is repaired";
  reaches("c", "a");
  for (const char* name : {"a", "b", "c"}) installed(name, 1);
  publish(2);
  EXPECT_NE(parent_of("b"), member("a").id);
  for (const char* name : {"a", "b", "c"}) installed(name, 2);
  EXPECT_EQ(origin.faults().complaints_of(member("a").id), 0u) << "nobody is blamed";
  reaches("b", "a");
  EXPECT_TRUE(member("b").cannot_reach.empty());
  publish(3);
  EXPECT_EQ(parent_of("b"), member("a").id);
}

TEST_F(ReachabilityTest, WhoCannotBeDialledIsToldByWhomAndWhy) {
  join_all({"a", "b", "c", "d"});
  const auto told = [&](const std::string& name) {
    wire::Message beat;
    beat.mutable_heartbeat();
    tell(name, beat);
    const auto heard = heard_by(name, Kind::kProbed);
    return heard.empty()                     ? std::string("nothing")
           : heard.back().probed().reached() ? ""
                                             : heard.back().probed().reason();
  };
  EXPECT_EQ(told("a"), "nothing");
  cannot_reach("b", "a");
  EXPECT_EQ(told("a"), "b cannot dial it at a:1: timed out");
  EXPECT_EQ(told("b"), "nothing");
  cannot_reach("c", "a");
  cannot_reach("d", "a");
  EXPECT_EQ(told("a"), "b, c and 1 more cannot dial it at a:1: timed out");
  for (const char* name : {"b", "c", "d"}) reaches(name, "a");
  EXPECT_EQ(told("a"), "");
  join("e");
  answer_probes(false);
  EXPECT_THAT(told("e"), testing::StartsWith("the origin cannot dial it at e:1: "));
}

TEST_F(ReachabilityTest, WhoCannotBeDialledPaysForTheLineThatSaysSo) {
  join("a");
  answer_probes(false);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("cannot reach worker a at a:1: no way there"));
  EXPECT_EQ(charged[0], "a") << "it may join again and again, and nobody speaks when its dial fails";
  EXPECT_EQ(member("a").cannot_dial, "no way there");
}

TEST_F(ReachabilityTest, OthersAreAskedAtOnceSoThatTheNextPlanKnowsAll) {
  join_all({"a", "b", "c", "d"});
  cannot_reach("b", "a");
  EXPECT_EQ(asked("c", "a"), 1u);
  EXPECT_EQ(asked("d", "a"), 1u);
  cannot_reach("c", "a", "connection refused");
  cannot_reach("d", "a", "no route to host");
  publish(1);
  EXPECT_FALSE(is_relay(*origin.publications().latest_plan(), member("a").id));
  EXPECT_THAT(warnings, Contains(HasSubstr("worker c cannot reach a at a:1: connection refused")));
  EXPECT_EQ(asked("b", "c"), 0u) << "nobody reaches a, so nothing is wrong with b";
}

TEST_F(ReachabilityTest, WhoCannotReachOneWhomOthersReachTriesTheRest) {
  join_all({"a", "b", "c", "d"});
  cannot_reach("b", "a");
  reaches("c", "a");
  EXPECT_EQ(asked("b", "c"), 1u);
  EXPECT_EQ(asked("b", "d"), 1u);
}

TEST_F(ReachabilityTest, ThiefWhoSaysThatItReachesNobodyHurtsItselfAlone) {
  join_all({"a", "b", "c", "thief", "d", "e"});
  publish(1);
  const std::vector<std::string> honest{"a", "b", "c", "d", "e"};
  for (int i = 0; i < 20; ++i) {
    for (const std::string& name : honest) cannot_reach("thief", name);
    for (const std::string& one : honest) {
      for (const std::string& other : honest) {
        if (one != other && asked(one, other) > 0) reaches(one, other);
      }
    }
  }
  for (const std::string& name : honest) {
    EXPECT_TRUE(member(name).can_relay()) << name;
    EXPECT_TRUE(member(name).cannot_reach.empty()) << name;
    installed(name, 1);
    EXPECT_LE(asked(name, "a"), 1u) << "however often it says so";
  }
  publish(2);
  EXPECT_EQ(parent_of("thief"), kOriginId);
  const Plan& plan = *origin.publications().latest_plan();
  const auto fed = std::ranges::count(plan.stripes[0].parents, kOriginId);
  EXPECT_LE(fed, 2) << "the others are one chain";
}

TEST_F(ReachabilityTest, OfEightThatOthersReachReachingNoneIsReachingNobody) {
  join_all({"a", "b", "c", "d", "e", "f", "g", "h", "blind"});
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) reaches(*name == 'a' ? "b" : "a", name);
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g"}) cannot_reach("blind", name);
  EXPECT_FALSE(member("blind").reaches_nobody);
  cannot_reach("blind", "h");
  EXPECT_TRUE(member("blind").reaches_nobody);
  reaches("blind", "c");
  EXPECT_FALSE(member("blind").reaches_nobody);
}

TEST_F(ReachabilityTest, ItIsTriedAgainAfterPausesThatGrow) {
  join_all({"a", "b"});
  cannot_reach("b", "a");
  const auto answers_in = [&](Duration span) {
    const std::size_t before = asked("b", "a");
    for (const Instant until = now + span; now < until;) {
      const std::size_t so_far = asked("b", "a");
      pass(std::min<Duration>(1s, until - now));
      now = std::max(now, Instant{}) + 1ms;
      if (asked("b", "a") > so_far) cannot_reach("b", "a");
    }
    return asked("b", "a") - before;
  };
  const std::size_t first_minute = answers_in(1min);
  EXPECT_GE(first_minute, 2u);
  EXPECT_LE(first_minute, 6u);
  EXPECT_LE(answers_in(1h), 12u);
  EXPECT_GE(answers_in(1h), 5u) << "but it never ends";
  EXPECT_EQ(std::ranges::count_if(warnings, [](const std::string& w) { return w.find("cannot reach") != w.npos; }), 1);
}

TEST_F(ReachabilityTest, LostAnswerIsNoEnd) {
  join_all({"a", "b"});
  cannot_reach("b", "a");
  pass(Reachability::kRetryMin + 1s);
  ASSERT_EQ(asked("b", "a"), 1u);
  pass(2min);
  EXPECT_GE(asked("b", "a"), 2u);
}

TEST_F(ReachabilityTest, WhoJoinsAgainIsTriedAtOnceAndOldNewsOfItsOldAddressDoNotCount) {
  join_all({"a", "b"});
  cannot_reach("b", "a");
  const wire::Message old_news = probed(member("a"), false, "timed out");
  reaches("b", "a");
  lose("a");
  wire::Message again = join_message("a");
  again.mutable_join()->mutable_listen()->set_port(77);
  join("a", again);
  tell("b", old_news);
  EXPECT_TRUE(member("b").cannot_reach.empty());
  cannot_reach("b", "a");
  lose("a");
  const std::size_t before = asked("b", "a");
  join("a", again);
  EXPECT_EQ(asked("b", "a"), before + 1);
}

TEST_F(ReachabilityTest, AsksForFewDialsAtATimeAndRemembersFewOfOneMember) {
  std::vector<std::string> names;
  for (int i = 0; i < 150; ++i) names.push_back("w" + std::to_string(i));
  for (const std::string& name : names) join(name);
  answer_probes(true);
  for (int i = 1; i < 150; ++i) cannot_reach("w0", names[std::size_t(i)]);
  EXPECT_THAT(member("w0").cannot_reach, SizeIs(kUnreachedMax));
  std::size_t all = 0;
  for (const std::string& name : names) all += heard_by(name, Kind::kProbe).size();
  EXPECT_LE(all, Reachability::kAskedMax);
}

TEST_F(ReachabilityTest, NothingIsKeptOfWhoIsForgotten) {
  join_all({"a", "b"});
  cannot_reach("b", "a");
  lose("a");
  ASSERT_TRUE(origin.forget_worker(now, "a").has_value());
  run();
  EXPECT_TRUE(member("b").cannot_reach.empty());
  cannot_reach("b", "b");
  pass(1h);
  lose("b");
  ASSERT_TRUE(origin.forget_worker(now, "b").has_value());
  pass(1h);
  EXPECT_TRUE(origin.members().all().empty());
}

}  // namespace
}  // namespace weightcast
