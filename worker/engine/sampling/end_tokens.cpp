#include "worker/engine/sampling/end_tokens.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "patch/snapshot/snapshot.h"

namespace weightcast {
namespace {

constexpr std::size_t kEndTokensMax = 64;

}  // namespace

Result<std::vector<TokenId>> read_end_tokens(FileSystem& files, const std::filesystem::path& directory) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::filesystem::path path = directory / name;
    const Result<std::string> text = read_file(files, path, kSidecarBytesMax);
    if (!text.has_value()) {
      if (text.error().code == Errc::kNotFound) continue;
      return text.error();
    }
    const nlohmann::json json = parse_json(*text);
    const auto refuse = [&](std::string_view why) {
      return fail(Errc::kInvalidArgument, Op::kParse, fmt::format("{}: {}", path.string(), why));
    };
    if (!json.is_object()) return refuse("it is no object of JSON");
    const auto found = json.find("eos_token_id");
    if (found == json.end() || found->is_null()) continue;
    const nlohmann::json list = found->is_array() ? *found : nlohmann::json::array({*found});
    if (list.size() > kEndTokensMax) return refuse("'eos_token_id' has more ids than any model");
    std::vector<TokenId> tokens;
    for (const nlohmann::json& id : list) {
      if (!id.is_number_integer() || id < 0 || id > std::numeric_limits<TokenId>::max()) {
        return refuse(fmt::format("'eos_token_id' has {}, which is no id", json_text(id)));
      }
      tokens.push_back(id.get<TokenId>());
    }
    return tokens;
  }
  return std::vector<TokenId>();
}

}  // namespace weightcast
