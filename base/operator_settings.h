#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/endpoint.h"
#include "base/log_line.h"
#include "base/settings.h"

namespace weightcast {

/// What is said to each program that runs for long: how it logs, and where operators look at it.
struct OperatorSettings {
  LogFormat log_format = LogFormat::kText;
  std::optional<Endpoint> http;
  std::string http_token;
};

/// Adds their descriptions to `fields`. `http_text` says what is to be seen there.
inline void add_operator_fields(
    std::vector<SettingField>& fields, OperatorSettings& settings,
    std::string_view http_text =
        "Where Prometheus reads /metrics (docs/OPERATING.md); without it nowhere. Open to this host on loopback; "
        "elsewhere with --http-token, or with the configuration's keys, encrypted") {
  fields.emplace_back("http", &settings.http, http_text);
  fields.emplace_back("http-token", &settings.http_token,
                      "File, of this user alone, whose first line whoever asks over HTTP has to bring");
  fields.emplace_back("log-format", &settings.log_format, "Of the log on stderr: text, or json, an object a line");
}

}  // namespace weightcast
