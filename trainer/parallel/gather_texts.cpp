#include <numeric>

#include "trainer/parallel/process_group.h"

namespace weightcast {

Result<std::vector<std::string>> gather_texts(ProcessGroup& group, const std::string& text) {
  const std::size_t ranks = group.world_size();
  const auto size = static_cast<std::int64_t>(text.size());
  const std::vector<std::int64_t> ones(ranks, 1);
  const torch::Tensor send_sizes = torch::full({static_cast<std::int64_t>(ranks)}, size, torch::kLong);
  const torch::Tensor sizes = torch::empty_like(send_sizes);
  WC_ASSIGN(const auto sizes_pending, group.exchange(send_sizes, sizes, ones, ones));
  WC_TRY(sizes_pending->wait());
  const std::vector<std::int64_t> from(sizes.data_ptr<std::int64_t>(), sizes.data_ptr<std::int64_t>() + ranks);
  std::string sent;
  for (std::size_t r = 0; r < ranks; ++r) sent += text;
  std::string received(static_cast<std::size_t>(std::accumulate(from.begin(), from.end(), std::int64_t{0})), '\0');
  const auto view = [](std::string& of) {
    return torch::from_blob(of.data(), {static_cast<std::int64_t>(of.size())}, torch::TensorOptions(torch::kByte));
  };
  WC_ASSIGN(const auto pending,
            group.exchange(view(sent), view(received), std::vector<std::int64_t>(ranks, size), from));
  WC_TRY(pending->wait());
  std::vector<std::string> texts;
  std::size_t offset = 0;
  for (const std::int64_t length : from) {
    texts.push_back(received.substr(offset, static_cast<std::size_t>(length)));
    offset += static_cast<std::size_t>(length);
  }
  return texts;
}

}  // namespace weightcast
