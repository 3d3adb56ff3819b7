#include "trainer/model/json_fields.h"

#include <fmt/format.h>

#include <cmath>

#include "base/json_text.h"
#include "base/text.h"

namespace weightcast {
namespace {

constexpr std::size_t kShownBytesMax = 64;

}  // namespace

std::string shown_json(const nlohmann::json& value) { return printable(cut_text(json_text(value), kShownBytesMax)); }

Error JsonFields::refuse(std::string why) const {
  return fail(Errc::kInvalidArgument, Op::kParse, fmt::format("{}: {}", file_, why));
}

const nlohmann::json* JsonFields::find(const char* name) const {
  const auto found = json_.find(name);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

Status JsonFields::read(const char* name, std::int64_t min, std::int64_t max, std::int64_t& value) const {
  const nlohmann::json* found = find(name);
  if (found == nullptr) return {};
  const double number = found->is_number() ? found->get<double>() : std::nan("");
  if (!(number >= static_cast<double>(min) && number <= static_cast<double>(max)) || number != std::floor(number)) {
    return refuse(
        fmt::format("'{}' is {}; it is a whole number from {} to {}", label(name), shown_json(*found), min, max));
  }
  value = found->is_number_integer() ? found->get<std::int64_t>() : static_cast<std::int64_t>(number);
  return {};
}

Status JsonFields::require(const char* name, std::int64_t min, std::int64_t max, std::int64_t& value) const {
  if (!json_.contains(name)) return refuse(fmt::format("'{}' is missing", label(name)));
  if (!has(name)) return refuse(fmt::format("'{}' is null", label(name)));
  return read(name, min, max, value);
}

Status JsonFields::read(const char* name, double min, double max, double& value) const {
  const nlohmann::json* found = find(name);
  if (found == nullptr) return {};
  if (!found->is_number() || !(found->get<double>() >= min && found->get<double>() <= max)) {
    return refuse(fmt::format("'{}' is {}; it is a number from {} to {}", label(name), shown_json(*found), min, max));
  }
  value = found->get<double>();
  return {};
}

Status JsonFields::read(const char* name, bool& value) const {
  const nlohmann::json* found = find(name);
  if (found == nullptr) return {};
  if (!found->is_boolean())
    return refuse(fmt::format("'{}' is {}, not true or false", label(name), shown_json(*found)));
  value = found->get<bool>();
  return {};
}

Status JsonFields::read(const char* name, std::string& value) const {
  const nlohmann::json* found = find(name);
  if (found == nullptr) return {};
  if (!found->is_string()) return refuse(fmt::format("'{}' is {}, not a text", label(name), shown_json(*found)));
  value = found->get<std::string>();
  return {};
}

}  // namespace weightcast
