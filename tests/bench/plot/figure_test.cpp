#include "bench/plot/figure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

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

/// Where a text of the document stands, by the width that DejaVu Sans gives to most characters.
struct Box {
  std::string words;
  double left = 0, right = 0, top = 0, bottom = 0;
  [[nodiscard]] bool overlaps(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

std::vector<Box> texts_of(const std::string& svg) {
  static const std::regex kText(
      R"re(<text x="([0-9.-]+)" y="([0-9.-]+)" font-size="([0-9]+)" text-anchor="(\w+)"([^>]*)>([^<]*)</text>)re");
  std::vector<Box> boxes;
  for (std::sregex_iterator it(svg.begin(), svg.end(), kText), end; it != end; ++it) {
    const double x = std::stod((*it)[1]), y = std::stod((*it)[2]), size = std::stod((*it)[3]);
    const double width = 0.6 * size * double((*it)[6].length());
    const double before = (*it)[4] == "start" ? 0 : (*it)[4] == "end" ? width : width / 2;
    if ((*it)[5].str().find("rotate") != std::string::npos) {
      boxes.push_back({(*it)[6], x - size, x, y - before, y + width - before});
    } else {
      boxes.push_back({(*it)[6], x - before, x + width - before, y - 0.8 * size, y});
    }
  }
  return boxes;
}

void expect_readable(const std::string& svg) {
  std::smatch size;
  ASSERT_TRUE(std::regex_search(svg, size, std::regex(R"re(width="([0-9]+)" height="([0-9]+)")re")));
  const std::vector<Box> texts = texts_of(svg);
  ASSERT_GT(texts.size(), 8u);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Box& box = texts[i];
    EXPECT_TRUE(box.left >= 0 && box.top >= 0 && box.right <= std::stod(size[1]) && box.bottom <= std::stod(size[2]))
        << "cut: " << box.words;
    for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(box.overlaps(texts[j])) << box.words << " / " << texts[j].words;
  }
}

TEST(Figure, TextsAreWholeAndApartWhateverTheirLength) {
  Figure figure;
  figure.title = "Divergence of the trained policy from its sampler and from the reference";
  figure.x.label = "training step";
  figure.y.label = "bytes per publication, of all workers together";
  Figure::Panel panel;
  for (const char* name : {"timing_s/collect_rollouts", "timing_s/update_actor_and_value", "timing_s/publish"}) {
    panel.series.push_back({name, false, {{1, 23'456'789}, {1'234'567, 1}}});
  }
  for (const std::size_t panels : {1, 2, 3}) {
    figure.panels.assign(panels, panel);
    figure.x.scale = figure.y.scale = Figure::Scale::kLinear;
    expect_readable(to_svg(figure));
    figure.x.scale = figure.y.scale = Figure::Scale::kLog;
    expect_readable(to_svg(figure));
  }
  figure.caption = std::string(150, 'c');
  expect_readable(to_svg(figure));
}

TEST(Figure, OnePanelFillsAPage) {
  std::smatch width;
  const std::string svg = to_svg(figure_of({{1, 2}, {3, 4}}));
  ASSERT_TRUE(std::regex_search(svg, width, std::regex(R"re(width="([0-9]+)")re")));
  EXPECT_GE(std::stod(width[1]), 640);
}

TEST(Figure, ALongSeriesIsALineWithMarksAndNotABar) {
  std::vector<Figure::Point> points;
  for (int i = 0; i < 400; ++i) points.push_back({double(i), std::sin(i)});
  EXPECT_LT(count(to_svg(figure_of(std::move(points))), "<circle"), 80u);
}

TEST(Figure, WithoutPointsIsStillADocument) { EXPECT_THAT(to_svg(figure_of({})), HasSubstr("</svg>")); }

}  // namespace
}  // namespace weightcast
