#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace weightcast {

struct ProcessGroupOptions {
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::string rendezvous;  ///< HOST:PORT, where rank 0 listens
  Duration join_time_max = std::chrono::seconds(60);
  Duration silence_max = std::chrono::seconds(10);  ///< after which a rank counts as dead
  bool use_nccl = false;                            ///< tensors of exchanges are on a CUDA device
};

/// The processes of one learner, and what they do together. All ranks make the same calls in the same order. A rank
/// that ends or falls silent ends the calls of the others: their error names it, within silence_max and a few seconds.
/// One thread uses it; another one of its own watches the other ranks. Connections are neither encrypted nor
/// authenticated: they belong into a network of one's own.
class ProcessGroup {
 public:
  /// Something under way. Its tensors stay as they are until wait().
  class Pending {
   public:
    virtual ~Pending() = default;
    /// Errors: kClosed, which names the rank that is gone.
    [[nodiscard]] virtual Status wait() = 0;
  };

  virtual ~ProcessGroup() = default;
  [[nodiscard]] virtual std::uint32_t rank() const = 0;
  [[nodiscard]] virtual std::uint32_t world_size() const = 0;

  /// Gives each rank r the `send_cells[r]` cells of `send` that follow those of the ranks before, and gets
  /// `receive_cells[r]` from each. Tensors are flat, contiguous, and of one type.
  [[nodiscard]] virtual Result<std::unique_ptr<Pending>> exchange(torch::Tensor send, torch::Tensor receive,
                                                                  std::vector<std::int64_t> send_cells,
                                                                  std::vector<std::int64_t> receive_cells) = 0;
  /// Every rank gets the bytes that `root` has, which are equally many everywhere. Errors: as wait().
  [[nodiscard]] virtual Status broadcast(std::span<std::byte> bytes, std::uint32_t root) = 0;
  /// The next command of rank 0, for the others; waits as long as rank 0 lives. Errors: as wait().
  [[nodiscard]] virtual Result<std::string> next_command() = 0;
  /// For rank 0.
  [[nodiscard]] virtual Status send_command(const std::string& command) = 0;
  /// Which other rank is gone, and why; "" if all live, as far as is known.
  [[nodiscard]] virtual std::string gone() const = 0;
  /// Tells the others why this rank ends, so that they need not wait for its silence. "" at a proper end.
  virtual void leave(const std::string& reason) = 0;
};

/// Each rank's text, on all ranks. All ranks. Errors: those of exchange() and wait().
[[nodiscard]] Result<std::vector<std::string>> gather_texts(ProcessGroup& group, const std::string& text);

/// Joins: returns when all ranks have. Errors: kTimedOut, which says how many are missing; kUnsupported (a build
/// without Gloo, or without NCCL); kInvalidArgument (an address that is none).
[[nodiscard]] Result<std::unique_ptr<ProcessGroup>> join_process_group(const ProcessGroupOptions& options);

}  // namespace weightcast
