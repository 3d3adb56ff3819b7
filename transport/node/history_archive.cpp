#include "transport/node/history_archive.h"

#include "base/text.h"
#include "transport/io/log.h"

namespace weightcast {

std::map<Version, std::uint64_t> HistoryArchive::sizes() const {
  std::map<Version, std::uint64_t> sizes;
  const auto names = files_->list(directory_);
  if (!names.has_value()) return sizes;
  for (const std::string& name : *names) {
    const auto number = parse_number<std::uint64_t>(name);
    if (!number) continue;
    if (const auto info = files_->info(directory_ / name); info.has_value()) {
      sizes[Version{*number}] = info->size_bytes;
    }
  }
  return sizes;
}

EarlierPublications HistoryArchive::read() const {
  EarlierPublications replies;
  std::uint64_t bytes = 0;
  const auto kept = sizes();
  for (auto at = kept.rbegin(); at != kept.rend(); ++at) {
    bytes += at->second;
    if (replies.size() >= kFilesMax || bytes > kBytesMax) break;
    Result<std::string> reply = read_file(*files_, path_of(at->first), kFileBytesMax);
    Result<local::HistoryReply> parsed = reply.has_value() ? local::decode_history(*reply) : reply.error();
    if (!parsed.has_value() || parsed->publications.size() != 1 ||
        parsed->publications.front().version != at->first.value) {
      log_warning("history of version {}: {} is not readable, and left out", at->first.value,
                  path_of(at->first).native());
      continue;
    }
    replies.emplace(at->first, EarlierPublication{std::move(parsed->publications.front()), *std::move(reply)});
  }
  return replies;
}

Status HistoryArchive::write(Version version, const std::string& reply) const {
  WC_TRY(make_directories(*files_, directory_));
  WC_TRY(replace_file(*files_, path_of(version), reply, Synced::kNothing));
  auto kept = sizes();
  std::uint64_t bytes = 0;
  for (const auto& [_, size] : kept) bytes += size;
  for (auto at = kept.begin(); at != kept.end() && (kept.size() > kFilesMax || bytes > kBytesMax);
       at = kept.erase(at)) {
    bytes -= at->second;
    WC_TRY(remove_if_there(*files_, path_of(at->first)));
  }
  return {};
}

}  // namespace weightcast
