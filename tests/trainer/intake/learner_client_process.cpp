// A learner or a worker as a process that can be killed at any moment:
//   learner_client_process learner DIR         takes batches of four; every third step and the last are in DIR/state
//   learner_client_process worker DIR NAME     generates for the learner of DIR; DIR/NAME.sent lists what it sent
// SIGTERM ends either once all that it has is in its place.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "base/files/posix_file_system.h"
#include "base/steady_clock.h"
#include "tests/trainer/replay/replay_fixture.h"
#include "trainer/intake/intake.h"
#include "worker/learner/learner_client.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

ReplayOptions options() {
  ReplayOptions options = replay_options();
  options.max_staleness.reset();
  options.rollouts_max = 100'000;  // groups that a kill has left incomplete stay in the buffer
  return options;
}

std::atomic<bool> stopping = false;

int learner(const std::string& directory) {
  PosixFileSystem files;
  const std::filesystem::path state = directory + "/state";
  const bool resumed = exists(files, state);
  Json saved = {{"step", 0}, {"trained", Json::array()}};
  SharedReplayBuffer buffer;
  if (resumed) {
    saved = Json::parse(read_file(files, state, 1 << 30).value());
    buffer.set(
        ReplayBuffer::restore(options(), replay_rules(), saved["buffer"].get<std::string>(), steady_now()).value());
  } else {
    buffer.set(ReplayBuffer(options(), replay_rules()));
    buffer->handle_step(Version{1});
    buffer->handle_published(Version{1});
  }
  // The port of the first life, so that workers find the next ones.
  Endpoint listen{"127.0.0.1", 0};
  if (resumed) listen = Endpoint::parse(saved["address"].get<std::string>()).value();
  RolloutIntake intake(files, {.listen = listen, .directory = directory}, buffer);
  RunDescription run;
  run.group_size = options().group_size;
  if (const Status opened = intake.open(run, resumed); !opened.has_value()) {
    std::fprintf(stderr, "%s\n", opened.error().message().c_str());
    return 1;
  }
  saved["address"] = intake.endpoint().to_string();
  const auto checkpoint = [&] {
    std::uint64_t copy = 0;
    {
      const auto access = buffer.lock();
      copy = intake.handle_copied();
      saved["buffer"] = access->save(steady_now());
    }
    WC_CHECK(replace_file(files, state, saved.dump(), Synced::kBytesAndName).has_value());
    intake.handle_durable(copy);
  };
  checkpoint();
  while (!stopping) {
    static_cast<void>(intake.fill(steady_now(), buffer));
    if (buffer->supply() != Supply::kReady) {
      checkpoint();
      continue;
    }
    const std::vector<RolloutGroup> batch = buffer->take_batch(steady_now()).value();
    for (const RolloutGroup& group : batch) {
      for (const Trajectory& one : group.rollouts)
        saved["trained"].push_back(one.worker + " " + std::to_string(one.sequence));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // a step: the lost work of a kill
    saved["step"] = saved["step"].get<std::uint64_t>() + 1;
    if (saved["step"].get<std::uint64_t>() % 3 == 0) checkpoint();
  }
  checkpoint();
  return 0;
}

int worker(const std::string& directory, const std::string& name) {
  PosixFileSystem files;
  std::string address;
  for (std::ifstream in(directory + "/rollout_address"); !std::getline(in, address);) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    in = std::ifstream(directory + "/rollout_address");
  }
  auto client = LearnerClient::open(files, {.learner = Endpoint::parse(address).value(),
                                            .name = name,
                                            .spool = directory + "/" + name + ".spool",
                                            .call_time_max = std::chrono::seconds(2)});
  WC_CHECK(client.has_value());
  while (!(*client)->run().has_value()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const int sent = ::open((directory + "/" + name + ".sent").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  WC_CHECK(sent >= 0);
  while (!stopping) {
    const Result<StartedGroups> started = (*client)->start(2, options().group_size);
    if (!started.has_value()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      continue;
    }
    for (const StartedGroup& group : started->groups) {
      for (std::uint64_t i = 0; i < options().group_size; ++i) {
        const std::uint64_t sequence = group.first_sequence + i;
        WC_CHECK((*client)->send(rollout("", sequence, "g" + std::to_string(group.number), 1)).has_value());
        // In one write, so that a kill leaves no half of a line.
        const std::string line = name + " " + std::to_string(sequence) + "\n";
        WC_CHECK(::write(sent, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(15));
  }
  // What is acknowledged alone would have to be sent again by the next start, as the learner may just have been killed.
  for (int tries = 0; tries < 3000; ++tries) {
    const LearnerClientStats stats = (*client)->stats();
    if (stats.pending + stats.kept == 0) return 0;
    static_cast<void>((*client)->heartbeat({}));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return 1;
}

}  // namespace
}  // namespace weightcast

int main(int argc, char** argv) {
  ::signal(SIGTERM, [](int) { weightcast::stopping = true; });
  // Whoever starts this has it blocked, so that one that comes at once does not end it.
  sigset_t term;
  ::sigemptyset(&term);
  ::sigaddset(&term, SIGTERM);
  ::sigprocmask(SIG_UNBLOCK, &term, nullptr);
  const std::string role = argc >= 3 ? argv[1] : "";
  if (role == "learner") return weightcast::learner(argv[2]);
  if (role == "worker" && argc == 4) return weightcast::worker(argv[2], argv[3]);
  return 2;
}
