#include "transport/node/members/revocation_file.h"

#include <fmt/format.h>

#include <utility>

#include "proto/limits.h"
#include "transport/io/log.h"
#include "transport/security/owner_only_file.h"

namespace weightcast {
namespace {

bool same(const FileInfo& a, const FileInfo& b) {
  return a.same_file(b) && a.modified_ns == b.modified_ns && a.size_bytes == b.size_bytes;
}

}  // namespace

RevocationFile::RevocationFile(EventLoop& loop, FileSystem& files, std::shared_ptr<TlsContext> tls,
                               const Places& places, std::function<void()> on_change)
    : loop_(loop),
      files_(files),
      tls_(std::move(tls)),
      beside_keys_(places.keys_file.parent_path() / kRevocationsFile),
      kept_(places.state / kRevocationsFile),
      on_change_(std::move(on_change)),
      timer_(loop, [this] { look(); }) {}

Status RevocationFile::start() {
  // Of an earlier cluster's, or of the list before: neither keeps the node from starting.
  for (const Status& status : {read_kept(), read_beside_keys()}) {
    if (status.has_value()) continue;
    if (status.error().code != Errc::kNotAllowed) return status;
    log_warning("revoked keys: {}; it does not count", status.error().detail);
  }
  timer_.arm(loop_.now() + kInterval);
  return {};
}

Status RevocationFile::take(const std::string& text) {
  WC_ASSIGN(const bool is_new, adopt(text));
  return is_new ? write_owner_only(kept_, tls_->revocations().to_pem()) : Status();
}

Result<bool> RevocationFile::adopt(const std::string& text) {
  WC_ASSIGN(Revocations list, Revocations::parse(text, tls_->keys().authority.get()));
  const std::uint64_t counts = tls_->revocations().number();
  if (list.number() == counts) return false;
  if (list.number() < counts) {
    return fail(Errc::kNotAllowed, Op::kVerify,
                fmt::format("list {} is older than the one that counts here, {}", list.number(), counts));
  }
  log_info("list {} of revoked keys counts from now on", list.number());
  tls_->set_revocations(std::move(list));
  on_change_();
  return true;
}

Status RevocationFile::read_kept() {
  const Result<std::string> text = read_file(files_, kept_, kRevocationsBytesMax);
  if (!text.has_value()) return text.error().code == Errc::kNotFound ? Status() : Status(text.error());
  const Result<bool> taken = adopt(*text);
  return taken.has_value() ? Status() : Status(about(kept_.native(), taken.error()));
}

Status RevocationFile::read_beside_keys() {
  const Result<FileInfo> there = files_.info(beside_keys_);
  if (!there.has_value()) return there.error().code == Errc::kNotFound ? Status() : Status(there.error());
  if (same(*there, seen_)) return {};
  seen_ = *there;
  WC_ASSIGN(const std::string text, read_file(files_, beside_keys_, kRevocationsBytesMax));
  const Status taken = take(text);
  return taken.has_value() ? taken : Status(about(beside_keys_.native(), taken.error()));
}

Status RevocationFile::check(X509* authority) const {
  const Result<std::string> text = read_file(files_, beside_keys_, kRevocationsBytesMax);
  if (!text.has_value()) return text.error().code == Errc::kNotFound ? Status() : Status(text.error());
  const Result<Revocations> list = Revocations::parse(*text, authority);
  if (list.has_value() || list.error().code == Errc::kNotAllowed) return {};  // one of another cluster does not count
  return about(beside_keys_.native(), list.error());
}

void RevocationFile::look_again() {
  seen_ = {};
  look();
}

void RevocationFile::look() {
  if (const Status status = read_beside_keys(); !status.has_value()) {
    log_warning("revoked keys: {}", status.error().message());
  }
  timer_.arm(loop_.now() + kInterval);
}

}  // namespace weightcast
