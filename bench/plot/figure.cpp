#include "bench/plot/figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

namespace weightcast {
namespace {

constexpr double kPanelHeight = 300;
constexpr double kPanelGapMin = 26;
constexpr double kLeftMin = 66;
constexpr double kRightMin = 20;
constexpr double kTop = 66;
constexpr double kLegendRow = 20;
constexpr double kLegendMark = 33;  // before the name
constexpr double kLabelGap = 12;    // between two labels at least
constexpr int kTitleSize = 15;
constexpr int kCaptionSize = 11;
constexpr int kTickSize = 11;
constexpr int kLegendSize = 12;
constexpr int kTicksWanted = 6;
// The longer a series, the sooner its marks would be a bar.
constexpr double kMarkGap = 9;

/// One panel fills a page's width; several share it.
double panel_width(std::size_t panels) { return panels <= 1 ? 640 : panels == 2 ? 440 : 300; }

/// At least what a viewer will take for it: fonts differ, and DejaVu Sans is among the wide ones.
double text_width(std::string_view text, int size) {
  const auto characters = std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; });
  return 0.65 * size * double(characters);
}

// Okabe and Ito's palette, which colour-blind readers can tell apart.
constexpr std::array<std::string_view, 7> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                      "#e69f00", "#56b4e9", "#000000"};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

/// Short, so that labels fit beside each other: 12000000 is 12M.
std::string number(double value) {
  for (const auto& [unit, name] : {std::pair(1e9, "G"), {1e6, "M"}, {1e4, "k"}}) {
    if (std::abs(value) >= unit) return fmt::format("{:.4g}{}", value / (unit == 1e4 ? 1e3 : unit), name);
  }
  return fmt::format("{:.6g}", value);
}

double widest(const std::vector<double>& ticks) {
  double width = 0;
  for (const double tick : ticks) width = std::max(width, text_width(number(tick), kTickSize));
  return width;
}

/// Maps values to pixels, and chooses round ticks.
class AxisMap {
 public:
  /// Its labels stand beside each other if `horizontal`, and above each other otherwise.
  AxisMap(const Figure::Axis& axis, double least, double most, double pixel_from, double pixel_to, bool horizontal)
      : log_(axis.scale == Figure::Scale::kLog), pixel_from_(pixel_from), pixel_to_(pixel_to) {
    for (int wanted = kTicksWanted; wanted > 0; --wanted) {
      ticks_.clear();
      if (log_) {
        choose_log_ticks(least, most);
      } else {
        choose_linear_ticks(std::min(0.0, least), most, wanted);
      }
      if (labels_fit(horizontal)) return;
    }
    // Every second label, until they fit.
    while (ticks_.size() > 2 && !labels_fit(horizontal)) {
      std::vector<double> kept;
      for (std::size_t i = 0; i < ticks_.size(); i += 2) kept.push_back(ticks_[i]);
      ticks_ = std::move(kept);
    }
  }

  [[nodiscard]] bool shows(double value) const { return std::isfinite(value) && (!log_ || value > 0); }
  [[nodiscard]] double pixel(double value) const {
    const double share = (scaled(value) - scaled(from_)) / (scaled(to_) - scaled(from_));
    return pixel_from_ + share * (pixel_to_ - pixel_from_);
  }
  [[nodiscard]] const std::vector<double>& ticks() const { return ticks_; }

 private:
  [[nodiscard]] double scaled(double value) const { return log_ ? std::log10(value) : value; }

  [[nodiscard]] bool labels_fit(bool horizontal) const {
    for (std::size_t i = 1; i < ticks_.size(); ++i) {
      const double apart = std::abs(pixel(ticks_[i]) - pixel(ticks_[i - 1]));
      const double taken =
          horizontal ? (text_width(number(ticks_[i - 1]), kTickSize) + text_width(number(ticks_[i]), kTickSize)) / 2 +
                           kLabelGap
                     : kTickSize + 2;
      if (apart < taken) return false;
    }
    return true;
  }

  void choose_linear_ticks(double least, double most, int wanted) {
    if (most <= least) most = least + 1;
    const double rough = (most - least) / wanted;
    const double magnitude = std::pow(10, std::floor(std::log10(rough)));
    const double lead = rough / magnitude;
    const double step = magnitude * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
    from_ = std::floor(least / step) * step;
    to_ = std::ceil(most / step - 1e-9) * step;
    for (int i = 0; from_ + i * step <= to_ + step / 2; ++i) ticks_.push_back(from_ + i * step);
  }

