#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "client/local_channel.h"

namespace weightcast {

/// Offers a daemon a sealed memfd of `size_bytes` that begins with `bytes`, as any program of the same user may.
/// Returns "taken over", or the error's message.
inline std::string offer_region(const std::string& state_dir, local::Message::Kind request, std::string_view bytes,
                                std::uint64_t size_bytes) {
  const int fd = ::memfd_create("offered", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(::pwrite(fd, bytes.data(), bytes.size(), 0), ssize_t(bytes.size()));
  EXPECT_EQ(::ftruncate(fd, off_t(size_bytes)), 0);
  EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  const client::Cancellation cancellation;
  const client::Deadline deadline = client::deadline_after(30'000);
  auto channel = client::LocalChannel::open(state_dir, deadline, cancellation);
  EXPECT_TRUE((*channel)->send({.kind = std::move(request)}, deadline, std::span(&fd, 1)).has_value());
  ::close(fd);
  for (;;) {
    const auto answer = (*channel)->receive(deadline);
    if (!answer.has_value()) return answer.error().message();
    if (const auto* error = answer->get<local::ErrorReply>()) return client::error_of(*error).message();
    if (answer->get<local::PublishTaken>() != nullptr) return "taken over";
  }
}

}  // namespace weightcast
