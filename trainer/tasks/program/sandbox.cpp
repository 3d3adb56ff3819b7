#include "trainer/tasks/program/sandbox.h"

#include <fmt/format.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/steady_clock.h"
#include "base/text.h"
#include "trainer/tasks/program/child_process.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr Duration kTrialTimeMax = std::chrono::seconds(10);
// Whom a program runs as where this process is root: "nobody", as everywhere.
constexpr uid_t kNobody = 65534;
constexpr std::string_view kApiSocket = "/api.sock";
constexpr std::size_t kSocketsListedMax = 100'000;
// Whether its first argument can be read: what is covered says that it could, until it is opened.
constexpr const char* kReads = R"(if [ -d "$0" ]; then test -r "$0"; else : < "$0"; fi 2>/dev/null)";

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
constexpr std::uint32_t kForeignCalls = 0x40000000;  // those of x32
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
constexpr std::uint32_t kForeignCalls = 0x80000000;
#else
#error "the system calls of this architecture are not known here"
#endif

/// What the kernel runs at each system call. A name space keeps no socket of the file system out of reach, not even
/// one that is made later; so there are no Unix sockets to connect with, and no other way to get one. Of a pair only a
/// connected kind is made: one of datagrams sends to any address.
std::string system_call_filter() {
  constexpr std::uint32_t kRefused = SECCOMP_RET_ERRNO | EACCES, kMissing = SECCOMP_RET_ERRNO | ENOSYS;
  constexpr std::uint32_t kFirstArgument = offsetof(seccomp_data, args);
  constexpr std::uint32_t kSecondArgument = kFirstArgument + sizeof(std::uint64_t);
  constexpr std::uint32_t kSocketType = 0xf;  // the rest are flags
  const std::array<sock_filter, 16> filter{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 0, 12),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kForeignCalls, 10, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 10, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 5, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socketpair, 0, 6),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kSecondArgument),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, kSocketType),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SOCK_STREAM, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SOCK_SEQPACKET, 2, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kFirstArgument),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, kRefused),
      BPF_STMT(BPF_RET | BPF_K, kMissing),
  }};
  return {reinterpret_cast<const char*>(filter.data()), sizeof filter};
}

/// Whether nobody, or who runs this, can come to `path` at all.
bool is_reachable(const fs::path& path) {
  if (::geteuid() != 0) return ::access(path.c_str(), F_OK) == 0;
  for (fs::path at = path.parent_path();; at = at.parent_path()) {
    struct stat info {};
    if (::stat(at.c_str(), &info) != 0 || (info.st_mode & S_IXOTH) == 0) return false;
    if (at == at.parent_path()) return true;
  }
}

/// State directories of the nodes on this host: by their sockets, and by what they hold in memory.
void add_state_directories(std::set<fs::path>& paths) {
  std::ifstream sockets("/proc/net/unix");
  std::size_t listed = 0;
  for (std::string line; listed < kSocketsListedMax && std::getline(sockets, line); ++listed) {
    const std::size_t begin = line.find('/');
    if (begin == std::string::npos || !line.ends_with(kApiSocket)) continue;
    paths.insert(line.substr(begin, line.size() - begin - kApiSocket.size()));
  }
  std::error_code ignored;
  for (fs::directory_iterator at("/dev/shm", ignored), end; at != end; at.increment(ignored)) {
    const fs::path state = fs::read_symlink(at->path() / "state", ignored);
    if (state.is_absolute()) paths.insert(state);
  }
}

