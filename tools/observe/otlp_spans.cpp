#include "tools/observe/otlp_spans.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/digest/checksum.h"
#include "tools/observe/publication_trace.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

constexpr int kInternal = 1;  // Span.SpanKind
constexpr int kWorkers = 2;   // the process of publication_trace()
constexpr int kStatusError = 2;

Json attribute(const std::string& key, const Json& value) {
  Json typed;
  if (value.is_string()) {
    typed = {{"stringValue", value}};
  } else if (value.is_number_integer()) {
    typed = {{"intValue", fmt::format("{}", value.get<std::int64_t>())}};
  } else {
    typed = {{"doubleValue", value}};
  }
  return {{"key", key}, {"value", std::move(typed)}};
}

Json attributes_of(const Json& arguments) {
  Json attributes = Json::array();
  for (const auto& [key, value] : arguments.items()) {
    if (!value.is_null()) attributes.push_back(attribute("weightcast." + key, value));
  }
  return attributes;
}

std::string id_of(const std::string& what, std::size_t digits) {
  return checksum_of(std::as_bytes(std::span(what))).hex().substr(0, digits);
}

class Spans {
 public:
  Spans(std::uint64_t version, std::int64_t published_unix_ms)
      : seed_(fmt::format("{} {}", version, published_unix_ms)), begin_ns_(published_unix_ms * 1'000'000) {}

  /// `key` tells it from the others. Returns the span, good until the next one. Times in microseconds.
  Json& add(const std::string& key, const std::string& parent, const std::string& name, double begin_us,
            double lasted_us) {
    Json span{{"traceId", id_of(seed_, 32)},
              {"spanId", id(key)},
              {"name", name},
              {"kind", kInternal},
              {"startTimeUnixNano", time(begin_us)},
              {"endTimeUnixNano", time(begin_us + lasted_us)},
              {"attributes", Json::array()},
              {"events", Json::array()},
              {"status", Json::object()}};
    if (!parent.empty()) span["parentSpanId"] = id(parent);
    spans_.push_back(std::move(span));
    return spans_.back();
  }
  [[nodiscard]] std::string time(double us) const { return fmt::format("{}", begin_ns_ + std::int64_t(us) * 1000); }
  [[nodiscard]] Json take() { return std::move(spans_); }

 private:
  [[nodiscard]] std::string id(const std::string& key) const { return id_of(seed_ + " " + key, 16); }

  const std::string seed_;
  const std::int64_t begin_ns_;
  Json spans_ = Json::array();
};

/// What lies on one thread of the trace.
struct Track {
  std::string name;
  std::vector<const Json*> slices;
  std::vector<const Json*> marks;
};

void add_marks(const Spans& spans, const Track& track, Json& span) {
  for (const Json* mark : track.marks) {
    const auto name = mark->at("name").get<std::string>();
    span["events"].push_back({{"timeUnixNano", spans.time(mark->at("ts"))}, {"name", name}});
    if (name.starts_with("failed")) span["status"] = {{"code", kStatusError}, {"message", name}};
  }
}

void add_worker(Spans& spans, const std::string& root, const Track& track) {
  if (track.slices.empty() && track.marks.empty()) return;
  double begin = HUGE_VAL, end = 0;
  const auto cover = [&](double from, double to) {
    begin = std::min(begin, from);
    end = std::max(end, to);
  };
  for (const Json* mark : track.marks) cover(mark->at("ts"), mark->at("ts"));
  for (const Json* slice : track.slices) {
    cover(slice->at("ts"), slice->at("ts").get<double>() + slice->at("dur").get<double>());
  }
  const std::string key = "worker " + track.name;
  Json& span = spans.add(key, root, track.name, begin, end - begin);
  span["attributes"].push_back(attribute("weightcast.worker", track.name));
  add_marks(spans, track, span);
  for (const Json* slice : track.slices) {
    const auto name = slice->at("name").get<std::string>();
    spans.add(key + " " + name, key, name, slice->at("ts"), slice->at("dur"))["attributes"] =
        attributes_of(slice->value("args", Json::object()));
  }
}

}  // namespace

OtlpResource OtlpResource::own(std::string release) {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) name[0] = '\0';
  OtlpResource own{std::move(release), "", name.data()};
  own.instance = fmt::format("{}:{}", own.host, ::getpid());
  return own;
}

Json otlp_spans(const local::HistoryReply& history, const OtlpResource& resource) {
  const Json trace = publication_trace(history);
  const local::PublicationEntry& entry = history.publications.front();
  std::map<std::pair<int, int>, Track> tracks;
  for (const Json& event : trace.at("traceEvents")) {
    if (!event.contains("tid")) continue;
    Track& track = tracks[{event.at("pid").get<int>(), event.at("tid").get<int>()}];
    const std::string& phase = event.at("ph").get_ref<const std::string&>();
    if (event.at("name") == "thread_name") track.name = event.at("args").at("name").get<std::string>();
    if (phase == "X") track.slices.push_back(&event);
    if (phase == "i") track.marks.push_back(&event);
  }
  Spans spans(entry.version, entry.published_unix_ms);
  const std::string root = "publication";
  for (const auto& [where, track] : tracks) {
    if (where.first == kWorkers) {
      add_worker(spans, root, track);
      continue;
    }
    for (const Json* slice : track.slices) {
      const auto name = slice->at("name").get<std::string>();
      const bool is_root = name == root;
      Json& span = spans.add(name, is_root ? "" : root, is_root ? "weightcast publication" : name, slice->at("ts"),
                             slice->at("dur"));
      span["attributes"] = attributes_of(slice->value("args", Json::object()));
      if (is_root) add_marks(spans, track, span);
    }
  }
  Json described = Json::array({attribute("service.name", "weightcast")});
  const auto describe = [&](const char* key, const std::string& value) {
    if (!value.empty()) described.push_back(attribute(key, value));
  };
  describe("service.version", resource.release);
  describe("service.instance.id", resource.instance);
  describe("host.name", resource.host);
  Json scope{{"scope", {{"name", "weightcast"}}}, {"spans", spans.take()}};
  return {
      {"resourceSpans", {{{"resource", {{"attributes", std::move(described)}}}, {"scopeSpans", {std::move(scope)}}}}}};
}

}  // namespace weightcast
