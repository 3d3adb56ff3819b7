// The learner's and the engine's configurations of deploy/, as deploy_test.cpp does the daemons'.
#include <gmock/gmock.h>

#include <filesystem>
#include <map>

#include "tests/e2e/fleet/deploy_files.h"
#include "tests/e2e/fleet/process.h"
#include "tests/patch/temp_dir.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(DeployTest, LearnerAndEngineTakeTheirConfigurations) {
  const TempDir temp;
  const std::map<std::string, std::string> programs{{"weightcast-train", WEIGHTCAST_TRAIN},
                                                    {"weightcast-engine", WEIGHTCAST_WORKER}};
  for (const std::string name : {"learner", "engine"}) {
    std::vector<std::string> words = arguments_of(read_file(deploy_file("weightcast-" + name + ".service")));
    words.front() = programs.at(fs::path(words.front()).filename());
    words.back() = deploy_file(fs::path(words.back()).filename());
    words.push_back("--print-config");
    EXPECT_THAT(run_program(words, temp.path()), Prints(HasSubstr("keys")));
  }
  EXPECT_THAT(run_program({WEIGHTCAST_TRAIN, "plan", "--pool", deploy_file("pool.json")}, temp.path()), Exits(0));
}

// A unit with PrivateDevices has no GPU; one with ProtectClock has those alone that it names.
TEST(DeployTest, TheLearnersUnitReachesGpusAndNoOtherDoes) {
  const std::string learner = read_file(deploy_file("weightcast-learner.service"));
  EXPECT_THAT(learner, AllOf(Not(HasSubstr("\nPrivateDevices=")),
                             HasSubstr("\nDevicePolicy=closed\nDeviceAllow=char-nvidia* rw\n")));
  for (const std::string name : {"origin", "worker", "engine"}) {
    EXPECT_THAT(read_file(deploy_file("weightcast-" + name + ".service")), HasSubstr("\nPrivateDevices=yes\n"));
  }
}

}  // namespace
}  // namespace weightcast
