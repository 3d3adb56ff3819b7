#include "transport/node/members/peer_records.h"

#include "base/json_of.h"
#include "base/json_text.h"
#include "transport/io/log.h"

namespace weightcast {
namespace {

using nlohmann::json;

constexpr std::uint64_t kFileBytesMax = 64 * kMiB;

json to_json(const PeerRecord& record) {
  json rates = json::array();
  for (const Rate rate : record.score.rates) rates.push_back(rate.bytes_per_s);
  json complaints = json::array();
  for (const PeerRecord::Complaint& one : record.complaints) {
    complaints.push_back({{"of", one.of},
                          {"fault", static_cast<unsigned>(one.fault)},
                          {"age", one.age},
                          {"discredited", one.discredited},
                          {"parent_cleared", one.parent_cleared},
                          {"child_cleared", one.child_cleared}});
  }
  return merged(WC_JSON_OF(record.name, record.score.ok, record.score.failed, record.score.ok_in_a_row,
                           record.score.failed_in_a_row, record.standing.strikes, record.standing.corrupt,
                           record.standing.clean_in_a_row, record.standing.demotions, record.offence,
                           record.offence_by_word, record.voice),
                {{"rates_bytes_per_s", std::move(rates)},
                 {"age_s", to_seconds(record.score.age)},
                 {"standing", static_cast<unsigned>(record.standing.standing)},
                 {"uplink_bytes_per_s", record.uplink.bytes_per_s},
                 {"downlink_bytes_per_s", record.downlink.bytes_per_s},
                 {"complaints", std::move(complaints)},
                 {"voice_since", record.since_regained}});
}

PeerRecord from_json(const json& entry) {
  PeerRecord record;
  record.name = entry.at("name").get<std::string>();
  for (const json& rate : entry.at("rates_bytes_per_s")) record.score.rates.push_back(Rate{rate.get<double>()});
  record.score.ok = entry.at("ok").get<std::uint64_t>();
  record.score.failed = entry.at("failed").get<std::uint64_t>();
  record.score.ok_in_a_row = entry.at("ok_in_a_row").get<std::uint32_t>();
  record.score.failed_in_a_row = entry.at("failed_in_a_row").get<std::uint32_t>();
  record.score.age = from_seconds(std::clamp(entry.at("age_s").get<double>(), 0.0, 1e9));
  record.standing.standing = static_cast<Standing>(std::min(entry.at("standing").get<unsigned>(), 2u));
  record.standing.strikes = entry.at("strikes").get<std::uint32_t>();
  record.standing.corrupt = entry.at("corrupt").get<std::uint32_t>();
  record.standing.clean_in_a_row = entry.at("clean_in_a_row").get<std::uint32_t>();
  record.standing.demotions = entry.at("demotions").get<std::uint32_t>();
  // Earlier releases did not write what follows.
  record.offence = entry.value("offence", std::string());
  record.offence_by_word = entry.value("offence_by_word", false);
  record.uplink = Rate{entry.value("uplink_bytes_per_s", 0.0)};
  record.downlink = Rate{entry.value("downlink_bytes_per_s", 0.0)};
  record.voice = entry.value("voice", record.voice);
  record.since_regained = entry.value("voice_since", 0u);
  for (const json& one : entry.value("complaints", json::array())) {
    PeerRecord::Complaint& complaint = record.complaints.emplace_back();
    complaint.of = one.at("of").get<std::string>();
    complaint.fault = static_cast<PeerFault>(std::min(one.at("fault").get<unsigned>(), 2u));
    complaint.age = one.at("age").get<std::uint32_t>();
    complaint.discredited = one.at("discredited").get<bool>();
    complaint.parent_cleared = one.value("parent_cleared", false);
    complaint.child_cleared = one.value("child_cleared", false);
  }
  return record;
}

}  // namespace

std::vector<PeerRecord> PeerRecordsFile::read() const {
  const Result<std::string> text = read_file(*files_, path_, kFileBytesMax);
  if (!text.has_value()) {
    if (text.error().code != Errc::kNotFound) log_warning("peer records: {}", text.error().message());
    return {};
  }
  try {
    std::vector<PeerRecord> records;
    for (const json& entry : json::parse(*text)) records.push_back(from_json(entry));
    return records;
  } catch (const json::exception& error) {
    log_warning("peer records: {} is not readable ({}); every worker starts without history", path_.string(),
                error.what());
    return {};
  }
}

Status PeerRecordsFile::write(const std::vector<PeerRecord>& records) const {
  json list = json::array();
  for (const PeerRecord& record : records) list.push_back(to_json(record));
  return replace_file(*files_, path_, json_text(list, 1) + "\n", Synced::kNothing);
}

}  // namespace weightcast
