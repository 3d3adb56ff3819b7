#include "trainer/intake/lease_journal.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/json_text.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

// One call's lines may go beyond what the file has otherwise.
constexpr std::uint64_t kFileBytesMax = std::uint64_t{64} << 20;
// Lines beyond twice as many as were needed last, until the file is written anew.
constexpr std::uint64_t kSpareLines = 4096;

std::string text_of(std::span<const LeaseJournal::Record> records) {
  std::string text;
  for (const LeaseJournal::Record& one : records) {
    text += json_text(Json::array({one.group, one.first, one.size, one.worker})) + "\n";
  }
  return text;
}

/// Absent if the line is none of text_of().
std::optional<LeaseJournal::Record> record_of(std::string_view line) {
  const Json json = parse_json(line);
  if (!json.is_array() || json.size() != 4 || !json[3].is_string()) return std::nullopt;
  for (std::size_t i = 0; i < 3; ++i) {
    if (!json[i].is_number_unsigned()) return std::nullopt;
  }
  return LeaseJournal::Record{json[0], json[1], json[2], json[3]};
}

}  // namespace

Result<LeaseJournal> LeaseJournal::open(FileSystem& files, std::filesystem::path path, bool resumed,
                                        std::uint64_t bytes_max) {
  LeaseJournal journal(files, std::move(path), bytes_max);
  WC_ASSIGN(journal.file_, files.open(journal.path_, {.write = true, .create = Create::kIfMissing}));
  if (resumed) {
    WC_ASSIGN(const std::string text, read_file(files, journal.path_, kFileBytesMax));
    for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', journal.bytes_)) {
      auto record = record_of(std::string_view(text).substr(journal.bytes_, end - journal.bytes_));
      if (!record) break;
      journal.found_.push_back(std::move(*record));
      journal.bytes_ = end + 1;
    }
  }
  journal.lines_ = journal.lines_kept_ = journal.found_.size();
  WC_TRY(journal.file_->truncate(journal.bytes_));
  return journal;
}

Status LeaseJournal::append(std::span<const Record> records, std::uint64_t needed_from) {
  if (records.empty()) return {};
  const std::string text = text_of(records);
  if (lines_ > kSpareLines + 2 * lines_kept_ || bytes_ + text.size() > bytes_max_) WC_TRY(drop_before(needed_from));
  WC_TRY(write_fully(*file_, bytes_, std::as_bytes(std::span(text)), path_.native()));
  bytes_ += text.size();
  lines_ += records.size();
  return {};
}

Status LeaseJournal::drop_before(std::uint64_t group) {
  WC_ASSIGN(const std::string text, read_file(*files_, path_, kFileBytesMax));
  // What an append that failed has left behind the last line is no part of it.
  std::string_view kept = std::string_view(text).substr(0, bytes_);
  std::uint64_t dropped = 0;
  for (; !kept.empty(); ++dropped) {
    const std::size_t end = kept.find('\n');
    const auto first = record_of(kept.substr(0, end));
    if (first && first->group >= group && kept.size() <= bytes_max_ / 2) break;
    kept.remove_prefix(end + 1);
  }
  WC_TRY(replace_file(*files_, path_, kept, Synced::kBytes));
  WC_ASSIGN(file_, files_->open(path_, {.write = true}));
  bytes_ = kept.size();
  lines_kept_ = lines_ -= dropped;
  return {};
}

}  // namespace weightcast
