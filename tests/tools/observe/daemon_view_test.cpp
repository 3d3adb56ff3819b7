#include "tools/observe/daemon_view.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/client/scripted_daemon.h"
#include "tests/patch/temp_dir.h"
#include "tests/transport/http/raw_client.h"
#include "tools/observe/operator_port.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::StartsWith;
using Json = nlohmann::json;

/// A view of a daemon that answers what the test wants, at a port of loopback.
class DaemonViewTest : public testing::Test {
 protected:
  ~DaemonViewTest() override {
    port_.reset();
    view_.reset();  // its connection's end is the daemon's
  }

  void start(const std::string& state_dir) {
    view_ = std::make_unique<DaemonView>(state_dir, "1.2.3");
    auto port = OperatorPort::start({.listen = {"127.0.0.1", 0}}, [this](HttpRequest request, HttpResponder to) {
      view_->handle(std::move(request), std::move(to));
    });
    ASSERT_TRUE(port.has_value());
    port_ = std::move(*port);
  }
  /// A fleet of `workers_` workers, at version `version_`.
  void play_fleet() {
    daemon_.play([this] {
      while (const auto asked = daemon_.receive()) {
        ++questions_;
        if (version_moves_ && asked->get<local::StatusRequest>() != nullptr) ++version_;
        daemon_.send(reply_to(*asked), asked->request_id);
      }
    });
    start(daemon_.state_dir());
  }
  [[nodiscard]] local::Message::Kind reply_to(const local::Message& asked) const {
    if (asked.get<local::StatusRequest>() != nullptr) {
      local::StatusReply status;
      status.latest_version = version_;
      status.last = true;
      for (int i = 0; i < workers_; ++i) {
        local::NodeStatus& node = status.nodes.emplace_back();
        node.name = "w" + std::to_string(i);
        node.role = "worker";
        node.version = version_;
        node.last_error = std::string(error_bytes_, 'e');
      }
      return status;
    }
    if (asked.get<local::VersionsRequest>() != nullptr) return local::VersionsReply{};
    if (asked.get<local::ReadyRequest>() != nullptr) {
      return local::ReadyReply{.ready = version_ > 1, .why = version_ > 1 ? "" : "nothing here yet"};
    }
    return error_reply(Errc::kNotAllowed, "this node is a worker");
  }
  [[nodiscard]] RawClient dial(int receive_bytes = 0) const { return RawClient(port_->endpoint().port, receive_bytes); }
  /// Of the events.
  [[nodiscard]] RawClient follow(int receive_bytes = 0) const {
    RawClient client = dial(receive_bytes);
    EXPECT_TRUE(client.say("GET /events HTTP/1.1\r\n\r\n"));
    return client;
  }
  std::string get(const std::string& path) {
    RawClient client = dial();
    EXPECT_TRUE(client.say("GET " + path + " HTTP/1.1\r\nConnection: close\r\n\r\n"));
    return client.hear_all();
  }
  /// The data of the next event of that name.
  static Json hear_event(RawClient& client, const std::string& name) {
    client.hear_until("event: " + name + "\ndata: ");
    const std::string line = client.hear_until("\n\n");
    return Json::parse(line, nullptr, false);
  }

  std::atomic<std::uint64_t> version_ = 1;
  std::atomic<bool> version_moves_ = false;  // with each question
  std::atomic<int> workers_ = 3;
  std::atomic<std::size_t> error_bytes_ = 0;
  std::atomic<int> questions_ = 0;
  ScriptedDaemon daemon_;
  std::unique_ptr<DaemonView> view_;
  std::unique_ptr<OperatorPort> port_;
};

