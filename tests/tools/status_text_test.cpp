// What `status`, `history` and `versions` print, line by line.
#include "tools/status_text.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/core/origin/history/slowest_worker.h"
#include "transport/core/origin/members/membership.h"

namespace weightcast {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json node(const std::string& name, const std::string& role) {
  return {{"name", name},
          {"role", role},
          {"version", 7},
          {"children", json::array()},
          {"score", 0},
          {"standing", ""},
          {"state", "idle"},
          {"address", "10.0.0.1:7400"},
          {"receiving_version", 0},
          {"chunks_verified", 0},
          {"chunks_total", 0},
          {"receive_bytes_per_s", 0},
          {"payload", ""},
          {"payload_bytes", 0},
          {"keys_expire_unix_s", 0},
          {"earlier_run", false},
          {"protocol", 0},
          {"offence", ""},
          {"complaints", 0},
          {"complains", 0},
          {"cannot_reach", json::array()},
          {"last_error", ""}};
}

json status_of(const json& nodes) {
  return {{"latest_version", 7}, {"run", ""}, {"topology", ""}, {"predicted_s", 0}, {"nodes", nodes}};
}

TEST(StatusText, IsATableOfTheTree) {
  json origin = node("trainer", "origin"), a = node("gpu-1", "worker"), b = node("gpu-2", "worker");
  origin["children"] = {"gpu-1"};
  a.update({{"children", {"gpu-2"}},
            {"payload", "direct"},
            {"payload_bytes", 1'258'291},
            {"score", 0.98},
            {"standing", "seed"}});
  b.update({{"version", 6},
            {"state", "receiving"},
            {"receiving_version", 7},
            {"chunks_verified", 45},
            {"chunks_total", 100},
            {"receive_bytes_per_s", 12.5e6},
            {"standing", "tail"},
            {"complaints", 2},
            {"keys_expire_unix_s", 86'400},
            {"cannot_reach", {{{"name", "gpu-1"}, {"address", "10.0.0.1:7400"}, {"why", "timed\nout"}}}},
            {"last_error", "no\nroom"}});
  const json status = {
      {"latest_version", 7}, {"run", "00ab"}, {"topology", "chain"}, {"predicted_s", 4.4}, {"nodes", {origin, a, b}}};
  EXPECT_EQ(
      status_text(status, 1),
      "latest version 7, run 00ab, chain (predicted 4.40 s)\n"
      "NODE         ROLE    ADDRESS        VERSION  STATE      RECEIVING                CAME BY         SCORE  "
      "STANDING\n"
      "trainer      origin  10.0.0.1:7400        7  idle\n"
      "  > gpu-1    worker  10.0.0.1:7400        7  idle                                direct 1.2 MiB   0.98  seed\n"
      "    > gpu-2  worker  10.0.0.1:7400        6  receiving  45 % of 7 at 100 Mbit/s                         tail    "
      "  ! its keys expire on 1970-01-02 00:00 UTC  ! 2 complain of it  ! no\\nroom\n"
      "! gpu-2 cannot reach gpu-1 at 10.0.0.1:7400: timed\\nout\n");
}

TEST(StatusText, SaysWhereTheVersionsOfTheNodeThatWasAskedLie) {
  json asked = node("gpu-1", "worker");
  asked.update({{"versions_in", "memory"}, {"versions_in_why", "it\nfits"}, {"disk_bytes_written", 3'650'722'201}});
  const json status = status_of({node("trainer", "origin"), asked});
  EXPECT_THAT(
      status_text(status, 1),
      testing::StartsWith("latest version 7; versions here are in memory (it\\nfits), 3.40 GiB written to disks\n"));
}

TEST(StatusText, SaysWhatCameFromAnArchiveAndWhyNothingComes) {
  json some = node("gpu-1", "worker"), none = node("gpu-2", "worker");
  some.update({{"archive_bytes", 3'650'722'201}, {"archive_trouble", ""}});
  none.update({{"archive_bytes", 0}, {"archive_trouble", "no such\nobject"}});
  const json status = status_of({some, none});
  EXPECT_THAT(status_text(status, 1), testing::EndsWith("gpu-1: 3.40 GiB came from the archive\n"
                                                        "gpu-2: 0 B came from the archive; no such\\nobject\n"));
}

TEST(StatusText, SaysWhoIsOfAnOlderRelease) {
  json origin = node("trainer", "origin"), old = node("gpu-1", "worker"), lost = node("gpu-2", "worker");
  origin["protocol"] = 8, old["protocol"] = 7;
  const json status = status_of({origin, old, lost});
  const std::string text = status_text(status, 1);
  EXPECT_THAT(text, HasSubstr("  it speaks protocol 7, others 8\n"));
  EXPECT_EQ(text.find("it speaks"), text.rfind("it speaks")) << "of who has not joined nothing is known";
}

// A download that is over has no share of its chunks, whatever was said of it last.
TEST(StatusText, ShowsNoProgressOfWhatIsOver) {
  json one = node("gpu-1", "worker");
  one.update({{"chunks_verified", 45}, {"chunks_total", 100}});
  const json status = status_of(json::array({one}));
  EXPECT_EQ(status_text(status, 1).find('%'), std::string::npos);
}

TEST(StatusText, ExplainsEachWordThatItUses) {
  const auto expect_words = [](const std::vector<std::string_view>& words, const std::string& help) {
    for (const std::string_view word : words) EXPECT_THAT(help, HasSubstr(fmt::format("\n  {}  ", word))) << word;
  };
  expect_words({kWords<MemberState>.begin(), kWords<MemberState>.end()}, status_words());
  expect_words({kWords<CatchUpPath>.begin() + 1, kWords<CatchUpPath>.end()},
               status_words());  // what is not known is said by no word
  expect_words({kWords<Standing>.begin(), kWords<Standing>.end()}, status_words());
  expect_words({"origin", "worker", "dialling", "patch", "leaf", "unreachable"}, status_words());
  expect_words({kWords<PublicationRecord::End>.begin(), kWords<PublicationRecord::End>.end()}, history_words());
  expect_words({kWords<SlowCause>.begin(), kWords<SlowCause>.end()}, history_words());
  expect_words({"WHOLE", "PAYLOAD", "SENT", "WORKERS", "T_BCAST", "PREDICTED"}, history_words());
  expect_words({"BY", "TOLD", "WAITED", "ASKED", "RECEIVED", "STORED", "APPLIED", "SWITCHED", "ENGINE", "INSTALLED",
                "BYTES", "FED BY"},
               history_words());
}

json publication() {
  return {{"version", 7},
          {"state", "complete"},
          {"kind", "patch"},
          {"snapshot_bytes", 62'914'560},
          {"payload_bytes", 1'258'291},
          {"sent_bytes", 3'774'873},
          {"t50_s", 3.1},
          {"t90_s", 4.2},
          {"t100_s", 4.521},
          {"predicted_s", 4.4},
          {"topology", "chain"},
          {"workers", 26},
          {"installed", 26},
          {"take_over_s", 0.21},
          {"encode_s", 0.35},
          {"pack_s", 0},
          {"elapsed_s", 4.521},
          {"slowest", "gpu-9"},
          {"cause", "parent"},
          {"why", "it waited for its parent gpu-4; gpu-4: its link brought 1.2 MiB/s from trainer"}};
}

TEST(HistoryText, IsALineForEachPublication) {
  json late = publication();
  late.update({{"version", 12},
               {"state", "under way"},
               {"kind", "full"},
               {"payload_bytes", 62'914'560},
               {"t100_s", nullptr},
               {"predicted_s", 0},
               {"installed", 3},
               {"slowest", "gpu-1"},
               {"why", "it has 45 % of it"}});
  EXPECT_EQ(
      history_text({{"publications", {publication(), late}}, {"workers", json::array()}, {"workers_total", 0}}),
      "VERSION  STATE         WHOLE        PAYLOAD     SENT  WORKERS  T_BCAST  PREDICTED  SLOWEST AND WHY\n"
      "      7  complete   60.0 MiB  1.2 MiB patch  3.6 MiB    26/26     4.52       4.40  gpu-9: it waited for its "
      "parent gpu-4; gpu-4: its link brought 1.2 MiB/s from trainer\n"
      "     12  under way  60.0 MiB       60.0 MiB  3.6 MiB     3/26        -          -  gpu-1: it has 45 % of it\n");
}

TEST(PublicationText, HasAWorkerALineWithItsPhases) {
  const json phases = {{"waiting_s", 0.1},       {"asking_s", 0.012}, {"receiving_s", 3.6},   {"storing_s", 0.02},
                       {"applying_s", 0.3},      {"switching_s", 0},  {"disk_behind_s", 0.5}, {"interrupted_s", 1.25},
                       {"given_up_s", 0.05},     {"parents_left", 2}, {"bytes", 1'258'291},   {"fed_by", "gpu-4"},
                       {"fed_bytes", 1'000'000}, {"engine_s", 0.7}};
  const json a = {{"name", "gpu-9"},     {"payload", "patch"}, {"joined_s", 1.5}, {"told_s", 0.4},
                  {"installed_s", 4.52}, {"failure", ""},      {"phases", phases}};
  const json b = {{"name", "gpu-10"},       {"payload", "full"},       {"joined_s", nullptr}, {"told_s", 0.4},
                  {"installed_s", nullptr}, {"failure", "disk\nfull"}, {"phases", nullptr}};
  EXPECT_EQ(
      publication_text({{"publications", {publication()}}, {"workers", {b, a}}, {"workers_total", 5}}),
      "version 7: complete, at 26 of 26 workers; T_bcast 4.52 s, predicted 4.40 s\n"
      "60.0 MiB whole, 1.2 MiB patch to most workers, 3.6 MiB sent by the origin; taken over in 0.21 s, encoded "
      "in 0.35 "
      "s, packed in 0.00 s\n"
      "slowest: gpu-9: it waited for its parent gpu-4; gpu-4: its link brought 1.2 MiB/s from trainer\n"
      "WORKER  BY     TOLD  WAITED  ASKED  RECEIVED  STORED  APPLIED  SWITCHED  ENGINE  INSTALLED    BYTES  FED BY\n"
      "gpu-10  full   0.40                                                                      -                   ! "
      "disk\\nfull\n"
      "gpu-9   patch  0.40    0.10   0.01      3.60    0.02     0.30      0.00    0.70       4.52  1.2 MiB  gpu-4   "
      "joined at 1.50 "
      "s  0.05 s on a payload that it gave up  left 2 parents, 1.25 s without chunks  0.50 s behind its disk\n"
      "and 3 others, which had it earlier\n");
}

// Of a fleet of which more lack the version than one reply has.
TEST(PublicationText, DoesNotSayOfThoseLeftOutThatTheyHaveIt) {
  const json lacks = {{"name", "gpu-1"},        {"payload", "full"}, {"joined_s", nullptr}, {"told_s", 0.4},
                      {"installed_s", nullptr}, {"failure", ""},     {"phases", nullptr}};
  const std::string text =
      publication_text({{"publications", {publication()}}, {"workers", {lacks}}, {"workers_total", 5}});
  EXPECT_THAT(text, testing::EndsWith("\nand 4 others\n"));
}

TEST(VersionsText, IsALineForEach) {
  const json versions = {{"versions",
                          {{{"current", true},
                            {"version", 7},
                            {"kind", "patch"},
                            {"snapshot_bytes", 62'914'560},
                            {"digest", "ab12"},
                            {"path", "/var/lib/weightcast/versions/000000000007"},
                            {"durable", false}}}}};
  EXPECT_EQ(versions_text(versions),
            "   VERSION  CAME BY     BYTES  DIGEST  DIRECTORY\n"
            "*        7  patch    60.0 MiB  ab12    /var/lib/weightcast/versions/000000000007  (not synced)\n");
  EXPECT_EQ(versions_text({{"versions", json::array()}}), "no version is here yet\n");
}

}  // namespace
}  // namespace weightcast
