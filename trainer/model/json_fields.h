#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weightcast {

/// A JSON value for a message: its beginning, on one line.
[[nodiscard]] std::string shown_json(const nlohmann::json& value);

/// Reads members of one JSON object of a file. A member that is absent or null leaves the value as it is. Errors name
/// file and member: kInvalidArgument.
class JsonFields {
 public:
  /// `json` is an object, and outlives this one; members are called `prefix` + name.
  JsonFields(const nlohmann::json& json, std::string_view file, std::string prefix = "")
      : json_(json), file_(file), prefix_(std::move(prefix)) {}

  /// The member, or nullptr if it is absent or null.
  [[nodiscard]] const nlohmann::json* find(const char* name) const;
  [[nodiscard]] bool has(const char* name) const { return find(name) != nullptr; }
  [[nodiscard]] std::string label(const char* name) const { return prefix_ + name; }

  /// From `min` to `max`. A whole number may be written as 1024.0, as a Python program may have computed it.
  Status read(const char* name, std::int64_t min, std::int64_t max, std::int64_t& value) const;
  Status read(const char* name, double min, double max, double& value) const;
  Status read(const char* name, bool& value) const;
  Status read(const char* name, std::string& value) const;
  /// The same, of a member that has to be there.
  Status require(const char* name, std::int64_t min, std::int64_t max, std::int64_t& value) const;

 private:
  [[nodiscard]] Error refuse(std::string why) const;

  const nlohmann::json& json_;
  std::string_view file_;
  std::string prefix_;
};

}  // namespace weightcast
