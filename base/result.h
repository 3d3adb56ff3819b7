#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace weightcast {

/// A code exists if and only if some caller reacts to it. `Error::detail` says everything else.
enum class Errc {
  kInvalidArgument,  ///< the caller's input is wrong; repeating the call cannot help
  kCorrupt,          ///< bytes do not match their digest or their format; fetch them again from elsewhere
  kTooLarge,         ///< a length exceeds its limit; nothing was allocated
  kUnsupported,      ///< well formed, but of a kind or version that this build does not know
  kNotFound,         ///< no such version, file or member
  kAlreadyExists,    ///< the version, name or directory is taken
  kWrongBase,        ///< a patch was given another base than the one it was made from
  kBusy,             ///< something else holds it now; try again later
  kTimedOut,         ///< the bound of a wait was reached
  kClosed,           ///< the other side ended the connection
  kNoSpace,          ///< the disk or a quota is full
  kIo,               ///< the operating system refused; the detail carries its words
  kNotAllowed,       ///< this role or peer may not do that
  kCancelled,        ///< the caller has called it off
  kTooFar,           ///< the changes from there are not known, or cost more than the whole: take the whole
};

/// What was being done when it failed: the first word of the message that a person reads.
enum class Op {
  kParse,
  kEncode,
  kDecode,
  kOpen,
  kRead,
  kWrite,
  kSync,
  kRename,
  kLock,
  kConnect,
  kListen,
  kSend,
  kReceive,
  kPublish,
  kJoin,
  kPlan,
  kInstall,
  kConfigure,
  kVerify,
};

[[nodiscard]] std::string_view to_string(Errc code);
[[nodiscard]] std::string_view to_string(Op op);

/// Detail says on what it failed, why, and what to do about it.
struct Error {
  Errc code;
  Op op;
  std::string detail;

  /// "cannot OP: DETAIL", one line.
  [[nodiscard]] std::string message() const;
};

template <typename T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
  Result(Error error) : tl::expected<T, Error>(tl::unexpect, std::move(error)) {}
};

using Status = Result<void>;

[[nodiscard]] inline Error fail(Errc code, Op op, std::string detail) { return Error{code, op, std::move(detail)}; }

/// The same error, its detail beginning with what it is about: "WHAT: DETAIL". Unchanged if it begins so already.
[[nodiscard]] Error about(std::string_view what, Error error);

/// An `errno` value as an Error: ENOSPC, EDQUOT and EFBIG are kNoSpace, ENOENT kNotFound, EEXIST kAlreadyExists, EXDEV
/// kUnsupported, ETIMEDOUT kTimedOut, everything else kIo. `what` names the file or address.
[[nodiscard]] Error fail_errno(int error_number, Op op, std::string_view what);

/// Ends the process with a message: for a broken invariant of our own, never for anything that came from outside.
[[noreturn]] void die(const char* condition, const char* file, int line);

}  // namespace weightcast

/// Always checked.
#define WC_CHECK(condition) ((condition) ? void(0) : ::weightcast::die(#condition, __FILE__, __LINE__))

/// Checked in builds with assertions: for invariants inside hot loops.
#if defined(WEIGHTCAST_ASSERTIONS)
#define WC_ASSERT(condition) WC_CHECK(condition)
#else
#define WC_ASSERT(condition) void(0)
#endif

/// Returns the error of `expression` (a Status or Result) from the enclosing function, if it is one.
#define WC_TRY(expression)                                               \
  do {                                                                   \
    if (auto wc_try_result = (expression); !wc_try_result.has_value()) { \
      return std::move(wc_try_result).error();                           \
    }                                                                    \
  } while (false)

#define WC_CONCAT_INNER(a, b) a##b
#define WC_CONCAT(a, b) WC_CONCAT_INNER(a, b)

/// Declares `variable` from the value of a Result, or returns its error.
#define WC_ASSIGN(variable, expression) WC_ASSIGN_INNER(WC_CONCAT(wc_result_, __LINE__), variable, expression)
#define WC_ASSIGN_INNER(result, variable, expression) \
  auto result = (expression);                         \
  if (!result.has_value()) {                          \
    return std::move(result).error();                 \
  }                                                   \
  variable = std::move(*result)
