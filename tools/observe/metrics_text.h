#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/settings/words.h"

namespace weightcast {

/// Writes metrics as Prometheus reads them: its text format, version 0.0.4
/// (prometheus.io/docs/instrumenting/exposition_formats). A family is told of once, and its samples follow. Names are
/// ours and given without the prefix `weightcast_`; values of labels may come from outside and are escaped. Pure.
class MetricsText {
 public:
  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;
  enum class Type : std::uint8_t { kGauge, kCounter, kHistogram };
  /// How many observations were at most so large: not cumulative, the bounds growing.
  struct Bucket {
    double at_most = 0;
    std::uint64_t count = 0;
  };
  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

  /// `name` of a counter ends with _total. One whose name begins with "process_" gets no prefix.
  void family(std::string_view name, Type type, std::string_view help);
  void sample(Labels labels, double value);
  void sample(Labels labels, std::uint64_t value);
  /// Of a histogram: `count` observations in all, whose sum is `sum`.
  void histogram(Labels labels, std::span<const Bucket> buckets, std::uint64_t count, double sum);

  /// A family with one sample, without labels.
  template <typename Value>
  void add(std::string_view name, Type type, std::string_view help, Value value) {
    family(name, type, help);
    sample({}, value);
  }

  [[nodiscard]] std::string take() { return std::exchange(text_, {}); }

 private:
  void line(std::string_view suffix, Labels labels, std::string_view more, std::string_view value);

  std::string name_;
  std::string text_;
};
constexpr Words<3> words_of(MetricsText::Type) { return {"gauge", "counter", "histogram"}; }

/// weightcast_build_info: 1, with the program's release and what it runs as.
void add_build_info(MetricsText& text, std::string_view release, std::string_view role);

/// What Prometheus's client libraries tell of any process: processor time, memory, descriptors, its start.
void add_process_metrics(MetricsText& text);

}  // namespace weightcast
