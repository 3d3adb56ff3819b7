#include "tools/observe/otlp_collector.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/json_text.h"
#include "base/text.h"

namespace weightcast {
namespace {

constexpr std::string_view kScheme = "http://";
constexpr std::uint16_t kPort = 4318;
constexpr std::string_view kPath = "/v1/traces";
constexpr std::uint64_t kAnswerBytesMax = 64 * kKiB;
constexpr std::size_t kShownBytesMax = 300;

bool may_pass(unsigned status) { return status == 429 || status == 502 || status == 503 || status == 504; }

}  // namespace

Result<std::unique_ptr<OtlpCollector>> OtlpCollector::make(const std::string& url, std::string release) {
  const auto refuse = [&](std::string_view why) {
    return fail(Errc::kInvalidArgument, Op::kConfigure, fmt::format("{}: {}", printable(url), why));
  };
  if (!url.starts_with(kScheme)) {
    return refuse(
        "it has to be http://HOST[:PORT][/PATH]; to leave this host encrypted, let a collector on it pass spans on");
  }
  const std::string rest = url.substr(kScheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  const std::string host = rest.substr(0, slash);
  std::string path = rest.substr(slash);
  while (path.ends_with('/')) path.pop_back();
  const auto is_part = [](unsigned char c) { return c > ' ' && c < 0x7f && c != '#' && c != '?'; };
  if (!std::ranges::all_of(rest, is_part)) return refuse("there is something in it that neither a host nor a path has");
  auto endpoint = Endpoint::parse(host);
  if (!endpoint.has_value()) endpoint = Endpoint::parse(fmt::format("{}:{}", host, kPort));
  if (!endpoint.has_value()) return refuse(endpoint.error().detail);
  WC_ASSIGN(auto client,
            HttpClient::make({.server = *endpoint, .trust = {.insecure = true}, .body_bytes_max = kAnswerBytesMax}));
  return std::unique_ptr<OtlpCollector>(new OtlpCollector(printable(url), path + std::string(kPath),
                                                          OtlpResource::own(std::move(release)), std::move(client)));
}

Status OtlpCollector::send(const local::HistoryReply& history, Duration limit) {
  const auto answer = client_->call({.method = "POST",
                                     .target = target_,
                                     .content_type = "application/json",
                                     .body = json_text(otlp_spans(history, resource_))},
                                    limit);
  if (!answer.has_value()) return about(url_, answer.error());
  if (answer->status / 100 == 2) return {};
  const std::string said = printable(cut_text(answer->body, kShownBytesMax));
  return fail(may_pass(answer->status) ? Errc::kBusy : Errc::kUnsupported, Op::kSend,
              fmt::format("{}: status {}: {}", url_, answer->status, said));
}

}  // namespace weightcast