  void choose_log_ticks(double least, double most) {
    if (most <= least) most = least * 10;
    // 1, 2, 5 per decade; only powers of ten when that would be too many.
    const bool wide = std::log10(most / least) > 2.5;
    for (int exponent = int(std::floor(std::log10(least))); exponent <= int(std::ceil(std::log10(most))); ++exponent) {
      for (const double lead : {1.0, 2.0, 5.0}) {
        if (wide && lead != 1.0) continue;
        ticks_.push_back(lead * std::pow(10, exponent));
      }
    }
    while (ticks_.size() > 2 && ticks_[1] <= least) ticks_.erase(ticks_.begin());
    while (ticks_.size() > 2 && ticks_[ticks_.size() - 2] >= most) ticks_.pop_back();
    from_ = std::min(ticks_.front(), least);
    to_ = std::max(ticks_.back(), most);
  }

  bool log_;
  double pixel_from_;
  double pixel_to_;
  double from_ = 0;
  double to_ = 1;
  std::vector<double> ticks_;
};

std::string mark_at(std::size_t shape, double x, double y, std::string_view colour) {
  constexpr double r = 3.6;
  switch (shape % 4) {
    case 0: return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"/>\n", x, y, r, colour);
    case 1:
      return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n", x - r, y - r,
                         2 * r, 2 * r, colour);
    case 2:
      return fmt::format("<path d=\"M{:.1f} {:.1f}l{} {}h{}z\" fill=\"{}\"/>\n", x, y - r - 1, r + 1, 2 * r + 1,
                         -2 * r - 2, colour);
    default:
      return fmt::format("<path d=\"M{:.1f} {:.1f}l{} {}l{} {}l{} {}z\" fill=\"{}\"/>\n", x, y - r - 1, r + 1, r + 1,
                         -r - 1, r + 1, -r - 1, -r - 1, colour);
  }
}

class Writer {
 public:
  explicit Writer(const Figure& figure) : figure_(figure) {
    for (const Figure::Panel& panel : figure.panels) {
      for (const Figure::Series& series : panel.series) {
        if (std::ranges::none_of(legend_, [&](const auto* s) { return s->name == series.name; })) {
          legend_.push_back(&series);
        }
        for (const Figure::Point& point : series.points) include(point);
      }
    }
  }

  std::string write() {
    if (most_.x < least_.x) least_ = {0, 0}, most_ = {1, 1};
    const auto panels = std::max<std::size_t>(1, figure_.panels.size());
    panel_width_ = panel_width(panels);
    const std::vector<double> x_ticks = x_axis(0).ticks();
    const double last_half = text_width(number(x_ticks.back()), kTickSize) / 2;
    // The label of the axis, the widest tick's, and air between.
    left_ = std::max(kLeftMin, 32 + widest(y_axis().ticks()) + kLabelGap);
    const double right = std::max(kRightMin, last_half + 4);
    const double gap =
        std::max(kPanelGapMin, last_half + text_width(number(x_ticks.front()), kTickSize) / 2 + kLabelGap);
    double width = left_ + double(panels) * panel_width_ + double(panels - 1) * gap + right;
    width = std::max({width, left_ + text_width(figure_.title, kTitleSize) * 1.1 + kRightMin,
                      left_ + text_width(figure_.caption, kCaptionSize) + kRightMin});
    double column = 0;
    for (const auto* series : legend_) column = std::max(column, text_width(series->name, kLegendSize));
    column += kLegendMark + 2 * kLabelGap;
    const auto columns = std::max<std::size_t>(1, std::size_t((width - left_) / column));
    const double legend_top = kTop + kPanelHeight + 58;
    const double legend_rows = double((legend_.size() + columns - 1) / columns);
    const double height = legend_top + legend_rows * kLegendRow + (figure_.caption.empty() ? 6 : 24);
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"DejaVu Sans, Arial, sans-serif\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        std::ceil(width), height);
    text(left_, 26, kTitleSize, "start", figure_.title, " font-weight=\"bold\"");
    double left = left_;
    for (std::size_t i = 0; i < figure_.panels.size(); ++i, left += panel_width_ + gap) {
      draw_panel(figure_.panels[i], left, i == 0);
    }
    const double middle = kTop + kPanelHeight / 2;
    text(18, middle, 12, "middle", figure_.y.label, fmt::format(" transform=\"rotate(-90 18 {:.1f})\"", middle));
    for (std::size_t i = 0; i < legend_.size(); ++i) {
      draw_legend_entry(i, left_ + double(i % columns) * column, legend_top + double(i / columns) * kLegendRow);
    }
    if (!figure_.caption.empty()) text(left_, height - 8, kCaptionSize, "start", figure_.caption, " fill=\"#555\"");
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
  [[nodiscard]] AxisMap x_axis(double left) const {
    return {figure_.x, least_.x, most_.x, left, left + panel_width_, true};
  }
  [[nodiscard]] AxisMap y_axis() const { return {figure_.y, least_.y, most_.y, kTop + kPanelHeight, kTop, false}; }

  void include(const Figure::Point& point) {
    const bool shown = std::isfinite(point.x) && std::isfinite(point.y) &&
                       (figure_.x.scale == Figure::Scale::kLinear || point.x > 0) &&
                       (figure_.y.scale == Figure::Scale::kLinear || point.y > 0);
    if (!shown) return;
    least_ = {std::min(least_.x, point.x), std::min(least_.y, point.y)};
    most_ = {std::max(most_.x, point.x), std::max(most_.y, point.y)};
  }

  void text(double x, double y, int size, std::string_view anchor, std::string_view words, std::string_view more = "") {
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, size,
                        anchor, more, escaped(words));
  }

