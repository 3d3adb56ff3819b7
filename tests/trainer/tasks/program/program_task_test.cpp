// Real processes: programs in Python, good and bad ones.
#include "trainer/tasks/program/open_task.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "base/steady_clock.h"
#include "tests/patch/temp_dir.h"
#include "trainer/tasks/episode.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
using testing::HasSubstr;

/// A program that counts an episode's steps down. The actions "die", "hang", "noise" and "long" make it misbehave.
constexpr std::string_view kCountdown = R"(
import os, sys, time
from weightcast.tasks import EpisodeTask, serve

class Episode:
    def reset(self, seed):
        self.left = 2 + seed % 2
        return f"{self.left} to go", {"pid": str(os.getpid())}
    def step(self, action):
        if action == "die": os._exit(7)
        if action == "hang": time.sleep(100)
        if action == "noise": os.write(out, b"Loading 100%\n")
        if action == "long": os.write(out, b"x" * (3 << 20))
        if action == "raise": raise ValueError("no such move")
        print("a task may print")
        self.left -= 1
        return f"{self.left} to go", 0.5, self.left == 0, self.left == 0

class Countdown(EpisodeTask):
    name = "countdown"
    metadata = ["pid"]
    def episode(self): return Episode()

out = os.dup(1)
serve(Countdown())
)";

class ProgramTaskTest : public testing::Test {
 protected:
  ProgramTaskTest() {
    settings_.command = "python3";
    settings_.environment = {std::string("PYTHONPATH=") + WEIGHTCAST_SOURCE "/python"};
    settings_.start_time_max = 60;
    settings_.call_time_max = 30;
    // A sandbox of root's is the user nobody, who has to read the program.
    std::filesystem::permissions(temp_.path(), std::filesystem::perms(0755));
  }

  void write(std::string_view text) {
    settings_.arguments = {temp_.file("task.py")};
    std::ofstream(settings_.arguments.front()) << text;
  }
  Result<std::unique_ptr<Task>> start(const TaskOptions& options = {}) {
    return open_task("program", options, "", settings_, [this](const std::string& what) {
      const std::lock_guard lock(mutex_);
      said_.push_back(what);
    });
  }
  std::vector<std::string> said() {
    const std::lock_guard lock(mutex_);
    return said_;
  }
  /// Whether the process ends, within the time that it is given. A host's first process may not wait for it.
  static bool ends(pid_t pid) {
    for (int i = 0; i < 5000; ++i) {
      std::string words;
      std::getline(std::ifstream(fmt::format("/proc/{}/stat", pid)), words);
      if (words.empty() || words.find(") Z ") != std::string::npos) return true;
      std::this_thread::sleep_for(2ms);
    }
    return false;
  }

  TempDir temp_{std::filesystem::current_path()};  // a sandbox has a /tmp of its own
  TaskProgramSettings settings_;
  std::mutex mutex_;
  std::vector<std::string> said_;
};

TEST_F(ProgramTaskTest, TheExampleIsATaskLikeAnyOther) {
  settings_.arguments = {WEIGHTCAST_SOURCE "/examples/task_letters.py"};
  const auto task = start();
  ASSERT_TRUE(task.has_value()) << task.error().message();
  EXPECT_EQ((*task)->name(), "program:letters@1");
  EXPECT_FALSE((*task)->prompt_count());
  const Prompt prompt = (*task)->prompt(9).value();
  EXPECT_EQ(prompt.messages, (std::vector<ChatMessage>{{"user", "b:"}}));
  EXPECT_EQ(prompt.tag, "letters/9");
  EXPECT_EQ((*task)->prompt(9).value().metadata, prompt.metadata);
  EXPECT_EQ((*task)->solution(prompt.metadata), "bbb");
  EXPECT_EQ((*task)->score(prompt.metadata, "bbb").value(), (Score{1, true}));
  EXPECT_EQ((*task)->score(prompt.metadata, "bxb!").value(), (Score{0.5, false}));
  // Metadata of others are an error of that score, and the process goes on.
  EXPECT_THAT((*task)->score({}, "bbb").error().message(), HasSubstr("it says: KeyError: 'letter'"));
  const auto environment = (*task)->make_environment();
  ASSERT_TRUE(environment->reset(1).has_value());
  EXPECT_TRUE(environment->step("bbb")->success);
  EXPECT_THAT(said(), testing::ElementsAre("the task's program letters@1 has started, in no sandbox"));
  // The learner's options reach it.
  EXPECT_THAT(start({{"alphabet", "xyz"}}).error().message(), HasSubstr("it was given alphabet"));
}

