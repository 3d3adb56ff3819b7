#pragma once

#include "weightcast/weightcast.hpp"

namespace weightcast {

/// The code that `call` ends with.
template <typename Call>
wc_code code_of(const Call& call) {
  try {
    static_cast<void>(call());
    return WC_OK;
  } catch (const wc::Error& error) {
    return error.code();
  }
}

}  // namespace weightcast
