#include "base/result.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace weightcast {

std::string_view to_string(Errc code) {
  switch (code) {
    case Errc::kInvalidArgument: return "invalid argument";
    case Errc::kCorrupt: return "corrupt";
    case Errc::kTooLarge: return "too large";
    case Errc::kUnsupported: return "unsupported";
    case Errc::kNotFound: return "not found";
    case Errc::kAlreadyExists: return "already exists";
    case Errc::kWrongBase: return "wrong base";
    case Errc::kBusy: return "busy";
    case Errc::kTimedOut: return "timed out";
    case Errc::kClosed: return "closed";
    case Errc::kNoSpace: return "no space";
    case Errc::kIo: return "input/output";
    case Errc::kNotAllowed: return "not allowed";
    case Errc::kCancelled: return "cancelled";
    case Errc::kTooFar: return "too far";
  }
  return "unknown";
}

std::string_view to_string(Op op) {
  switch (op) {
    case Op::kParse: return "parse";
    case Op::kEncode: return "encode";
    case Op::kDecode: return "decode";
    case Op::kOpen: return "open";
    case Op::kRead: return "read";
    case Op::kWrite: return "write";
    case Op::kSync: return "sync";
    case Op::kRename: return "rename";
    case Op::kLock: return "lock";
    case Op::kConnect: return "connect";
    case Op::kListen: return "listen";
    case Op::kSend: return "send";
    case Op::kReceive: return "receive";
    case Op::kPublish: return "publish";
    case Op::kJoin: return "join";
    case Op::kPlan: return "plan";
    case Op::kInstall: return "install";
    case Op::kConfigure: return "configure";
    case Op::kVerify: return "verify";
  }
  return "do";
}

std::string Error::message() const { return fmt::format("cannot {}: {}", to_string(op), detail); }

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
    case EDQUOT: code = Errc::kNoSpace; break;
    case ENOENT: code = Errc::kNotFound; break;
    case EEXIST: code = Errc::kAlreadyExists; break;
    case ETIMEDOUT: code = Errc::kTimedOut; break;
    default: break;
  }
  return Error{code, op, fmt::format("{}: {}", what, std::strerror(error_number))};
}

void die(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "weightcast: internal invariant broken at %s:%d: %s\n", file, line, condition);
  std::abort();
}

}  // namespace weightcast
