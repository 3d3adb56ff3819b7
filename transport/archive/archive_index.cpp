#include "transport/archive/archive_index.h"

#include <fmt/format.h>

#include <bit>
#include <nlohmann/json.hpp>
#include <set>

#include "proto/limits.h"
#include "transport/core/manifest/manifest_trust.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kFilesKeyDigits = 32;

Error damaged(std::string_view what) {
  return fail(Errc::kCorrupt, Op::kParse, fmt::format("{}: {}", kIndexObject, what));
}

/// A number of `object` between two bounds. Errors: kCorrupt.
Result<std::uint64_t> number(const Json& object, const char* key, std::uint64_t min, std::uint64_t max) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned() || *found < min || *found > max) {
    return damaged(fmt::format("its '{}' is missing or out of range", key));
  }
  return found->get<std::uint64_t>();
}

Result<std::string> text(const Json& object, const char* key, std::size_t bytes_max) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string() || found->get_ref<const std::string&>().size() > bytes_max) {
    return damaged(fmt::format("its '{}' is missing or too long", key));
  }
  return found->get<std::string>();
}

Result<ArchivedPayload> parse_payload(const Json& json) {
  if (!json.is_object()) return damaged("a payload is no object");
  ArchivedPayload payload;
  WC_ASSIGN(const std::uint64_t version, number(json, "version", 1, kVersionMax.value));
  payload.id = Version{version};
  if (json.contains("base")) {
    WC_ASSIGN(const std::uint64_t base, number(json, "base", 1, kVersionMax.value));
    if (base >= version) return damaged("a patch leads to no later version");
    payload.id = patch_of(Version{version}, Version{base});
  }
  WC_ASSIGN(payload.bytes, number(json, "bytes", 1, payload.id.is_full() ? kSnapshotBytesMax : kPayloadBytesMax));
  WC_ASSIGN(const std::uint64_t chunk_bytes, number(json, "chunk_bytes", kChunkBytesMin, kChunkBytesMax));
  if (!std::has_single_bit(chunk_bytes)) return damaged("its 'chunk_bytes' is no power of two");
  if ((payload.bytes - 1) / chunk_bytes >= kChunksMax) return damaged("a payload has too many chunks");
  payload.chunk_bytes = static_cast<std::uint32_t>(chunk_bytes);
  WC_ASSIGN(payload.files, text(json, "files", kFilesKeyDigits));
  return payload;
}

std::string name_of(RunId run, PayloadId payload) {
  const std::string name = fmt::format("{:016x}-{:012}", run.value, payload.version.value);
  return payload.is_patch() ? fmt::format("{}-{:012}", name, payload.base.value) : name;
}

}  // namespace

std::string files_key(const std::vector<SnapshotFile>& files) {
  return digest_of_files(files).hex().substr(0, kFilesKeyDigits);
}

std::string to_json(const ArchiveIndex& index) {
  Json payloads = Json::array();
  for (const ArchivedPayload& payload : index.payloads) {
    Json json{{"version", payload.id.version.value},
              {"bytes", payload.bytes},
              {"chunk_bytes", payload.chunk_bytes},
              {"files", payload.files}};
    if (payload.id.is_patch()) json["base"] = payload.id.base.value;
    payloads.push_back(std::move(json));
  }
  const Json json{{"form", kIndexForm},
                  {"run", to_string(index.run)},
                  {"model", index.model_id},
                  {"object_bytes", index.object_bytes},
                  {"payloads", std::move(payloads)}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<ArchiveIndex> parse_index(std::string_view text_of_index) {
  const Json json = Json::parse(text_of_index, nullptr, false);
  if (!json.is_object()) return damaged("it is no JSON object");
  WC_ASSIGN(const std::uint64_t form, number(json, "form", 1, 1'000'000));
  if (form != kIndexForm) {
    return fail(Errc::kUnsupported, Op::kParse,
                fmt::format("{}: an archive of form {}, this release reads form {}; take the release that wrote it",
                            kIndexObject, form, kIndexForm));
  }
  ArchiveIndex index;
  WC_ASSIGN(const std::string run, text(json, "run", 16));
  if (run.size() % 16 != 0 || run.find_first_not_of("0123456789abcdef") != run.npos) return damaged("it names no run");
  if (!run.empty()) index.run = RunId{std::stoull(run, nullptr, 16)};
  WC_ASSIGN(index.model_id, text(json, "model", kNameBytesMax));
  WC_ASSIGN(index.object_bytes, number(json, "object_bytes", kChunkBytesMax, kObjectBytesMax));
  if (index.object_bytes % kChunkBytesMax != 0) return damaged("its 'object_bytes' does not hold whole chunks");
  const auto payloads = json.find("payloads");
  if (payloads == json.end() || !payloads->is_array() || payloads->size() > kArchivedMax) {
    return damaged("its 'payloads' are missing or too many");
  }
  std::set<PayloadId> seen;
  for (const Json& each : *payloads) {
    WC_ASSIGN(ArchivedPayload payload, parse_payload(each));
    if (!seen.insert(payload.id).second) return damaged(to_string(payload.id) + " is there twice");
    index.payloads.push_back(std::move(payload));
  }
  return index;
}

std::string record_object(RunId run, PayloadId payload) { return name_of(run, payload) + ".record"; }
std::string digests_object(RunId run, PayloadId payload) { return name_of(run, payload) + ".digests"; }
std::string data_object(RunId run, PayloadId payload, std::uint64_t number) {
  return fmt::format("{}.{:05}", name_of(run, payload), number);
}

}  // namespace weightcast
