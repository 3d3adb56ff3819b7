#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/digest/checksum.h"
#include "base/ids.h"
#include "base/time.h"
#include "trainer/optimiser/adamw.h"

namespace wc {
class Client;
}

namespace weightcast {

/// A tensor of the learner's, as it is published.
struct PublishedTensor {
  std::string name;
  std::string dtype;  ///< of safetensors
  std::vector<std::uint64_t> shape;
  std::size_t size_bytes = 0;
};

struct PublicationState {
  Version version{};                ///< the last one that the origin accepted
  double changed_share = 1;         ///< of cells that it sent
  std::uint64_t payload_bytes = 0;  ///< 0: not known yet
  std::optional<double> t_bcast_s;  ///< until all active workers had it; absent: not yet
};

enum class PublishOutcome {
  kAccepted,
  kNumberTaken,  ///< the origin has had the version's number, or a later one
  kFailed,       ///< try again with newer weights
};

/// Publishes a learner's weights at the origin on this host. It waits for the origin to accept a publication, never for
/// the workers. If the daemon is gone or slow, publish() returns with a warning, and the learner tries again with newer
/// weights. One thread uses it.
class Publisher {
 public:
  struct Options {
    std::string state_dir;
    bool sparse = true;
    /// What loads the weights needs these beside them: published with the first ones, and after an error.
    std::map<std::string, std::string> files = {};
    /// The first weights may be of another model than the origin's last version.
    bool new_model = false;
  };
  /// `warn` gets a line when something goes wrong for the first time, and when it goes well again.
  Publisher(Options options, std::function<void(std::string)> warn);
  ~Publisher();

  /// The number that the origin would give to a version; absent if it does not answer.
  [[nodiscard]] std::optional<Version> next_version();
  /// Where the bytes are: `take_changes(i)` gives the cells of tensor i that have changed since its last call for it,
  /// and `read(i, into)` copies all of it.
  struct Weights {
    std::vector<PublishedTensor> tensors;
    std::function<ChangedCells(std::size_t)> take_changes;
    std::function<void(std::size_t, MutableBytes)> read;
  };
  [[nodiscard]] PublishOutcome publish(Instant now, Version version, const Weights& weights);
  /// Asks the origin how far the last publication is.
  void poll();
  /// Waits, for at most `limit`, until the origin has its own copy of the last publication.
  void finish(Duration limit);

  [[nodiscard]] const PublicationState& state() const { return state_; }

 private:
  bool publish_changes(Version version, const Weights& weights);
  void publish_all(Version version, const Weights& weights);
  void connect();
  void failed(const std::string& why);

  const Options options_;
  const std::function<void(std::string)> warn_;
  std::unique_ptr<wc::Client> client_;
  PublicationState state_;
  std::optional<Version> base_;          // what the origin's last version is, if that is ours
  std::uint64_t full_publications_ = 0;  // that follow without looking at the changes, as most cells change
  std::optional<Instant> retry_at_;      // after a daemon that did not answer in time
  bool is_failing_ = false;
  bool new_model_;  // until the first are with the origin
};

}  // namespace weightcast
