#include "tasks/program/sandbox.h"

#include <fmt/format.h>

#include "base/steady_clock.h"
#include "tasks/program/child_process.h"

namespace weightcast {
namespace {

constexpr Duration kTrialTimeMax = std::chrono::seconds(10);

/// Whether a program runs in it at all: a kernel or a container may forbid the name spaces that it needs.
Status tried(std::vector<std::string> words, std::span<const std::string> environment) {
  words.emplace_back("true");
  WC_ASSIGN(const std::unique_ptr<ChildProcess> process, ChildProcess::start(words, environment, 1));
  return process->wait(steady_now() + kTrialTimeMax);
}

}  // namespace

Result<Sandbox> find_sandbox(SandboxKind kind, std::span<const std::string> environment) {
  if (kind == SandboxKind::kNone) return Sandbox{{}, "no sandbox"};
  Sandbox sandbox{
      {"bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--"},
      "the sandbox of bwrap"};
  const Status works = tried(sandbox.words, environment);
  if (works.has_value()) return sandbox;
  if (kind == SandboxKind::kAuto)
    return Sandbox{{}, fmt::format("no sandbox, as bwrap does not work: {}", works.error().detail)};
  return fail(Errc::kUnsupported, Op::kConfigure,
              fmt::format("task_program.sandbox is bwrap, which does not work here: {}; install the package bubblewrap "
                          "and allow user namespaces, or set it to none",
                          works.error().detail));
}

}  // namespace weightcast
