#include "tools/observe/otlp_spans.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace weightcast {
namespace {

using Json = nlohmann::json;

local::HistoryReply history() {
  local::HistoryReply history;
  local::PublicationEntry& entry = history.publications.emplace_back();
  entry.version = 7;
  entry.published_unix_ms = 1'700'000'000'123;
  entry.state = "complete";
  entry.elapsed_s = 2;
  entry.take_over_s = 0.25;
  entry.take_over_at_s = 0;
  entry.t100_s = 1.5;
  local::WorkerCourse& course = history.workers.emplace_back();
  course.name = "a";
  course.told_s = 0.5;
  course.has_phases = true;
  course.receiving_s = 0.75;
  course.bytes = 4096;
  course.switching_s = 0.25;
  course.installed_s = 1.5;
  local::WorkerCourse& failed = history.workers.emplace_back();
  failed.name = "b";
  failed.told_s = 0.5;
  failed.failure = "the disk is full";
  history.workers_total = 2;
  return history;
}

Json span_of(const Json& request, const std::string& name) {
  for (const Json& span : request["resourceSpans"][0]["scopeSpans"][0]["spans"]) {
    if (span["name"] == name) return span;
  }
  return {};
}

TEST(OtlpSpans, APublicationIsTheRootOfItsWorkers) {
  const Json request = otlp_spans(history());
  const Json root = span_of(request, "weightcast publication"), worker = span_of(request, "a"),
             transfer = span_of(request, "transfer");
  EXPECT_FALSE(root.contains("parentSpanId"));
  EXPECT_EQ(root["startTimeUnixNano"], "1700000000123000000");
  EXPECT_EQ(root["endTimeUnixNano"], "1700000002123000000");
  EXPECT_EQ(root["events"][0], Json({{"timeUnixNano", "1700000001623000000"}, {"name", "T_bcast(1.0)"}}));
  EXPECT_EQ(span_of(request, "take")["parentSpanId"], root["spanId"]);
  EXPECT_EQ(worker["parentSpanId"], root["spanId"]);
  EXPECT_EQ(worker["startTimeUnixNano"], "1700000000623000000");
  EXPECT_EQ(worker["endTimeUnixNano"], "1700000001623000000");
  EXPECT_EQ(transfer["parentSpanId"], worker["spanId"]);
  EXPECT_EQ(transfer["traceId"], root["traceId"]);
  EXPECT_THAT(transfer["attributes"],
              testing::Contains(Json{{"key", "weightcast.bytes"}, {"value", {{"intValue", "4096"}}}}));
}

TEST(OtlpSpans, AWorkerThatFailedSaysSo) {
  const Json failed = span_of(otlp_spans(history()), "b");
  EXPECT_EQ(failed["status"], Json({{"code", 2}, {"message", "failed: the disk is full"}}));
}

TEST(OtlpSpans, ASecondExportIsTheSame) {
  EXPECT_EQ(otlp_spans(history()), otlp_spans(history()));
  local::HistoryReply later = history();
  later.publications.front().version = 8;
  EXPECT_NE(span_of(otlp_spans(later), "a")["traceId"], span_of(otlp_spans(history()), "a")["traceId"]);
}

}  // namespace
}  // namespace weightcast
