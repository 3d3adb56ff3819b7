#include "transport/security/key_register.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files/posix_file_system.h"
#include "base/json_text.h"
#include "transport/security/owner_only_file.h"

namespace weightcast {
namespace {

using nlohmann::json;
using Path = KeyRegister::Path;

constexpr std::uint64_t kRegisterBytesMax = 64 * kMiB;
constexpr int kRegisterForm = 1;

Path register_file(const Path& directory) { return directory / "issued.json"; }

bool is_hexadecimal(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// One process at a time changes what is in the directory.
Result<std::unique_ptr<File>> lock_directory(const Path& directory) {
  PosixFileSystem files;
  WC_ASSIGN(std::unique_ptr<File> lock,
            files.open(directory / "lock",
                       {.write = true, .create = Create::kIfMissing, .follow_links = false, .permissions = 0600}));
  const Status locked = lock->lock();
  if (!locked.has_value() && locked.error().code == Errc::kBusy) {
    return fail(Errc::kBusy, Op::kLock, fmt::format("{}: another command works on it; try again", directory.native()));
  }
  WC_TRY(locked);
  return lock;
}

json to_json(const IssuedKeys& keys) {
  return {{"name", keys.name},
          {"use", std::string(to_string(keys.use))},
          {"serial", keys.serial},
          {"expires_unix_s", keys.expires_unix_s},
          {"revoked_unix_s", keys.revoked_unix_s},
          {"replaced_unix_s", keys.replaced_unix_s}};
}

IssuedKeys issued_from(const json& entry) {
  IssuedKeys keys;
  keys.name = entry.at("name").get<std::string>();
  keys.use = find_word<KeyUse>(entry.at("use").get<std::string>()).value_or(KeyUse::kWorker);
  keys.serial = entry.at("serial").get<std::string>();
  keys.expires_unix_s = entry.at("expires_unix_s").get<std::int64_t>();
  keys.revoked_unix_s = entry.at("revoked_unix_s").get<std::int64_t>();
  keys.replaced_unix_s = entry.value("replaced_unix_s", std::int64_t{0});
  return keys;
}

}  // namespace

Result<KeyRegister> KeyRegister::open(const Path& directory) {
  WC_ASSIGN(std::unique_ptr<File> lock, lock_directory(directory));
  KeyRegister opened(directory, std::move(lock));
  WC_TRY(opened.read());
  return opened;
}

const IssuedKeys* KeyRegister::find(const std::string& name) const {
  const auto found = std::ranges::find(all_, name, &IssuedKeys::name);
  return found == all_.end() ? nullptr : &*found;
}

const IssuedKeys* KeyRegister::find_valid(const std::string& name, std::int64_t now_unix_s) const {
  const auto found = std::ranges::find_if(
      all_, [&](const IssuedKeys& keys) { return keys.name == name && keys.counts_at(now_unix_s); });
  return found == all_.end() ? nullptr : &*found;
}

void KeyRegister::add(const CertificateInfo& issued) {
  all_.push_back({issued.name, issued.use, issued.serial, issued.not_after_unix_s});
}

Status KeyRegister::read() {
  PosixFileSystem files;
  const Path path = register_file(directory_);
  const Result<std::string> text = read_file(files, path, kRegisterBytesMax);
  if (!text.has_value()) return text.error().code == Errc::kNotFound ? Status() : Status(text.error());
  try {
    const json parsed = json::parse(*text);
    if (parsed.at("form").get<int>() != kRegisterForm) {
      return fail(Errc::kUnsupported, Op::kParse, fmt::format("{}: a later release wrote it", path.native()));
    }
    for (const json& entry : parsed.at("keys")) all_.push_back(issued_from(entry));
    const bool readable = std::ranges::all_of(all_, is_hexadecimal, &IssuedKeys::serial);
    if (!readable) return fail(Errc::kCorrupt, Op::kParse, fmt::format("{}: a serial is no number", path.native()));
  } catch (const json::exception& error) {
    return fail(Errc::kCorrupt, Op::kParse, fmt::format("{}: {}", path.native(), error.what()));
  }
  return {};
}

Status KeyRegister::write() const {
  json list = json::array();
  for (const IssuedKeys& keys : all_) list.push_back(to_json(keys));
  return write_owner_only(register_file(directory_),
                          json_text({{"form", kRegisterForm}, {"keys", std::move(list)}}, 1) + "\n");
}

}  // namespace weightcast