TEST_F(ProgramTaskTest, PlaysEpisodesSideBySide) {
  write(kCountdown);
  settings_.processes = 2;
  const auto task = start();
  ASSERT_TRUE(task.has_value()) << task.error().message();
  std::vector<std::unique_ptr<Environment>> environments;
  std::set<std::string> pids;
  for (std::uint64_t i = 0; i < 6; ++i) {
    environments.push_back((*task)->make_environment());
    const Prompt prompt = environments.back()->reset(i).value();
    EXPECT_EQ(prompt.messages[0].content, i % 2 == 0 ? "2 to go" : "3 to go");
    pids.insert(prompt.metadata.at("pid"));
  }
  EXPECT_EQ(pids.size(), 2u);
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < environments.size(); ++i) {
    threads.emplace_back([&environment = *environments[i], i] {
      for (std::uint64_t step = 0; step < 2 + i % 2; ++step) {
        const StepResult result = environment.step("on").value();
        EXPECT_EQ(result.reward, 0.5);
        EXPECT_EQ(result.done, step == 1 + i % 2);
        EXPECT_EQ(result.success, result.done);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ProgramTaskTest, ACrashCostsItsEpisodesAndNoMore) {
  write(kCountdown);
  const auto task = start();
  ASSERT_TRUE(task.has_value()) << task.error().message();
  Episode one([&] { return (*task)->make_environment(); }, {}), other([&] { return (*task)->make_environment(); }, {});
  const Prompt prompt = one.begin(steady_now(), 0).value();
  ASSERT_TRUE(other.begin(steady_now(), 0).has_value());
  ASSERT_TRUE(one.step(steady_now(), "die", 1).has_value());
  EXPECT_EQ(one.end(), EpisodeEnd::kFailed);
  EXPECT_THAT(one.failure(), HasSubstr("the task's program countdown@1: it ended (exit status 7)"));
  EXPECT_THAT(said(), Contains(HasSubstr("it ended (exit status 7); episodes that end with its process: 2")));
  // The other was played by that process, too.
  ASSERT_TRUE(other.step(steady_now(), "on", 1).has_value());
  EXPECT_EQ(other.end(), EpisodeEnd::kFailed);
  EXPECT_THAT(other.failure(), HasSubstr("the process that played this episode has ended"));
  // Both places go on with a new process.
  const Prompt again = one.begin(steady_now(), 0).value();
  EXPECT_NE(again.metadata.at("pid"), prompt.metadata.at("pid"));
  ASSERT_TRUE(one.step(steady_now(), "on", 1).has_value());
  ASSERT_TRUE(one.step(steady_now(), "on", 1).has_value());
  EXPECT_EQ(one.end(), EpisodeEnd::kDone);
  EXPECT_EQ(one.turn_rewards(), (std::vector<double>{0.5, 0.5}));
}

TEST_F(ProgramTaskTest, StopsWhatHangsOrSaysWhatItMustNot) {
  write(kCountdown);
  const std::vector<std::pair<std::string, std::string>> faults{
      {"hang", "it did not answer step within 5 s"},
      {"noise", "no JSON object; received 'Loading 100%'"},
      {"long", "it said a line of more than 1048576 bytes, which begins with 'xxx"}};
  Result<std::unique_ptr<Task>> task;
  for (const auto& [action, words] : faults) {
    settings_.call_time_max = action == "hang" ? 5 : 30;
    task = start();
    ASSERT_TRUE(task.has_value()) << task.error().message();
    const auto environment = (*task)->make_environment();
    const auto prompt = environment->reset(0);
    ASSERT_TRUE(prompt.has_value()) << prompt.error().message();
    const auto step = environment->step(action);
    ASSERT_FALSE(step.has_value()) << action;
    EXPECT_THAT(step.error().message(), HasSubstr(words));
    EXPECT_TRUE(ends(std::stoi(prompt->metadata.at("pid")))) << action;
    EXPECT_FALSE(environment->step("on").has_value());
  }
  // An exception of the task is none of these.
  const auto environment = (*task)->make_environment();
  const std::string pid = environment->reset(0).value().metadata.at("pid");
  EXPECT_THAT(environment->step("raise").error().message(), HasSubstr("it says: ValueError: no such move"));
  EXPECT_EQ(environment->reset(0).value().metadata.at("pid"), pid);
}

TEST_F(ProgramTaskTest, BeginsAgainWithinABound) {
  write(kCountdown);
  settings_.restarts_max = 2;
  const auto task = start();
  ASSERT_TRUE(task.has_value()) << task.error().message();
  const auto environment = (*task)->make_environment();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(environment->reset(0).has_value()) << i;
    ASSERT_FALSE(environment->step("die").has_value());
  }
  const auto last = environment->reset(0);
  ASSERT_FALSE(last.has_value());
  EXPECT_EQ(last.error().code, Errc::kBusy);
  EXPECT_THAT(last.error().message(), HasSubstr("it has begun again 2 times within an hour, and does no more: "));
  EXPECT_THAT(last.error().message(), HasSubstr("exit status 7"));
}

TEST_F(ProgramTaskTest, RefusesAtTheStartWhatIsNoTask) {
  settings_.command = "/nowhere/program";
  EXPECT_EQ(start().error().code, Errc::kNotFound);
  EXPECT_THAT(start().error().message(), HasSubstr("/nowhere/program"));
  settings_.command = "false";
  EXPECT_THAT(start().error().message(), HasSubstr("the task's program false: it ended (exit status 1)"));
  settings_.command = "sleep";
  settings_.arguments = {"100"};
  settings_.start_time_max = 0.2;
  EXPECT_THAT(start().error().message(), HasSubstr("it did not answer hello within 0.2 s"));
  settings_.start_time_max = 60;
  settings_.command = "sh";
  settings_.arguments = {temp_.file("task.sh")};
  std::ofstream(settings_.arguments.front()) << "read call\necho '{\"id\": 1, \"protocol\": 3}'\nread call\n";
  EXPECT_EQ(start().error().code, Errc::kUnsupported);
  std::ofstream(settings_.arguments.front()) << "echo Welcome\nread call\n";
  EXPECT_THAT(start().error().message(), HasSubstr("received 'Welcome'"));
  settings_.command = "";
  EXPECT_THAT(start().error().message(), HasSubstr("task_program.command is empty"));
}

TEST_F(ProgramTaskTest, AWorkersProgramIsTheLearners) {
  write(kCountdown);
  const auto open = [&](std::string_view name, std::string_view data = "") {
    return open_task(name, {}, data, settings_, [](const std::string&) {});
  };
  EXPECT_TRUE(open("program:countdown@1").has_value());
  EXPECT_THAT(open("program:countdown@2").error().message(),
              HasSubstr("the run's task is program:countdown@2, and the program of this host program:countdown@1"));
  EXPECT_THAT(open("program", "{}").error().message(), HasSubstr("task_data is set"));
  EXPECT_EQ((*open("arithmetic"))->name(), "arithmetic");
}

TEST_F(ProgramTaskTest, LeavesNoProcessBehind) {
  write(kCountdown);
  auto task = start();
  ASSERT_TRUE(task.has_value()) << task.error().message();
  const pid_t pid = std::stoi((*task)->prompt(0).value().metadata.at("pid"));
  EXPECT_EQ(::kill(pid, 0), 0);
  task->reset();
  EXPECT_TRUE(ends(pid));
}

TEST_F(ProgramTaskTest, ASandboxKeepsFilesFromBeingWritten) {
  const std::string outside = temp_.file("written");
  write(std::string(kCountdown)
            .replace(kCountdown.find("import os"), 0,
                     fmt::format(R"(
try: open("{}", "w").write("x")
except OSError: pass
)",
                                 outside)));
  settings_.sandbox.kind = SandboxKind::kBwrap;
  if (const auto task = start(); !task.has_value()) {
    // Here it cannot be had: that is refused where it was asked for, and said where it was not.
    EXPECT_EQ(task.error().code, Errc::kUnsupported) << task.error().message();
    settings_.sandbox.kind = SandboxKind::kAuto;
    ASSERT_TRUE(start().has_value());
    EXPECT_THAT(said(), Contains(HasSubstr("in no sandbox, as bwrap does not work: ")));
    EXPECT_TRUE(std::filesystem::exists(outside));
    return;
  }
  EXPECT_THAT(said(), Contains(HasSubstr("in the sandbox of bwrap")));
  EXPECT_FALSE(std::filesystem::exists(outside));
}

TEST_F(ProgramTaskTest, ASandboxHasNoSocketsKeysOrRoot) {
  const std::string state = temp_.file("state"), keys = temp_.file("keys");
  std::filesystem::create_directory(state);
  std::ofstream(keys) << "secret";
  // As a daemon's, in a directory that nobody was told of.
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string api = state + "/api.sock";
  ASSERT_LT(api.size(), sizeof address.sun_path);
  std::ranges::copy(api, address.sun_path);
  ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  write(fmt::format(R"(
import os, socket, sys
sys.path.insert(0, "{}")
from weightcast.tasks import Task, serve
def can(what):
    try: return bool(what())
    except OSError: return False
def connects():
    socket.socket(socket.AF_UNIX).connect("{}")
    return True
found = [can(connects), can(lambda: os.listdir("{}")), can(lambda: open("{}").read()), can(lambda: os.listdir("/dev/shm")),
         can(lambda: os.listdir("/run")), os.geteuid() == 0, can(lambda: socket.socket(socket.AF_UNIX)),
         can(lambda: open("/work-of-root", "w")),
         can(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)),
         can(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW))]
class Found(Task):
    name = "found"
    metadata = ["found"]
    def prompt(self, index): return str(found), dict(found=str(found))
    def score(self, metadata, response): return 0.0, False
a, b = socket.socketpair()
c, d = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
serve(Found())
)",
                    WEIGHTCAST_SOURCE "/python", api, state, keys));
  settings_.sandbox = {SandboxKind::kBwrap, {keys}};
  const auto task = start();
  if (!task.has_value() && task.error().message().find("user namespaces") != std::string::npos) {
    GTEST_SKIP() << task.error().message();
  }
  ASSERT_TRUE(task.has_value()) << task.error().message();
  EXPECT_EQ((*task)->prompt(0).value().messages[0].content,
            "[False, False, False, False, False, False, False, False, False, False]");
  ::close(listener);
}

