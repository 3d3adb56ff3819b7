#include "sim/fault.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "base/text.h"

namespace weightcast::sim {
namespace {

bool has_rate(FaultKind kind) {
  return kind == FaultKind::kThrottle || kind == FaultKind::kChoke || kind == FaultKind::kSlowDisk;
}
bool has_time(FaultKind kind) { return kind == FaultKind::kDelay || kind == FaultKind::kSkew; }
bool has_share(FaultKind kind) { return kind == FaultKind::kLoss || kind == FaultKind::kDrift; }

std::optional<double> parse_finite(std::string_view text) {
  const std::optional<double> value = parse_number<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<Duration> parse_time(std::string_view text) {
  double unit_s = 0;
  if (text.ends_with("ms")) {
    unit_s = 1e-3;
    text.remove_suffix(2);
  } else if (text.ends_with("us")) {
    unit_s = 1e-6;
    text.remove_suffix(2);
  } else if (text.ends_with("s")) {
    unit_s = 1;
    text.remove_suffix(1);
  } else {
    return std::nullopt;
  }
  const auto value = parse_finite(text);
  if (!value || *value < 0 || *value > 1e6) return std::nullopt;
  return Duration(std::llround(*value * unit_s * 1e9));
}

std::optional<NodeIndex> parse_index(std::string_view text) {
  const std::optional<NodeIndex> value = parse_number<NodeIndex>(text);
  return value && *value != 0 && *value != kNoIndex ? value : std::nullopt;
}

/// One line, word by word.
class LineParser {
 public:
  LineParser(std::string_view line, std::size_t number) : line_(line), number_(number) {}

  [[nodiscard]] bool empty() {
    skip_blanks();
    return line_.empty();
  }

  Result<Fault> parse() {
    Fault fault;
    if (next() != "at") return bad("a line starts with 'at TIME'");
    WC_ASSIGN(fault.at, time());
    const std::string_view word = next();
    const std::optional<FaultKind> kind = find_word<FaultKind>(word);
    if (!kind) return bad(fmt::format("'{}' is no fault", word));
    if (needs_whole_nodes(*kind)) return bad(fmt::format("only whole nodes have the fault '{}'", word));
    fault.kind = *kind;
    if (fault.kind != FaultKind::kPublish) WC_TRY(who(fault.node, fault.node_last));
    bool measured = false;
    while (!empty()) {
      const std::string_view clause = next();
      if (clause == "for") {
        WC_ASSIGN(fault.lasts, time());
      } else if (clause == "oneway" && fault.kind == FaultKind::kPartition) {
        fault.one_way = true;
      } else if (clause == "refused" && fault.kind == FaultKind::kBlock) {
        fault.one_way = true;
      } else if (clause == "from" && (fault.kind == FaultKind::kPartition || fault.kind == FaultKind::kBlock)) {
        NodeIndex last = 0;
        WC_TRY(who(fault.peer, last));
        if (last != fault.peer) return bad("'from' takes one node");
      } else if (clause == "to" && has_rate(fault.kind)) {
        WC_ASSIGN(fault.rate, parse_rate(next()));
        measured = true;
      } else if (clause == "by" && has_time(fault.kind)) {
        WC_ASSIGN(fault.by, time());
        measured = true;
      } else if (clause == "by" && (has_share(fault.kind) || fault.kind == FaultKind::kCorrupt)) {
        const auto number = parse_finite(next());
        if (!number || *number < 0 || (has_share(fault.kind) && *number >= 1) || *number > 1e9) {
          return bad("'by' wants a share below 1, or a count of chunks");
        }
        if (has_share(fault.kind)) fault.probability = *number;
        if (!has_share(fault.kind)) fault.count = static_cast<std::uint32_t>(*number);
        measured = true;
      } else {
        return bad(fmt::format("'{}' does not go with {}", clause, word));
      }
    }
    if (!measured && (has_rate(fault.kind) || has_time(fault.kind) || has_share(fault.kind))) {
      return bad(fmt::format("{} needs 'to RATE' or 'by AMOUNT'", word));
    }
    if (has_rate(fault.kind) && !fault.rate.limited()) return bad("a rate of nothing; use partition or stall");
    return fault;
  }

 private:
  [[nodiscard]] Error bad(std::string_view why) const {
    return fail(Errc::kInvalidArgument, Op::kParse, fmt::format("faults, line {}: {}", number_, why));
  }

  void skip_blanks() {
    while (!line_.empty() && (line_.front() == ' ' || line_.front() == '\t' || line_.front() == '\r')) {
      line_.remove_prefix(1);
    }
  }

  std::string_view next() {
    skip_blanks();
    const std::string_view word = line_.substr(0, line_.find_first_of(" \t\r"));
    line_.remove_prefix(word.size());
    return word;
  }

  Result<Duration> time() {
    const auto parsed = parse_time(next());
    if (!parsed) return bad("a time looks like 1.5s or 200ms");
    return *parsed;
  }

  Status who(NodeIndex& first, NodeIndex& last) {
    const std::string_view word = next();
    if (word == "origin") {
      first = last = 0;
      return {};
    }
    if (word == "all") {
      first = 0;
      last = kNoIndex;
      return {};
    }
    if (word != "worker" && word != "workers") return bad("who? 'worker 3', 'workers 3-6', 'origin' or 'all'");
    const std::string_view range = next();
    const std::size_t dash = range.find('-');
    const auto from = parse_index(range.substr(0, dash));
    const auto to = dash == range.npos ? from : parse_index(range.substr(dash + 1));
    if (!from || !to || *to < *from) return bad(fmt::format("'{}' names no workers; they count from 1", range));
    first = *from;
    last = *to;
    return {};
  }

  std::string_view line_;
  std::size_t number_;
};

std::string who_text(NodeIndex first, NodeIndex last) {
  if (last == 0) return "origin";
  if (first == 0) return "all";
  return first == last ? fmt::format("worker {}", first) : fmt::format("workers {}-{}", first, last);
}

/// Exact: parse_time() finds the same nanoseconds again.
std::string time_text(Duration d) { return fmt::format("{:.9f}s", to_seconds(d)); }

}  // namespace

Result<std::vector<Fault>> parse_faults(std::string_view text) {
  std::vector<Fault> faults;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    LineParser parser(line.substr(0, line.find('#')), number);
    if (parser.empty()) continue;
    WC_ASSIGN(Fault fault, parser.parse());
    faults.push_back(fault);
  }
  return faults;
}

std::string to_text(const Fault& fault) {
  std::string text = fmt::format("at {} {}", time_text(fault.at), to_string(fault.kind));
  if (fault.kind != FaultKind::kPublish) text += " " + who_text(fault.node, fault.node_last);
  if (fault.kind == FaultKind::kPartition || fault.kind == FaultKind::kBlock) {
    if (fault.peer != Fault::kEverybody) text += " from " + who_text(fault.peer, fault.peer);
    if (fault.one_way) text += fault.kind == FaultKind::kBlock ? " refused" : " oneway";
  }
  if (has_rate(fault.kind)) text += fmt::format(" to {:.0f}kbit", fault.rate.bits_per_s() / 1e3);
  if (has_time(fault.kind)) text += " by " + time_text(fault.by);
  if (has_share(fault.kind)) text += fmt::format(" by {}", fault.probability);
  if (fault.kind == FaultKind::kCorrupt) text += fmt::format(" by {}", fault.count);
  if (fault.changes_later > 0) text += fmt::format(" after {} changes", fault.changes_later);
  if (fault.again_after > 0) text += fmt::format(" again after {}", fault.again_after);
  if (fault.lasts > Duration::zero()) text += " for " + time_text(fault.lasts);
  return text;
}

}  // namespace weightcast::sim
