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
using testing::HasSubstr;

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

}  // namespace
}  // namespace weightcast
