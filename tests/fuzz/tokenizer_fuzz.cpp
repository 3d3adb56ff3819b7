// A tokenizer.json and, behind a NUL, a text: what is not refused encodes the text or says why not, and its ids decode.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "trainer/model/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weightcast;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), size);
  const auto tokenizer = Tokenizer::parse(input.substr(0, end));
  if (!tokenizer) {
    WC_CHECK(!tokenizer.error().detail.empty());
    return 0;
  }
  const std::string_view text = end < size ? input.substr(end + 1) : "Hello, 12 worlds\n <|im_end|>\xff";
  for (const bool special_tokens : {false, true}) {
    const auto ids =
        tokenizer->encode(text, {.normalize = !special_tokens, .special_tokens = special_tokens, .surround = true});
    if (!ids) {
      WC_CHECK(!ids.error().detail.empty());
      continue;
    }
    WC_CHECK(tokenizer->decode(*ids).has_value());
    WC_CHECK(tokenizer->decode(*ids, {.skip_special_tokens = true, .begins = false}).has_value());
  }
  const TokenId any[] = {0, static_cast<TokenId>(tokenizer->vocab_size())};
  (void)tokenizer->decode(any);
  return 0;
}
