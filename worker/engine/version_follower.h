#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/files/file_system.h"
#include "base/result.h"
#include "base/settings/words.h"
#include "worker/engine/version_source.h"
#include "worker/engine/weights.h"

namespace weightcast {

/// Where the engine's weights are.
enum class WeightPlace : std::uint8_t {
  kMapped,    ///< in the daemon's files, mapped: no memory of their own, and a switch is a pointer
  kResident,  ///< one copy in memory, in which a version changes the cells that differ; also for --single-copy
};
constexpr Words<2> words_of(WeightPlace) { return {"mapped", "resident"}; }

/// A version that is in use from now on.
struct InstalledVersion {
  VersionName name;
  std::string digest;  ///< of the snapshot, in hexadecimal digits
  std::shared_ptr<const EngineWeights> weights;
  double prepare_s = 0;  ///< on the follower's thread, while the engine went on
  double write_s = 0;    ///< by take(): the changed cells
  std::uint64_t changed_cells = 0;
  std::uint64_t written_bytes = 0;
};

struct FollowerStatus {
  VersionName newest;  ///< that was prepared
  std::uint64_t prepared = 0;
  std::uint64_t prepared_by_list = 0;  ///< of these: the daemon told the changed cells, and the files were not read
  std::uint64_t refused = 0;           ///< damaged, of another model, or gone
  std::uint64_t disconnections = 0;    ///< from the daemon
  std::string last_error;              ///< of the last refusal, or of the last failure to reach the daemon
};

/// Prepares versions on a thread of its own, while the engine generates with an older one: waits for them, pins and
/// reads their files, checks them. The newest one counts. What is damaged, not finite or of another model is refused,
/// and the one in use stays.
class VersionFollower {
 public:
  /// Versions are of the model `config`; those that come with a config.json say the same. `files` outlives the follower
  /// and all weights. `say` takes a line for a person, from the follower's thread.
  [[nodiscard]] static std::unique_ptr<VersionFollower> start(FileSystem& files, std::unique_ptr<VersionSource> source,
                                                              ModelConfig config, WeightPlace place,
                                                              std::function<void(const std::string&)> say);
  /// Ends within the time that preparing a version takes, or that the daemon takes to answer.
  virtual ~VersionFollower() = default;

  /// The newest version that is ready and was not taken. Called between two steps, and by one thread. Whoever takes a
  /// version hands its weights to Engine::set_weights() before the next step: a resident one has changed by then.
  [[nodiscard]] virtual std::optional<InstalledVersion> take() = 0;
  [[nodiscard]] virtual FollowerStatus status() const = 0;
};

}  // namespace weightcast
