#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weightcast {

/// A figure of one or more panels side by side, which share their axes and their legend.
struct Figure {
  enum class Scale { kLinear, kLog };
  struct Axis {
    std::string label;
    Scale scale = Scale::kLinear;
  };
  struct Point {
    double x = 0;
    double y = 0;
  };
  struct Series {
    std::string name;    ///< the same name has the same colour and mark in every panel
    bool bound = false;  ///< a bound or prediction: dashed, grey, no marks
    std::vector<Point> points;
  };
  struct Panel {
    std::string title;
    std::vector<Series> series;

    /// The one of that name, which is added if there is none.
    [[nodiscard]] Series& series_of(std::string_view name, bool bound = false);
  };

  std::string title;
  std::string caption;  ///< below it: what a reader needs to know about conditions
  Axis x;
  Axis y;
  std::vector<Panel> panels;
};

/// The figure as an SVG document, white background, readable without colour (marks differ too). Points that a
/// logarithmic axis cannot show are left out. Deterministic.
[[nodiscard]] std::string to_svg(const Figure& figure);

}  // namespace weightcast
