#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace weightcast {

/// Rows of cells under headings, as a person reads them: each column as wide as its widest cell, two spaces apart,
/// numbers to the right. What follows the last column is a remark, of any width.
class TextTable {
 public:
  struct Column {
    std::string heading;
    bool right = false;
  };

  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// As many cells as columns.
  void add(std::vector<std::string> cells, std::string remark = {}) {
    rows_.push_back({std::move(cells), std::move(remark)});
  }

  [[nodiscard]] std::string text() const {
    std::vector<std::size_t> widths;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      std::size_t width = columns_[c].heading.size();
      for (const Row& row : rows_) width = std::max(width, row.cells[c].size());
      widths.push_back(width);
    }
    std::string out;
    Row headings;
    for (const Column& column : columns_) headings.cells.push_back(column.heading);
    append(out, headings, widths);
    for (const Row& row : rows_) append(out, row, widths);
    return out;
  }

 private:
  struct Row {
    std::vector<std::string> cells;
    std::string remark = {};
  };

  void append(std::string& out, const Row& row, const std::vector<std::size_t>& widths) const {
    std::string line;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::string space(widths[c] - row.cells[c].size(), ' ');
      line += (c > 0 ? "  " : "") + (columns_[c].right ? space + row.cells[c] : row.cells[c] + space);
    }
    if (!row.remark.empty()) line += "  " + row.remark;
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }

  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

}  // namespace weightcast
