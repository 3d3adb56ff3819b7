#include "bench/paper/kept_json.h"

#include <utility>

#include "base/json_text.h"

namespace weightcast::bench {

std::optional<nlohmann::json> kept_json(FileSystem& files, const std::filesystem::path& path, const char* key,
                                        const std::string& digest, std::uint64_t bytes_max) {
  const auto text = read_file(files, path, bytes_max);
  if (!text.has_value()) return std::nullopt;
  nlohmann::json json = parse_json(*text);
  if (!json.is_object() || json.value(key, nlohmann::json()) != digest) return std::nullopt;
  return json;
}

}  // namespace weightcast::bench
