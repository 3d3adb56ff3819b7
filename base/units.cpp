#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace weightcast {
namespace {

struct Unit {
  std::string_view name;
  double scale;
};

constexpr std::array<Unit, 8> kByteUnits{{{"", 1},
                                          {"B", 1},
                                          {"kB", 1e3},
                                          {"MB", 1e6},
                                          {"GB", 1e9},
                                          {"KiB", double(kKiB)},
                                          {"MiB", double(kMiB)},
                                          {"GiB", double(kGiB)}}};
constexpr std::array<Unit, 4> kBitUnits{{{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}}};

struct Quantity {
  double number;
  std::string_view unit;
};

Result<Quantity> split_quantity(std::string_view text, std::string_view forms) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || !std::isfinite(number) || number < 0) {
    return fail(Errc::kInvalidArgument, Op::kParse, fmt::format("'{}': expected {}", text, forms));
  }
  return Quantity{number, text.substr(static_cast<std::size_t>(end - text.data()))};
}

template <std::size_t N>
const Unit* find_unit(const std::array<Unit, N>& units, std::string_view name) {
  for (const Unit& unit : units) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

}  // namespace

Result<Rate> parse_rate(std::string_view text) {
  constexpr std::string_view kForms = "a rate such as 300mbit, 1gbit, 12MiB/s or unlimited";
  if (text == "unlimited") return Rate{};
  WC_ASSIGN(const Quantity quantity, split_quantity(text, kForms));
  const auto refuse = [&] {
    return fail(Errc::kInvalidArgument, Op::kParse, fmt::format("'{}': expected {}", text, kForms));
  };
  if (quantity.number == 0) return refuse();
  if (const Unit* unit = find_unit(kBitUnits, quantity.unit)) return Rate::bits(quantity.number * unit->scale);
  if (quantity.unit.ends_with("/s")) {
    const std::string_view bytes = quantity.unit.substr(0, quantity.unit.size() - 2);
    if (const Unit* unit = find_unit(kByteUnits, bytes); unit != nullptr && !bytes.empty()) {
      return Rate{quantity.number * unit->scale};
    }
  }
  return refuse();
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
  constexpr std::string_view kForms = "a size such as 64MiB, 1GiB, 500kB or 4096";
  WC_ASSIGN(const Quantity quantity, split_quantity(text, kForms));
  const Unit* unit = find_unit(kByteUnits, quantity.unit);
  if (unit == nullptr) {
    return fail(Errc::kInvalidArgument, Op::kParse, fmt::format("'{}': expected {}", text, kForms));
  }
  const double bytes = quantity.number * unit->scale;
  if (bytes >= 9223372036854775808.0) {
    return fail(Errc::kTooLarge, Op::kParse, fmt::format("'{}': more than 2^63 - 1 bytes", text));
  }
  return static_cast<std::uint64_t>(std::llround(bytes));
}

std::string format_rate(Rate rate) {
  if (!rate.limited()) return "unlimited";
  const double bits = rate.bits_per_s();
  if (bits >= 1e9) return fmt::format("{:.4g} Gbit/s", bits / 1e9);
  if (bits >= 1e6) return fmt::format("{:.4g} Mbit/s", bits / 1e6);
  return fmt::format("{:.4g} kbit/s", bits / 1e3);
}

std::string format_bytes(std::uint64_t bytes) {
  const double value = static_cast<double>(bytes);
  if (bytes >= kGiB) return fmt::format("{:.2f} GiB", value / double(kGiB));
  if (bytes >= kMiB) return fmt::format("{:.1f} MiB", value / double(kMiB));
  if (bytes >= kKiB) return fmt::format("{:.1f} KiB", value / double(kKiB));
  return fmt::format("{} B", bytes);
}

}  // namespace weightcast
