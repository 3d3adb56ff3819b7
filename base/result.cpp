#include "base/result.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/asked_error.h"
#include "base/process.h"
#include "base/settings/words.h"

namespace weightcast {
namespace {

// Peers send both as numbers, of which a later release may have more.
constexpr std::array<std::string_view, 15> kCodeWords{
    "invalid argument", "corrupt", "too large", "unsupported",  "not found",   "already exists", "wrong base", "busy",
    "timed out",        "closed",  "no space",  "input/output", "not allowed", "cancelled",      "too far"};
constexpr std::array<std::string_view, 19> kOpWords{
    "parse",  "encode", "decode",  "open",    "read", "write", "sync",    "rename",    "lock",  "connect",
    "listen", "send",   "receive", "publish", "join", "plan",  "install", "configure", "verify"};
static_assert(kCodeWords[static_cast<std::size_t>(Errc::kTooFar)] == "too far" &&
              kOpWords[static_cast<std::size_t>(Op::kVerify)] == "verify");
static_assert(!is_enumerator<Errc(kCodeWords.size())>() && !is_enumerator<Op(kOpWords.size())>());

}  // namespace

std::string_view to_string(Errc code) {
  const auto at = static_cast<std::size_t>(code);
  return at < kCodeWords.size() ? kCodeWords[at] : "unknown";
}

std::string_view to_string(Op op) {
  const auto at = static_cast<std::size_t>(op);
  return at < kOpWords.size() ? kOpWords[at] : "do";
}

std::string Error::message() const { return message_of(*this, ""); }

std::string_view operation_of(const Error& error, std::string_view asked) {
  return error.op == Op::kPlan && !asked.empty() ? asked : to_string(error.op);
}

std::string message_of(const Error& error, std::string_view asked) {
  return fmt::format("cannot {}: {}", operation_of(error, asked), error.detail);
}

Error about(std::string_view what, Error error) {
  const std::string_view detail = error.detail;
  if (detail.starts_with(what) && detail.substr(what.size()).starts_with(": ")) return error;
  error.detail = fmt::format("{}: {}", what, error.detail);
  return error;
}

Error fail_errno(int error_number, Op op, std::string_view what) {
  Errc code = Errc::kIo;
  switch (error_number) {
    case ENOSPC:
    case EFBIG:
    case EDQUOT: code = Errc::kNoSpace; break;
    case ENOENT: code = Errc::kNotFound; break;
    case EEXIST: code = Errc::kAlreadyExists; break;
    case EXDEV: code = Errc::kUnsupported; break;
    case ETIMEDOUT: code = Errc::kTimedOut; break;
    default: break;
  }
  const std::string_view hint = error_number == EFBIG ? "; raise the limit of the size of files (ulimit -f, "
                                                        "LimitFSIZE=) or take a file system that holds larger ones"
                                                      : "";
  return Error{code, op, fmt::format("{}: {}{}", what, std::strerror(error_number), hint)};
}

void die(const char* condition, const char* file, int line) {
  write_at_once(STDERR_FILENO,
                fmt::format("weightcast: internal invariant broken at {}:{}: {}\n", file, line, condition));
  std::abort();
}

}  // namespace weightcast
