#include "trainer/replay/rollout_files.h"

#include <fmt/format.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/text.h"
#include "trainer/tasks/trajectory/trajectory_json.h"

namespace weightcast {
Result<bool> RolloutFiles::fill(Instant now, SharedReplayBuffer& buffer) {
  std::string line;
  for (;; ++file_, line_ = 0, offset_bytes_ = 0) {
    if (file_ >= files_.size()) return false;
    if (!in_.is_open()) {
      in_.open(files_[file_], std::ios::binary);
      if (!in_) return fail_errno(errno, Op::kOpen, files_[file_]);
      in_.seekg(static_cast<std::streamoff>(offset_bytes_));
    }
    if (std::getline(in_, line)) break;
    if (in_.bad()) return fail_errno(errno, Op::kRead, files_[file_]);
    in_.close();
    in_.clear();
    // The place stays in the last file, so that a run that goes on later reads what was appended.
    if (file_ + 1 == files_.size()) return false;
  }
  ++line_;
  offset_bytes_ += line.size() + 1;
  const auto tell = [&](std::string_view why) {
    refused_(fmt::format("{} line {}: {}", printable(files_[file_]), line_, why));
  };
  Result<Trajectory> trajectory = read_trajectory(line);
  if (!trajectory.has_value()) {
    ++malformed_;
    tell(trajectory.error().detail);
    return true;
  }
  const Arrival arrival = buffer->handle_trajectory(now, std::move(*trajectory));
  switch (arrival.admission) {
    case AdmissionOutcome::kAdmitted: break;
    case AdmissionOutcome::kDuplicate: tell("its worker and sequence number were there before"); break;
    case AdmissionOutcome::kRefused: tell(fmt::format("{}: {}", arrival.reason, arrival.detail)); break;
    case AdmissionOutcome::kFull: tell(arrival.detail); break;
  }
  return true;
}

std::string RolloutFiles::save() const {
  return nlohmann::json{{"file", file_},
                        {"path", file_ < files_.size() ? printable(files_[file_]) : ""},
                        {"line", line_},
                        {"offset_bytes", offset_bytes_},
                        {"malformed", malformed_}}
      .dump();
}

Status RolloutFiles::restore(std::string_view state) {
  std::string path;
  try {
    const auto json = parse_json(state);
    path = json.at("path");
    const auto number = [&](const char* name) { return natural_of(json.at(name)); };
    const auto file = number("file"), line = number("line"), offset_bytes = number("offset_bytes");
    const auto malformed = number("malformed");
    if (!file || !line || !offset_bytes || !malformed) {
      return fail(Errc::kCorrupt, Op::kParse, "place in the rollout files: a number is none");
    }
    file_ = *file;
    line_ = *line;
    offset_bytes_ = *offset_bytes;
    malformed_ = *malformed;
  } catch (const nlohmann::json::exception& error) {
    return fail(Errc::kCorrupt, Op::kParse, fmt::format("place in the rollout files: {}", error.what()));
  }
  in_.close();
  const std::string now = file_ < files_.size() ? printable(files_[file_]) : "";
  if (now != path) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("rollout_files: the checkpoint stopped in file {}, '{}', and file {} is now '{}'; keep "
                            "the files up to that one as they were, and add others after it",
                            file_ + 1, printable(path), file_ + 1, now));
  }
  return {};
}

}  // namespace weightcast
