#include "transport/node/members/accepted_file.h"

#include <fmt/format.h>

#include <cinttypes>
#include <cstdio>
#include <span>
#include <string>

#include "base/digest/checksum.h"
#include "transport/core/worker/acceptance.h"

namespace weightcast {
namespace {

// A line has at most 46 bytes.
constexpr std::uint64_t kAcceptedBytesMax = 64 * (Acceptance::kRunsMax + 1);

std::string text_of(const std::vector<AcceptedVersion>& accepted) {
  std::string lines;
  for (const AcceptedVersion& one : accepted) {
    lines += fmt::format("accepted {:016x} {}\n", one.run.value, one.version.value);
  }
  return lines + fmt::format("check {}\n", checksum_of(std::as_bytes(std::span(lines))).hex());
}

std::vector<AcceptedVersion> lines_of(const std::string& text) {
  std::vector<AcceptedVersion> accepted;
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    AcceptedVersion one;
    if (std::sscanf(text.c_str() + at, "accepted %" SCNx64 " %" SCNu64, &one.run.value, &one.version.value) != 2) break;
    accepted.push_back(one);
    if (text.find('\n', at) == std::string::npos) break;
  }
  return accepted;
}

}  // namespace

Result<std::vector<AcceptedVersion>> AcceptedFile::read() const {
  const Result<std::string> text = read_file(*files_, path_, kAcceptedBytesMax);
  if (!text.has_value() && text.error().code == Errc::kNotFound) return std::vector<AcceptedVersion>();
  if (!text.has_value() && text.error().code != Errc::kCorrupt && text.error().code != Errc::kTooLarge) {
    return text.error();
  }
  if (text.has_value()) {
    std::vector<AcceptedVersion> accepted = lines_of(*text);
    if (text_of(accepted) == *text) return accepted;
  }
  return fail(
      Errc::kCorrupt, Op::kParse,
      fmt::format("{}: damaged, so it is not known which versions are too old to be taken; if nobody could have "
                  "changed it, delete it, and the next start goes on from the version that is there",
                  path_.native()));
}

Status AcceptedFile::write(const std::vector<AcceptedVersion>& accepted) const {
  return replace_file(*files_, path_, text_of(accepted), Synced::kBytesAndName);
}

}  // namespace weightcast