TEST_F(DaemonViewTest, SaysThatNoDaemonRuns) {
  const TempDir empty;
  start(empty.path());
  const std::string answer = get("/status");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(answer, HasSubstr("no daemon runs there"));
  EXPECT_THAT(get("/healthz"), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(get("/elsewhere"), AllOf(StartsWith("HTTP/1.1 404"), HasSubstr("/healthz, /plan and /learner")));
}

TEST_F(DaemonViewTest, TellsTheStateAndWhetherTheNodeIsReady) {
  play_fleet();
  const std::string answer = get("/status");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  const Json status = Json::parse(answer.substr(answer.find("\r\n\r\n")), nullptr, false);
  ASSERT_TRUE(status.is_object()) << answer;
  EXPECT_EQ(status["nodes"].size(), 3u);
  EXPECT_EQ(status["publications"], Json::array()) << "a worker has no history";
  EXPECT_THAT(get("/healthz"), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(get("/healthz"), HasSubstr("nothing here yet"));
  version_ = 2;
  EXPECT_THAT(get("/healthz"), StartsWith("HTTP/1.1 200"));
}

TEST_F(DaemonViewTest, APublicationIsAskedForByItsNumber) {
  play_fleet();
  EXPECT_THAT(get("/publications/7"), HasSubstr("this node is a worker"));
  for (const char* path : {"/publications/", "/publications/0", "/publications/-1", "/publications/7x"}) {
    EXPECT_THAT(get(path), HasSubstr("N is a version's number")) << path;
  }
}

TEST_F(DaemonViewTest, FollowersHearTheStateAndThenWhatChanges) {
  play_fleet();
  RawClient first = follow();
  EXPECT_EQ(hear_event(first, "state")["latest_version"], 1);
  version_ = 2;
  const Json change = hear_event(first, "change");
  EXPECT_EQ(change["latest_version"], 2);
  ASSERT_EQ(change["nodes"].size(), 3u);
  EXPECT_EQ(change["nodes"][0], Json::parse(R"({"name": "w0", "role": "worker", "version": 2})"));
  // One that comes later begins with what the others have by now.
  RawClient second = follow();
  EXPECT_EQ(hear_event(second, "state")["latest_version"], 2);
  version_ = 3;
  EXPECT_EQ(hear_event(first, "change")["latest_version"], 3);
  EXPECT_EQ(hear_event(second, "change")["latest_version"], 3);
}

TEST_F(DaemonViewTest, WithoutFollowersTheDaemonIsNotAsked) {
  play_fleet();
  {
    RawClient follower = follow();
    hear_event(follower, "state");
    version_ = 2;
    hear_event(follower, "change");
  }
  // It is noticed with the next change that cannot be written.
  int before = 0;
  for (int quiet = 0, i = 0; quiet < 3; ++i) {
    ASSERT_LT(i, 200);
    version_ = version_ + 1;
    before = questions_;
    std::this_thread::sleep_for(300ms);
    quiet = questions_ == before ? quiet + 1 : 0;
  }
}

// Each change is 1 MB, which no socket's buffers take for long, and a client may take nothing for ten seconds.
TEST_F(DaemonViewTest, OneThatDoesNotReadIsDroppedAndKeepsNobodyWaiting) {
  workers_ = 100;
  error_bytes_ = 10'000;
  play_fleet();
  RawClient silent = follow(4096), reader = follow();
  hear_event(reader, "state");
  const auto until = std::chrono::steady_clock::now() + 20s;
  for (std::uint64_t version = 2; version < 12 || std::chrono::steady_clock::now() < until; ++version) {
    error_bytes_ = 10'000 + version;
    version_ = version;
    // The first may be of the errors alone.
    Json change;
    do {
      change = hear_event(reader, "change");
      ASSERT_TRUE(change.is_object());
    } while (change.value("latest_version", std::uint64_t{0}) < version);
    EXPECT_THAT(get("/healthz"), StartsWith("HTTP/1.1 200"));
  }
  EXPECT_TRUE(silent.ended());
}

/// Of this process, the double of the daemon included: a node's loop does as much for an answer.
double processor_s() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return double(time.tv_sec) + double(time.tv_nsec) / 1e9;
}

// All of them change each time that the daemon is asked.
TEST_F(DaemonViewTest, ToFollowAThousandWorkersCostsAHundredthOfACore) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer takes the processor time";
#endif
  workers_ = 1000;
  version_moves_ = true;
  play_fleet();
  RawClient follower = follow();
  hear_event(follower, "state");
  const double before = processor_s();
  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t bytes = 0;
  while (std::chrono::steady_clock::now() - begin < 10s) bytes += follower.hear_bytes();
  const double wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double share = (processor_s() - before) / wall_s;
  EXPECT_GT(bytes, 100'000u) << "changes come";
  EXPECT_LT(share, 0.015);
  RecordProperty("share_of_a_core", std::to_string(share));
  std::printf("%.2f %% of a core, %.0f kB/s to a follower\n", 100 * share, double(bytes) / wall_s / 1e3);
}

TEST_F(DaemonViewTest, AScrapeOfAThousandWorkersTakesMilliseconds) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer takes the processor time";
#endif
  workers_ = 1000;
  play_fleet();
  EXPECT_THAT(get("/metrics"), HasSubstr("weightcast_build_info{version=\"1.2.3\""));
  constexpr int kScrapes = 20;
  const double before = processor_s();
  for (int i = 0; i < kScrapes; ++i) {
    std::this_thread::sleep_for(250ms);  // longer than a state is kept
    EXPECT_THAT(get("/metrics"), StartsWith("HTTP/1.1 200"));
  }
  const double each_s = (processor_s() - before) / kScrapes;
  EXPECT_LT(each_s, 0.02);
  std::printf("%.2f ms of processor time a scrape\n", 1e3 * each_s);
}

TEST_F(DaemonViewTest, ADaemonThatDoesNotAnswerHoldsNobodyForLong) {
  start(daemon_.state_dir());  // it listens, and nobody accepts
  RawClient waiting = dial();
  ASSERT_TRUE(waiting.say("GET /status HTTP/1.1\r\nConnection: close\r\n\r\n"));
  EXPECT_THAT(waiting.hear_all(), StartsWith("HTTP/1.1 503"));
  RawClient again = dial();
  ASSERT_TRUE(again.say("GET /status HTTP/1.1\r\n\r\n"));
  std::this_thread::sleep_for(50ms);
  const auto before = std::chrono::steady_clock::now();
  port_.reset();
  view_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - before, 4s) << "it does not wait for the answer";
}

}  // namespace
}  // namespace weightcast
