// What commands print for a person: each says what it did, in words.
#include <gmock/gmock.h>

#include "tests/e2e/fleet/cluster.h"

namespace weightcast {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::StartsWith;

struct TextTest : testing::Test {
  Cluster cluster;

  /// What a command that succeeds prints.
  std::string text(const Cluster::Flags& words) {
    const Ran ran = cluster.run(words);
    EXPECT_EQ(ran.status, 0) << words.front() << ": " << ran.err;
    return ran.out;
  }
  /// Where the version in use is.
  std::string in_use(const std::string& node) {
    return std::filesystem::canonical(cluster.state(node) + "/current").string();
  }
  std::string file(const std::string& name) { return cluster.temp().file(name); }
};

TEST_F(TextTest, OfCommandsThatAskADaemon) {
  cluster.start_fleet({"w"});
  const std::string snapshot = write_snapshot(file("snapshot"), 100'000, 1);
  const std::string origin = cluster.state("origin"), worker = cluster.state("w");
  EXPECT_THAT(text({"publish", snapshot, "--version", "7", "--wait", "1", "--state", origin}),
              AllOf(HasSubstr("version 7 (full"), HasSubstr("1 of 1 workers installed"), HasSubstr("T_bcast(0.9)")));
  EXPECT_THAT(text({"status", "--state", origin}),
              AllOf(HasSubstr("latest version 7"), HasSubstr("NODE "), ContainsRegex("origin +origin +[^ ]+ +7 +idle"),
                    ContainsRegex("> w +worker +[^ ]+ +7 +idle")));
  EXPECT_THAT(text({"status", "--state", worker}), ContainsRegex("w +worker +[^ ]+ +7 +idle"));
  EXPECT_THAT(text({"history", "--state", origin}),
              AllOf(StartsWith("VERSION  STATE"), ContainsRegex("7  complete .* 1/1 +[0-9.]+ .*  w: [a-z]+")));
  EXPECT_THAT(text({"status", "--version", "7", "--state", origin}),
              AllOf(StartsWith("version 7: complete, at 1 of 1 workers; T_bcast "), HasSubstr("\nslowest: w: "),
                    ContainsRegex("w +full +[0-9.]+ +0.00 .* origin")));
  EXPECT_THAT(cluster.run({"status", "--version", "8", "--state", origin}).err,
              HasSubstr("version 8: this origin remembers versions 7 to 7"));
  EXPECT_THAT(cluster.run({"history", "--state", worker}).err, HasSubstr("the origin remembers publications"));
  EXPECT_THAT(text({"versions", "--state", worker}),
              AllOf(StartsWith("   VERSION  CAME BY"), ContainsRegex("\n\\* +7  full"), HasSubstr(in_use("w"))));
  EXPECT_THAT(text({"versions", "--state", origin}),
              AllOf(ContainsRegex("\n\\* +7  full"), HasSubstr(in_use("origin"))));
  EXPECT_THAT(text({"path", "--state", worker}), StartsWith(in_use("w")));
}

TEST_F(TextTest, OfVersionsThatAreProven) {
  const ClusterKeys keys;
  cluster.use_keys(keys);
  cluster.start_fleet({"w"});
  const std::string snapshot = write_snapshot(file("snapshot"), 100'000, 1);
  text({"publish", snapshot, "--version", "7", "--wait", "1", "--state", cluster.state("origin")});
  EXPECT_THAT(
      text({"verify", cluster.state("w"), "--keys", keys.file_of("w")}),
      AllOf(StartsWith(in_use("w") + ": proven\n"),
            ContainsRegex("in 1 files are version 7 of run [^ ,]+, as origin [^ ]+ signed it, by SHA-256"),
            ContainsRegex(
                "published [0-9-]+ [0-9:]+ UTC; signing certificate .+ of cluster .+, valid until 20.+ UTC\n$")));
}

TEST_F(TextTest, OfCommandsThatMakeKeys) {
  const std::string keys = file("keys");
  EXPECT_THAT(text({"keys", "init", "--dir", keys}), AllOf(HasSubstr(keys + "/origin.pem"), HasSubstr("next")));
  EXPECT_THAT(text({"keys", "issue", "w", "--dir", keys}),
              AllOf(HasSubstr(keys + "/workers/w.pem"), HasSubstr("for w")));
  EXPECT_THAT(
      text({"keys", "list", "--dir", keys}),
      AllOf(HasSubstr("cluster "), ContainsRegex("origin +origin .*valid"), ContainsRegex("w +worker .*valid")));
  EXPECT_THAT(text({"keys", "token", "--name", "x", "--dir", keys}), ContainsRegex("^[^ \n]+\n$"));
  EXPECT_THAT(text({"keys", "revoke", "w", "--dir", keys}), HasSubstr("w is revoked"));
  EXPECT_THAT(text({"keys", "list", "--dir", keys}),
              AllOf(ContainsRegex("w +worker .*revoked"), ContainsRegex("w +worker     20"),
                    ContainsRegex("enrolment +enrolment  20")));
  EXPECT_THAT(text({"keys", "rotate", "--dir", keys}), HasSubstr("'weightcast reload' has a running origin take it"));
  EXPECT_THAT(text({"keys", "list", "--dir", keys}),
              AllOf(ContainsRegex("origin +signing .*replaced"), ContainsRegex("origin +signing .*valid, current\n")));
}

TEST_F(TextTest, OfCommandsOnFiles) {
  const std::string older = write_snapshot(file("older.safetensors"), 50'000, 1);
  const std::string newer = write_snapshot(file("newer.safetensors"), 50'000, 2);
  const std::string patch = file("patch");
  EXPECT_THAT(text({"patch", "make", older, newer, "-o", patch}), AllOf(HasSubstr(patch), HasSubstr("cells changed")));
  EXPECT_THAT(text({"patch", "inspect", patch}), AllOf(HasSubstr("cells changed"), HasSubstr("weight ")));
  EXPECT_THAT(cluster.run({"patch", "inspect", older}).err,
              HasSubstr(older + ": patch head: these bytes are no patch"));
  EXPECT_THAT(text({"patch", "apply", older, patch, "-o", file("made.safetensors")}), HasSubstr("digest "));
  EXPECT_THAT(text({"patch", "export", older, newer, "--format", "hf-sparse", "-o", file("delta.safetensors")}),
              HasSubstr("1 of 1 tensors changed"));
  EXPECT_THAT(text({"patch", "import", older, file("delta.safetensors"), "--format", "hf-sparse", "-o",
                    file("imported.safetensors")}),
              ContainsRegex("^" + file("imported.safetensors") + ": version [0-9]+, [0-9]+ elements changed\n$"));
  EXPECT_EQ(read_file(file("imported.safetensors")), read_file(newer));
  EXPECT_THAT(text({"simulate", "--workers", "3", "--size", "1MiB", "--uplink", "300mbit", "--peer", "100mbit"}),
              AllOf(HasSubstr("topology"), HasSubstr("1.0 MiB")));
}

TEST_F(TextTest, OfHelpAndVersion) {
  EXPECT_THAT(text({"--version"}), ContainsRegex("^[0-9]+\\.[0-9]+\\.[0-9]+\n$"));
  EXPECT_THAT(text({"--help"}), AllOf(HasSubstr("publish"), HasSubstr("exec")));
  EXPECT_THAT(text({"status", "--help"}), AllOf(HasSubstr("rollout-only  feeds nobody"), HasSubstr("WAITED")));
  EXPECT_THAT(text({"history", "--help"}), HasSubstr("superseded    a newer version came first"));
}

TEST_F(TextTest, OfAWordThatIsNoCommand) {
  EXPECT_THAT(cluster.run({"publsih", "x"}),
              Exits(2, "'publsih' is no command; the nearest is 'publish' (all: daemon, "));
  EXPECT_THAT(cluster.run({"keys", "isue", "w"}), Exits(2, "'isue' is no command of 'keys'; the nearest is 'issue'"));
}

}  // namespace
}  // namespace weightcast
