#include "plot/figure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace weightcast {
namespace {

using testing::HasSubstr;
using testing::Not;

Figure figure_of(std::vector<Figure::Point> points, Figure::Scale scale = Figure::Scale::kLinear) {
  Figure figure;
  figure.x = {"n", scale};
  figure.y = {"seconds", scale};
  figure.panels = {{"all", {{"chain", false, std::move(points)}}}};
  return figure;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(Figure, DrawsAMarkPerPointAndOneInTheLegend) {
  EXPECT_EQ(count(to_svg(figure_of({{1, 2}, {3, 4}})), "<circle"), 3u);
}

TEST(Figure, LeavesOutWhatALogarithmicAxisCannotShow) {
  EXPECT_EQ(count(to_svg(figure_of({{0, 1}, {1, 10}, {10, std::nan("")}}, Figure::Scale::kLog)), "<circle"), 2u);
}

TEST(Figure, EscapesNames) {
  Figure figure = figure_of({{1, 1}});
  figure.title = "a < b & c";
  EXPECT_THAT(to_svg(figure), HasSubstr("a &lt; b &amp; c"));
  EXPECT_THAT(to_svg(figure), Not(HasSubstr("a < b")));
}

TEST(Figure, DrawsABoundWithoutMarks) {
  Figure figure = figure_of({{1, 1}, {2, 2}});
  figure.panels[0].series[0].bound = true;
  EXPECT_EQ(count(to_svg(figure), "<circle"), 0u);
  EXPECT_THAT(to_svg(figure), HasSubstr("stroke-dasharray"));
}

TEST(Figure, WithoutPointsIsStillADocument) { EXPECT_THAT(to_svg(figure_of({})), HasSubstr("</svg>")); }

}  // namespace
}  // namespace weightcast
