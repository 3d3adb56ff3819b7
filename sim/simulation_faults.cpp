// What goes wrong in a simulation, and how it is mended.
#include "sim/simulation.h"

namespace weightcast::sim {

void Simulation::begin_fault(const Fault& fault) {
  remember("fault: " + to_text(fault));
  if (fault.kind == FaultKind::kPublish) return publish();
  if (network_.begin(now_, fault)) return;
  for (NodeIndex index = fault.node; index < nodes_.size() && index <= fault.node_last; ++index) {
    Node& node = nodes_[index];
    switch (fault.kind) {
      case FaultKind::kKill: stop_node(index, false); break;
      case FaultKind::kCrash: stop_node(index, true); break;
      case FaultKind::kStall: ++node.stalls; break;
      case FaultKind::kSlowDisk: node.disk.set_rate(fault.rate); break;
      case FaultKind::kFullDisk: node.disk.full = true; break;
      case FaultKind::kSkew: node.clock_offset += fault.by; break;
      case FaultKind::kDrift:
        node.clock_offset = local(index) - now_;
        node.drift_since = now_;
        node.clock_drift = fault.probability;
        break;
      case FaultKind::kLeave:
        if (node.core) {
          node.core->stop("told to leave");
          node.left = true;
          pump(index);
          for (const LinkIndex link : network_.links_of(index)) network_.close(now_, link, index);
          node.core.reset();
          node.worker = nullptr;
          node.liar = nullptr;
        }
        break;
      default: break;
    }
    if (fault.kind == FaultKind::kSkew || fault.kind == FaultKind::kDrift) arm(index);
  }
}

void Simulation::end_fault(const Fault& fault) {
  remember("over: " + to_text(fault));
  if (network_.end(now_, fault)) return;
  for (NodeIndex index = fault.node; index < nodes_.size() && index <= fault.node_last; ++index) {
    Node& node = nodes_[index];
    switch (fault.kind) {
      case FaultKind::kKill:
      case FaultKind::kCrash: start_node(index); break;
      case FaultKind::kStall:
        if (--node.stalls > 0) break;
        resume(index);
        if (index == 0) publish_what_waits();
        break;
      case FaultKind::kSlowDisk: node.disk.set_rate(std::nullopt); break;
      case FaultKind::kFullDisk: node.disk.full = false; break;
      case FaultKind::kDrift:
        node.clock_offset = local(index) - now_;
        node.drift_since = now_;
        node.clock_drift = 0;
        arm(index);
        break;
      default: break;
    }
  }
}

}  // namespace weightcast::sim