  void line(double x1, double y1, double x2, double y2, std::string_view colour) {
    out_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1, x2,
                        y2, colour);
  }

  [[nodiscard]] std::size_t colour_of(const Figure::Series& series) const {
    std::size_t colour = 0;
    for (const auto* s : legend_) {
      if (s->name == series.name) break;
      if (!s->bound) ++colour;
    }
    return colour;
  }

  [[nodiscard]] std::string_view stroke_of(const Figure::Series& series) const {
    return series.bound ? "#777777" : kColours[colour_of(series) % kColours.size()];
  }

  void draw_panel(const Figure::Panel& panel, double left, bool first) {
    const double bottom = kTop + kPanelHeight;
    const AxisMap x = x_axis(left), y = y_axis();
    text(left + panel_width_ / 2, kTop - 12, 13, "middle", panel.title);
    for (const double tick : x.ticks()) {
      line(x.pixel(tick), kTop, x.pixel(tick), bottom, "#e4e4e4");
      text(x.pixel(tick), bottom + 17, kTickSize, "middle", number(tick));
    }
    for (const double tick : y.ticks()) {
      line(left, y.pixel(tick), left + panel_width_, y.pixel(tick), "#e4e4e4");
      if (first) text(left - 7, y.pixel(tick) + 4, kTickSize, "end", number(tick));
    }
    out_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#888\"/>\n",
                        left, kTop, panel_width_, kPanelHeight);
    text(left + panel_width_ / 2, bottom + 36, 12, "middle", figure_.x.label);
    for (const Figure::Series& series : panel.series) draw_series(series, x, y);
  }

  void draw_series(const Figure::Series& series, const AxisMap& x, const AxisMap& y) {
    std::string path;
    std::string marks;
    std::optional<double> marked;
    for (const Figure::Point& point : series.points) {
      if (!x.shows(point.x) || !y.shows(point.y)) continue;
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x.pixel(point.x), y.pixel(point.y));
      const bool crowded = marked && series.points.size() > 60 && std::abs(x.pixel(point.x) - *marked) < kMarkGap;
      if (series.bound || crowded) continue;
      marks += mark_at(colour_of(series), x.pixel(point.x), y.pixel(point.y), stroke_of(series));
      marked = x.pixel(point.x);
    }
    if (path.empty()) return;
    out_ += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"{}/>\n{}", path,
                        stroke_of(series), series.bound ? " stroke-dasharray=\"6 4\"" : "", marks);
  }

  void draw_legend_entry(std::size_t index, double x, double y) {
    const Figure::Series& series = *legend_[index];
    out_ += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
        "stroke-width=\"1.8\"{}/>\n",
        x, y, x + 26, y, stroke_of(series), series.bound ? " stroke-dasharray=\"6 4\"" : "");
    if (!series.bound) out_ += mark_at(colour_of(series), x + 13, y, stroke_of(series));
    text(x + kLegendMark, y + 4, kLegendSize, "start", series.name);
  }

  const Figure& figure_;
  std::vector<const Figure::Series*> legend_;
  Figure::Point least_{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  Figure::Point most_{-std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  double panel_width_ = 0;
  double left_ = 0;
  std::string out_;
};

}  // namespace

Figure::Series& Figure::Panel::series_of(std::string_view name, bool bound) {
  const auto found = std::ranges::find(series, name, &Series::name);
  return found != series.end() ? *found : series.emplace_back(Series{std::string(name), bound, {}});
}

std::string to_svg(const Figure& figure) { return Writer(figure).write(); }

}  // namespace weightcast
