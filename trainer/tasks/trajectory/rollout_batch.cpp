#include "trainer/tasks/trajectory/rollout_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/json_text.h"

namespace weightcast {
namespace {

// The longest text of a rollout is an entry of its metadata.
constexpr std::size_t kStretchBytesMax = 1 << 20;

Error no_batch(std::string why) { return fail(Errc::kCorrupt, Op::kParse, std::move(why)); }

/// What it costs to look whether a text is JSON, which makes no tree of it.
struct Shape {
  std::size_t depth = 0;
  /// The longest from the beginning of a text or number to that of the next. nlohmann's lexer keeps it, and copies it
  /// three times into the error that a text without JSON is to it.
  std::size_t stretch_bytes = 0;
};

Shape shape_of(std::string_view text) {
  Shape shape;
  std::size_t depth = 0, begin = 0;
  bool in_string = false, in_number = false;
  const auto end_stretch = [&](std::size_t at) {
    shape.stretch_bytes = std::max(shape.stretch_bytes, at - begin);
    begin = at;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      in_string = c != '"';
      i += c == '\\' ? 1 : 0;
      continue;
    }
    const bool was_in_number =
        std::exchange(in_number, std::string_view("0123456789+-.eE").find(c) != std::string_view::npos);
    if (c == '"' || (in_number && !was_in_number)) end_stretch(i);
    in_string = c == '"';
    if (c == '[' || c == '{') shape.depth = std::max(shape.depth, ++depth);
    if ((c == ']' || c == '}') && depth > 0) --depth;
  }
  end_stretch(text.size());
  return shape;
}

/// Walks over JSON that is known to be valid.
class Walk {
 public:
  explicit Walk(std::string_view text) : text_(text) { skip_space(); }

  /// Whether `c` is next; steps over it, and over the space behind it.
  bool take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    skip_space();
    return true;
  }

  /// The text of the value that is next, which is left behind.
  std::string_view value() {
    const std::size_t begin = at_;
    std::size_t depth = 0;
    do {
      switch (text_[at_]) {
        case '"': skip_string(); break;
        case '[':
        case '{':
          ++depth;
          ++at_;
          break;
        case ']':
        case '}':
          --depth;
          ++at_;
          break;
        case ',':
        case ':': ++at_; break;
        default: at_ = std::min(text_.find_first_of("\"[]{},: \t\r\n", at_), text_.size());
      }
      const std::size_t end = at_;
      skip_space();
      if (depth == 0) return text_.substr(begin, end - begin);
    } while (at_ < text_.size());
    return {};
  }

 private:
  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }
  void skip_string() {
    ++at_;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    ++at_;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

Result<RolloutBatch> split_json_batch(std::string_view text) {
  const Shape shape = shape_of(text);
  if (shape.stretch_bytes > kStretchBytesMax) {
    return fail(Errc::kTooLarge, Op::kParse,
                fmt::format("the body has a text, a number or a gap of {} bytes; at most {}", shape.stretch_bytes,
                            kStretchBytesMax));
  }
  if (shape.depth > kJsonDepthMax || !nlohmann::json::accept(text)) return no_batch("the body is no JSON object");
  RolloutBatch batch;
  bool has_rollouts = false;
  Walk walk(text);
  if (!walk.take('{')) return no_batch("the body is no JSON object");
  while (!walk.take('}')) {
    const std::string_view name = walk.value();
    static_cast<void>(walk.take(':'));
    if (name == "\"rollouts\"") {
      if (has_rollouts) return no_batch("'rollouts' is given twice");
      if (!walk.take('[')) return no_batch("'rollouts' is missing, or no array");
      has_rollouts = true;
      while (!walk.take(']')) {
        if (batch.rollouts.size() == kBatchRolloutsMax) {
          return fail(Errc::kTooLarge, Op::kParse, fmt::format("more than {} rollouts in one body", kBatchRolloutsMax));
        }
        batch.rollouts.push_back(walk.value());
        static_cast<void>(walk.take(','));
      }
    } else {
      const std::string_view value = walk.value();
      if (name == "\"run\"") {
        const nlohmann::json run = parse_json(value);
        if (!run.is_string() || run.get_ref<const std::string&>().size() > kRunIdBytesMax) {
          return no_batch(fmt::format("'run' is no text of at most {} bytes", kRunIdBytesMax));
        }
        batch.run = run;
      }
    }
    static_cast<void>(walk.take(','));
  }
  if (!has_rollouts) return no_batch("'rollouts' is missing, or no array");
  return batch;
}

}  // namespace weightcast
