#include "transport/node/revocation_file.h"

#include <fmt/format.h>

#include <utility>

#include "transport/io/log.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kFileBytesMax = 16 * kMiB;

bool same(const FileInfo& a, const FileInfo& b) {
  return a.same_file(b) && a.modified_ns == b.modified_ns && a.size_bytes == b.size_bytes;
}

}  // namespace

RevocationFile::RevocationFile(EventLoop& loop, FileSystem& files, std::shared_ptr<TlsContext> tls,
                               const std::filesystem::path& keys_file, std::function<void()> on_change)
    : loop_(loop),
      files_(files),
      tls_(std::move(tls)),
      path_(keys_file.parent_path() / "revoked.pem"),
      on_change_(std::move(on_change)),
      timer_(loop, [this] { look(); }) {
  timer_.arm(loop_.now() + kInterval);
}

Status RevocationFile::read() {
  const Result<FileInfo> there = files_.info(path_);
  if (!there.has_value()) return there.error().code == Errc::kNotFound ? Status() : Status(there.error());
  if (same(*there, seen_)) return {};
  seen_ = *there;
  WC_ASSIGN(const std::string text, read_file(files_, path_, kFileBytesMax));
  Result<Revocations> list = Revocations::parse(text, tls_->keys().authority.get());
  if (!list.has_value()) {
    return fail(list.error().code, list.error().op, fmt::format("{}: {}", path_.native(), list.error().detail));
  }
  if (list->number() < tls_->revocations().number()) {
    return fail(Errc::kCorrupt, Op::kRead,
                fmt::format("{}: it is older than the list that counts here", path_.native()));
  }
  tls_->set_revocations(std::move(*list));
  on_change_();
  return {};
}

void RevocationFile::look() {
  if (const Status status = read(); !status.has_value()) log_warning("revoked keys: {}", status.error().message());
  timer_.arm(loop_.now() + kInterval);
}

}  // namespace weightcast