/// What is covered: sockets, keys, and what nodes and their users keep.
std::vector<std::string> covering_words(std::span<const std::string> hidden) {
  std::set<fs::path> paths{"/run", "/var/lib/weightcast", "/etc/weightcast", "/etc/ssh"};
  if (const char* const home = std::getenv("HOME")) {
    for (const char* const keys : {".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".config/gcloud"})
      paths.insert(fs::path(home) / keys);
  }
  add_state_directories(paths);
  paths.insert(hidden.begin(), hidden.end());
  std::vector<std::string> words;
  std::error_code error;
  for (const fs::path& given : paths) {
    const fs::path path = fs::canonical(given, error);
    // /tmp is another one anyway, and whoever hides / hides the program.
    if (error || path == "/" || path == "/tmp" || path.native().starts_with("/tmp/") || !is_reachable(path)) continue;
    if (fs::is_directory(path, error)) {
      words.insert(words.end(), {"--tmpfs", path});
    } else {
      words.insert(words.end(), {"--ro-bind", "/dev/null", path});
    }
  }
  return words;
}

Sandbox bwrap_sandbox(std::span<const std::string> hidden) {
  Sandbox sandbox{{}, "the sandbox of bwrap", system_call_filter()};
  if (::geteuid() == 0) {
    // Root in a name space may still be root to the files outside.
    const std::string nobody = std::to_string(kNobody);
    sandbox.words = {"setpriv", "--reuid=" + nobody, "--regid=" + nobody, "--clear-groups", "--inh-caps=-all", "--"};
    sandbox.description += ", as the user nobody";
  }
  const std::vector<std::string> covering = covering_words(hidden);
  const auto add = [&](const std::vector<std::string>& words) {
    sandbox.words.insert(sandbox.words.end(), words.begin(), words.end());
  };
  add({"bwrap", "--unshare-all", "--unshare-user", "--seccomp", std::to_string(kPassedDescriptor), "--ro-bind", "/",
       "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"});
  add(covering);
  add({"--"});
  return sandbox;
}

/// Runs something in it that ends by itself.
Status tried(const Sandbox& sandbox, std::vector<std::string> words, std::span<const std::string> environment) {
  words.insert(words.begin(), sandbox.words.begin(), sandbox.words.end());
  WC_ASSIGN(const std::unique_ptr<ChildProcess> process,
            ChildProcess::start(words, environment, 1, sandbox.system_call_filter));
  return process->wait(steady_now() + kTrialTimeMax);
}

/// Whether a program runs in it at all, as a kernel or a container may forbid the name spaces that it needs; and
/// whether it finds the files there that `program` names.
Status works(const Sandbox& sandbox, std::span<const std::string> program, std::span<const std::string> environment) {
  if (const Status runs = tried(sandbox, {"true"}, environment); !runs.has_value()) {
    return fail(Errc::kUnsupported, Op::kConfigure,
                fmt::format("{}{}; install the package bubblewrap and allow user namespaces", runs.error().detail,
                            ::geteuid() == 0 ? ", as the user nobody, since a sandbox of root's keeps nothing" : ""));
  }
  std::error_code ignored;
  for (const std::string& word : program) {
    if (!fs::exists(word, ignored) || tried(sandbox, {"sh", "-c", kReads, word}, environment).has_value()) continue;
    return fail(Errc::kUnsupported, Op::kConfigure,
                fmt::format("the program cannot read {} in it; move it out of /tmp and state directories{}",
                            printable(cut_text(word, 200)),
                            ::geteuid() == 0 ? ", and let the user nobody read it, or do not start this as root" : ""));
  }
  return {};
}

}  // namespace

Result<Sandbox> find_sandbox(const SandboxWanted& wanted, std::span<const std::string> program,
                             std::span<const std::string> environment) {
  if (wanted.kind == SandboxKind::kNone) return Sandbox{{}, "no sandbox", {}};
  Sandbox sandbox = bwrap_sandbox(wanted.hidden);
  const Status usable = works(sandbox, program, environment);
  if (usable.has_value()) return sandbox;
  if (wanted.kind == SandboxKind::kAuto)
    return Sandbox{{}, fmt::format("no sandbox, as bwrap does not work: {}", usable.error().detail), {}};
  return fail(Errc::kUnsupported, Op::kConfigure,
              fmt::format("task_program.sandbox is bwrap, which does not work here: {}; or set it to none",
                          usable.error().detail));
}

}  // namespace weightcast
