#include "transport/security/base64.h"

#include <openssl/evp.h>

namespace weightcast {

void append_base64(std::span<const std::byte> bytes, std::string& text) {
  const std::size_t before = text.size();
  text.resize(before + (bytes.size() + 2) / 3 * 4 + 1);  // one more for the encoder's end
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data() + before),
                  reinterpret_cast<const unsigned char*>(bytes.data()), int(bytes.size()));
  text.pop_back();
}

}  // namespace weightcast
