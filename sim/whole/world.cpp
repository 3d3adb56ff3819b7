#include "sim/whole/world.h"

#include "sim/whole/world_run.h"

namespace weightcast::sim {

WorldResult::Counts& WorldResult::Counts::operator+=(const Counts& other) {
  events += other.events;
  published += other.published;
  sparse += other.sparse;
  refused += other.refused;
  starts += other.starts;
  readers += other.readers;
  patches += other.patches;
  packed += other.packed;
  full += other.full;
  hash += other.hash;
  return *this;
}

WorldResult simulate(const WorldOptions& options) { return WorldRun(options).run(); }

}  // namespace weightcast::sim
