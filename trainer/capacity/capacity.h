#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "trainer/capacity/activation.h"
#include "trainer/capacity/capacity_model.h"

namespace weightcast {

struct CapacityOptions {
  std::uint64_t rollout_batch_size = 128;  ///< R
  std::uint64_t publish_interval = 1;      ///< kappa
  double alpha = 1.1;                      ///< active workers give alpha times mu_min
  double release_margin = 0.1;             ///< a worker is released if the others exceed the target by this share
  Activation activation = Activation::kCost;
  std::uint64_t seed = 0;                                   ///< of kRandom
  double learner_price_per_hour = 0;                        ///< for the cost
  double t_bcast_share = 0.9;                               ///< rho: of the active workers that T_bcast waits for
  std::optional<double> step_s;                             ///< T before the first five steps
  Duration window = std::chrono::seconds(60);               ///< over which mu_i is measured
  Duration sustained = std::chrono::seconds(30);            ///< a deviation lasts so long before it counts
  Duration heartbeat_max = std::chrono::seconds(15);        ///< without one, a worker is dead
  Duration activation_time_max = std::chrono::seconds(60);  ///< from an activation until the worker is taken for failed
  std::uint64_t workers_max = 10'000;
  bool provisions = true;  ///< false: it measures, and activates and releases nobody
};

/// What is known of a worker when it says that it is alive.
struct CapacityReport {
  std::string name;
  bool is_active = false;       ///< it rolls out
  Version generating{};         ///< the version that its engine generates under; 0: none yet
  Instant generating_since{};   ///< when it said so first
  std::uint64_t admitted = 0;   ///< rollouts of it that the learner admitted, since it began
  double full_load_s = 0;       ///< seconds for which an engine with all slots taken would have done its work so far
  std::uint64_t under_way = 0;  ///< rollouts that it has begun
  double rollouts_per_s = 0;    ///< that it finishes now
  double price_per_hour = 0;
  double mu = 0;  ///< rollouts per second that it promises; counts until it is measured. 0: unknown
};

struct CapacityAction {
  enum class Kind {
    kActivate,  ///< the worker is to roll out
    kRelease,   ///< it is not needed, or dead
  };
  Kind kind{};
  std::string worker;

  bool operator==(const CapacityAction&) const = default;
};

/// What a run measures of its loop.
struct CapacityFigures {
  std::optional<double> step_s;            ///< T
  std::optional<double> t_bcast_s;         ///< median of the last five publications
  std::optional<double> mu_min;            ///< known with T; infinite if kappa T <= T_bcast
  double mu_eff = 0;                       ///< of the active workers that are alive
  double bubble_ratio = 0;                 ///< over all steps: waiting / (training + waiting)
  std::optional<double> bubble_predicted;  ///< what (1) gives for T, T_bcast and mu_eff
  double cost_total = 0;                   ///< of the learner, and of workers while they are active
  std::uint64_t workers_active = 0;
  std::uint64_t workers_alive = 0;
  double rollout_s = 0;  ///< from a rollout's begin to its end, by Little's law: under way / finished per second
  std::optional<std::uint64_t>
      staleness_bound;  ///< (7'), of mu_eff and rollout_s: versions count from the oldest token
};

/// Measures a training loop, and says which workers should roll out (ECHO-2, sections on capacity and provisioning).
/// Pure: no I/O, and its caller passes the time. All decisions come with handle_time(), so that a caller that was away
/// tells all that it has heard before somebody is taken for dead. Then it takes actions until there are none.
///
/// mu_i: admitted rollouts over the time that a full engine would have worked for them, within a sliding window of
/// heartbeats. Neither waiting for the learner's permission nor slots that it left empty count as work: otherwise
/// workers that give more than the learner takes would look as slow as it.
/// Who may forward is the origin's affair: it sees the transfers (transport/core/origin/members/peer_standing.h).
/// T: the median of the last five steps without their waiting for rollouts; five new ones replace it when the set of
/// active workers changes.
/// Hysteresis: too little or too much counts when it lasted for `sustained`, and a release leaves `release_margin`
/// above the target. A dead worker is replaced at once. Until T is known all workers are activated, and a T_bcast that
/// is not known counts as 0.
class Capacity {
 public:
  explicit Capacity(const CapacityOptions& options) : options_(options), step_s_(options.step_s) {}

  /// Errors: kTooLarge (a worker beyond workers_max; nothing changes).
  [[nodiscard]] Status handle_heartbeat(Instant now, const CapacityReport& report);
  /// The learner did a step: `training` without, `waiting` for rollouts.
  void handle_step(Instant now, Duration training, Duration waiting);
  /// Version `version` is published from now on.
  void handle_published(Instant now, Version version);
  /// Deaths, failed activations, sustained deviations. Call it after other inputs, and now and then.
  void handle_time(Instant now);
  [[nodiscard]] std::optional<CapacityAction> poll_action();

  [[nodiscard]] CapacityFigures figures() const;
  /// mu_i; absent until it is measured, or for a worker that is not known.
  [[nodiscard]] std::optional<double> mu_of(const std::string& worker) const;

 private:
  struct Reading {
    Instant at{};
    std::uint64_t admitted = 0;
    double full_load_s = 0;
  };
  struct Worker {
    CapacityReport last;
    Instant heard{};
    bool is_alive = false;
    std::deque<Reading> readings;       // of the window
    std::optional<double> mu;           // the last that was measured
    std::optional<Instant> activated;   // told to roll out, and does not yet
    std::optional<Instant> not_before;  // its activation failed: not again until then
  };
  using Workers = std::map<std::string, Worker>;
  struct Publication {
    Version version{};
    Instant at{};
  };

  void act(CapacityAction::Kind kind, const std::string& worker) {
    if (options_.provisions) actions_.push_back({kind, worker});
  }
  void read(Worker& worker, Instant now, const CapacityReport& report);
  void handle_death(Workers::iterator worker);
  void charge(Instant now);
  void measure_broadcasts();
  [[nodiscard]] std::optional<LoopRates> rates() const;
  /// What a worker gives, or would: measured, promised, or the median of the others.
  [[nodiscard]] double expected_mu(const Worker& worker) const;
  [[nodiscard]] double mu_eff() const;
  [[nodiscard]] static bool counts(const Worker& worker) {
    return worker.is_alive && (worker.last.is_active || worker.activated);
  }
  void provision(Instant now, bool is_urgent);
  /// Tells workers on standby to roll out until the target is reached.
  void activate_until(Instant now, double target);
  void release_one(double target);
  void pool_changed() { steps_since_change_ = 0; }

  CapacityOptions options_;
  Workers workers_;
  std::vector<double> steps_s_;  // the last five
  std::size_t steps_since_change_ = 0;
  std::optional<double> step_s_;
  std::deque<Publication> publications_;  // not yet with everybody
  std::deque<double> broadcasts_s_;       // the last five
  double training_s_ = 0;
  double waiting_s_ = 0;
  double cost_ = 0;
  std::optional<Instant> charged_;
  std::optional<Instant> short_since_;   // mu_eff is below the target
  std::optional<Instant> excess_since_;  // somebody could be released
  std::deque<CapacityAction> actions_;
};

}  // namespace weightcast
