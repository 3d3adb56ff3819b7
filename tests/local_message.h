#pragma once

#include <gtest/gtest.h>

#include "proto/local_messages.h"

namespace weightcast {

/// What `message` carries. Where it is of another kind the test fails, and goes on with an empty one.
template <typename M>
[[nodiscard]] M as(const local::Message& message) {
  const M* found = message.get<M>();
  EXPECT_NE(found, nullptr) << "the message is of kind " << message.kind.index() << ", not " << M::kNumber;
  return found != nullptr ? *found : M();
}

}  // namespace weightcast
