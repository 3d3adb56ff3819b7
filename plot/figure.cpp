#include "plot/figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

namespace weightcast {
namespace {

constexpr double kPanelWidth = 300;
constexpr double kPanelHeight = 300;
constexpr double kPanelGap = 26;
constexpr double kLeft = 66;
constexpr double kRight = 20;
constexpr double kTop = 66;
constexpr double kLegendColumn = 200;
constexpr double kLegendRow = 20;
constexpr int kTicksWanted = 6;

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

std::string number(double value) { return fmt::format("{:.6g}", value); }

/// Maps values to pixels, and chooses round ticks.
class AxisMap {
 public:
  AxisMap(const Figure::Axis& axis, double least, double most, double pixel_from, double pixel_to)
      : log_(axis.scale == Figure::Scale::kLog), pixel_from_(pixel_from), pixel_to_(pixel_to) {
    if (log_) {
      choose_log_ticks(least, most);
    } else {
      choose_linear_ticks(std::min(0.0, least), most);
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

  void choose_linear_ticks(double least, double most) {
    if (most <= least) most = least + 1;
    const double rough = (most - least) / kTicksWanted;
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
    const auto panels = double(std::max<std::size_t>(1, figure_.panels.size()));
    const double width = kLeft + panels * kPanelWidth + (panels - 1) * kPanelGap + kRight;
    const auto columns = std::max<std::size_t>(1, std::size_t((width - kLeft) / kLegendColumn));
    const double legend_top = kTop + kPanelHeight + 58;
    const double legend_rows = double((legend_.size() + columns - 1) / columns);
    const double height = legend_top + legend_rows * kLegendRow + (figure_.caption.empty() ? 6 : 24);
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"DejaVu Sans, Arial, sans-serif\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        width, height);
    text(kLeft, 26, 15, "start", figure_.title, " font-weight=\"bold\"");
    double left = kLeft;
    for (std::size_t i = 0; i < figure_.panels.size(); ++i, left += kPanelWidth + kPanelGap) {
      draw_panel(figure_.panels[i], left, i == 0);
    }
    const double middle = kTop + kPanelHeight / 2;
    text(18, middle, 12, "middle", figure_.y.label, fmt::format(" transform=\"rotate(-90 18 {:.1f})\"", middle));
    for (std::size_t i = 0; i < legend_.size(); ++i) {
      draw_legend_entry(i, kLeft + double(i % columns) * kLegendColumn, legend_top + double(i / columns) * kLegendRow);
    }
    if (!figure_.caption.empty()) text(kLeft, height - 8, 11, "start", figure_.caption, " fill=\"#555\"");
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
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
    if (most_.x < least_.x) least_ = {0, 0}, most_ = {1, 1};
    const double bottom = kTop + kPanelHeight;
    const AxisMap x(figure_.x, least_.x, most_.x, left, left + kPanelWidth);
    const AxisMap y(figure_.y, least_.y, most_.y, bottom, kTop);
    text(left + kPanelWidth / 2, kTop - 12, 13, "middle", panel.title);
    for (const double tick : x.ticks()) {
      line(x.pixel(tick), kTop, x.pixel(tick), bottom, "#e4e4e4");
      text(x.pixel(tick), bottom + 17, 11, "middle", number(tick));
    }
    for (const double tick : y.ticks()) {
      line(left, y.pixel(tick), left + kPanelWidth, y.pixel(tick), "#e4e4e4");
      if (first) text(left - 7, y.pixel(tick) + 4, 11, "end", number(tick));
    }
    out_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#888\"/>\n",
                        left, kTop, kPanelWidth, kPanelHeight);
    text(left + kPanelWidth / 2, bottom + 36, 12, "middle", figure_.x.label);
    for (const Figure::Series& series : panel.series) draw_series(series, x, y);
  }

  void draw_series(const Figure::Series& series, const AxisMap& x, const AxisMap& y) {
    std::string path;
    std::string marks;
    for (const Figure::Point& point : series.points) {
      if (!x.shows(point.x) || !y.shows(point.y)) continue;
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x.pixel(point.x), y.pixel(point.y));
      if (!series.bound) marks += mark_at(colour_of(series), x.pixel(point.x), y.pixel(point.y), stroke_of(series));
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
    text(x + 33, y + 4, 12, "start", series.name);
  }

  const Figure& figure_;
  std::vector<const Figure::Series*> legend_;
  Figure::Point least_{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  Figure::Point most_{-std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  std::string out_;
};

}  // namespace

std::string to_svg(const Figure& figure) { return Writer(figure).write(); }

}  // namespace weightcast