TEST_F(ProgramTaskTest, ASandboxThatHidesTheProgramIsRefused) {
  write(kCountdown);
  settings_.sandbox = {SandboxKind::kBwrap, {settings_.arguments.front()}};
  const auto task = start();
  ASSERT_FALSE(task.has_value());
  EXPECT_EQ(task.error().code, Errc::kUnsupported) << task.error().message();
}

/// What has left the program's session, and what a killed learner leaves.
TEST_F(ProgramTaskTest, NothingThatItStartedOutlivesIt) {
  write(std::string(kCountdown).replace(kCountdown.find("out = os.dup(1)"), 0, R"(
import subprocess
child = subprocess.Popen(["sleep", "1000"], start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
Countdown.version = str(child.pid)
)"));
  auto task = start();
  ASSERT_TRUE(task.has_value()) << task.error().message();
  const std::string name((*task)->name());
  const pid_t pid = std::stoi(name.substr(name.find('@') + 1));
  ASSERT_EQ(::kill(pid, 0), 0);
  task->reset();
  EXPECT_TRUE(ends(pid));

  const pid_t learner = ::fork();
  if (learner == 0) {
    const auto another = start();
    const std::string its((*another)->name());
    std::ofstream(temp_.file("pid")) << its.substr(its.find('@') + 1) << std::flush;
    std::ofstream(temp_.file("ready"));
    ::pause();
  }
  while (!std::filesystem::exists(temp_.file("ready"))) std::this_thread::sleep_for(2ms);
  pid_t left = 0;
  std::ifstream(temp_.file("pid")) >> left;
  ASSERT_EQ(::kill(left, 0), 0);
  ::kill(learner, SIGKILL);
  ::waitpid(learner, nullptr, 0);
  EXPECT_TRUE(ends(left));
}

TEST_F(ProgramTaskTest, ShowsABoundedPartOfStderr) {
  write(std::string(kCountdown).replace(kCountdown.find("out = os.dup(1)"), 0, R"(
for i in range(64): os.write(2, b"x" * 65536)
)"));
  testing::internal::CaptureStderr();
  { ASSERT_TRUE(start().has_value()); }
  const std::string shown = testing::internal::GetCapturedStderr();
  EXPECT_LE(shown.size(), (std::size_t{1} << 20) + 200);
  EXPECT_THAT(shown, HasSubstr("says more on stderr"));
}

}  // namespace
}  // namespace weightcast
