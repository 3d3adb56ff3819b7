#include "base/exception_error.h"

#include <fmt/format.h>

#include <new>

namespace weightcast {
namespace {

/// LibTorch throws one class for all that fails on a CPU, so its words tell: of c10's CPU allocator, and of CUDA's.
bool lacks_memory(const std::exception& exception, std::string_view words) {
  return dynamic_cast<const std::bad_alloc*>(&exception) != nullptr ||
         words.find("can't allocate memory") != std::string_view::npos ||
         words.find("out of memory") != std::string_view::npos;
}

}  // namespace

Error exception_error(const std::exception& exception, std::string_view what, std::string_view memory_advice) {
  std::string_view words = exception.what();
  words = words.substr(0, words.find('\n'));
  if (!lacks_memory(exception, words)) {
    return fail(Errc::kIo, Op::kConfigure, fmt::format("{}: {}", what, words));
  }
  return fail(Errc::kTooLarge, Op::kConfigure, fmt::format("{}: {}; {}", what, words, memory_advice));
}

}  // namespace weightcast
