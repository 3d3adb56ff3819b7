#include "tools/observe/publication_trace.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json_of.h"

namespace weightcast {
namespace {

using local::PublicationEntry;
using local::WorkerCourse;
using Json = nlohmann::json;

constexpr int kOrigin = 1, kWorkers = 2;

double micros(double seconds) { return std::round(seconds * 1e6); }

class Trace {
 public:
  void name_process(int process, const std::string& name) {
    add({{"ph", "M"}, {"name", "process_name"}, {"pid", process}, {"args", {{"name", name}}}});
    add({{"ph", "M"}, {"name", "process_sort_index"}, {"pid", process}, {"args", {{"sort_index", process}}}});
  }
  void name_thread(int process, int thread, const std::string& name) {
    add({{"ph", "M"}, {"name", "thread_name"}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}});
    add({{"ph", "M"},
         {"name", "thread_sort_index"},
         {"pid", process},
         {"tid", thread},
         {"args", {{"sort_index", thread}}}});
  }
  void slice(int process, int thread, const char* name, double begin_s, double lasted_s, Json arguments = {}) {
    Json event{{"ph", "X"},     {"name", name},          {"cat", "publication"},   {"pid", process},
               {"tid", thread}, {"ts", micros(begin_s)}, {"dur", micros(lasted_s)}};
    if (!arguments.empty()) event["args"] = std::move(arguments);
    add(std::move(event));
  }
  void mark(int process, int thread, const std::string& name, double at_s) {
    add({{"ph", "i"},
         {"name", name},
         {"cat", "publication"},
         {"pid", process},
         {"tid", thread},
         {"ts", micros(at_s)},
         {"s", "t"}});
  }
  void arrow(int from, double from_s, int to, double to_s) {
    ++arrows_;
    const auto end = [&](const char* phase, int thread, double at_s) {
      return Json{{"ph", phase},     {"id", arrows_}, {"name", "feeds"},   {"cat", "publication"},
                  {"pid", kWorkers}, {"tid", thread}, {"ts", micros(at_s)}};
    };
    add(end("s", from, from_s));
    Json finish = end("f", to, to_s);
    finish["bp"] = "e";
    add(std::move(finish));
  }
  [[nodiscard]] Json take() { return std::move(events_); }

 private:
  void add(Json event) { events_.push_back(std::move(event)); }
  Json events_ = Json::array();
  int arrows_ = 0;
};

void add_origin(Trace& trace, const PublicationEntry& entry) {
  trace.name_process(kOrigin, "origin");
  const auto phase = [&](int thread, const char* name, std::optional<double> at_s, double lasted_s) {
    if (!at_s) return;
    trace.name_thread(kOrigin, thread, name);
    trace.slice(kOrigin, thread, name, *at_s, lasted_s);
  };
  trace.name_thread(kOrigin, 1, "publication");
  trace.slice(kOrigin, 1, "publication", 0, entry.elapsed_s,
              WC_JSON_OF(entry.version, entry.state, entry.kind, entry.payload_bytes, entry.snapshot_bytes,
                         entry.sent_bytes, entry.topology, entry.predicted_s, entry.slowest, entry.cause, entry.why));
  phase(2, "take", entry.take_over_at_s, entry.take_over_s);
  phase(3, "encode", entry.encode_at_s, entry.encode_s);
  phase(4, "pack", entry.pack_at_s, entry.pack_s);
  if (entry.t50_s) trace.mark(kOrigin, 1, "T_bcast(0.5)", *entry.t50_s);
  if (entry.t90_s) trace.mark(kOrigin, 1, "T_bcast(0.9)", *entry.t90_s);
  if (entry.t100_s) trace.mark(kOrigin, 1, "T_bcast(1.0)", *entry.t100_s);
}

/// When it received its first chunk; absent if it does not say.
std::optional<double> receiving_at(const WorkerCourse& course) {
  if (!course.has_phases || !course.told_s) return std::nullopt;
  return *course.told_s + course.waiting_s + course.asking_s;
}

void add_worker(Trace& trace, int thread, const WorkerCourse& course) {
  trace.name_thread(kWorkers, thread, course.name);
  if (course.joined_s) trace.mark(kWorkers, thread, "joined", *course.joined_s);
  if (course.told_s) trace.mark(kWorkers, thread, "told", *course.told_s);
  if (!course.failure.empty()) {
    trace.mark(kWorkers, thread, "failed: " + course.failure, course.installed_s.value_or(course.told_s.value_or(0)));
  }
  if (!course.told_s) return;
  if (!course.has_phases) {
    if (course.installed_s) {
      trace.slice(kWorkers, thread, "install", *course.told_s, *course.installed_s - *course.told_s);
    }
    return;
  }
  double at_s = *course.told_s;
  const auto phase = [&](const char* name, double lasted_s, Json arguments = {}) {
    if (lasted_s > 0) trace.slice(kWorkers, thread, name, at_s, lasted_s, std::move(arguments));
    at_s += lasted_s;
  };
  phase("wait", course.waiting_s, course.given_up_s > 0 ? Json{{"given_up_s", course.given_up_s}} : Json());
  phase("ask", course.asking_s);
  phase("transfer", course.receiving_s,
        WC_JSON_OF(course.payload, course.bytes, course.fed_by, course.fed_bytes, course.disk_behind_s,
                   course.interrupted_s, course.parents_left));
  phase("store", course.storing_s);
  phase("apply", course.applying_s);
  phase("switch", course.switching_s);
  if (course.engine_s) phase("engine", *course.engine_s);
}

}  // namespace

Json publication_trace(const local::HistoryReply& history) {
  Trace trace;
  Json other = Json::object();
  if (!history.publications.empty()) {
    const PublicationEntry& entry = history.publications.front();
    add_origin(trace, entry);
    other = {{"version", entry.version}, {"published_unix_ms", entry.published_unix_ms}};
  }
  other["workers_left_out"] =
      history.workers_total - std::min<std::size_t>(history.workers_total, history.workers.size());
  std::vector<const WorkerCourse*> courses;
  for (const WorkerCourse& course : history.workers) courses.push_back(&course);
  std::ranges::stable_sort(courses, {}, [](const WorkerCourse* one) { return one->installed_s.value_or(HUGE_VAL); });
  trace.name_process(kWorkers, "workers");
  std::map<std::string, int> thread_of;
  std::map<std::string, const WorkerCourse*> course_of;
  for (const WorkerCourse* course : courses) {
    const int thread = static_cast<int>(thread_of.size()) + 1;
    thread_of[course->name] = thread;
    course_of[course->name] = course;
    add_worker(trace, thread, *course);
  }
  for (const WorkerCourse* course : courses) {
    const auto feeder = course->has_phases ? course_of.find(course->fed_by) : course_of.end();
    if (feeder == course_of.end()) continue;
    const auto from_s = receiving_at(*feeder->second), to_s = receiving_at(*course);
    if (from_s && to_s)
      trace.arrow(thread_of[course->fed_by], std::min(*from_s, *to_s), thread_of[course->name], *to_s);
  }
  return {{"traceEvents", trace.take()}, {"displayTimeUnit", "ms"}, {"otherData", std::move(other)}};
}

}  // namespace weightcast
