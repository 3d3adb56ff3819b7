#include "transport/http/exchange.h"

#include <utility>

#include "transport/http/server.h"

namespace weightcast {

HttpStream& HttpStream::operator=(HttpStream&& other) noexcept {
  if (this != &other) {
    end();
    exchange_ = std::move(other.exchange_);
  }
  return *this;
}
bool HttpStream::write(std::string_view bytes) { return exchange_ != nullptr && exchange_->write(bytes); }
void HttpStream::end() {
  if (exchange_ != nullptr) exchange_->end();
  exchange_.reset();
}

HttpResponder::~HttpResponder() {
  if (exchange_ != nullptr) exchange_->give_up();
}
HttpResponder& HttpResponder::operator=(HttpResponder&& other) noexcept {
  if (this != &other) {
    if (exchange_ != nullptr) exchange_->give_up();
    exchange_ = std::move(other.exchange_);
  }
  return *this;
}
void HttpResponder::send(HttpResponse response) {
  WC_CHECK(exchange_ != nullptr);
  std::exchange(exchange_, nullptr)->answer(std::move(response), false);
}
HttpStream HttpResponder::stream(HttpResponse head) {
  WC_CHECK(exchange_ != nullptr);
  exchange_->answer(std::move(head), true);
  return HttpStream(std::exchange(exchange_, nullptr));
}
void HttpResponder::on_gone(std::function<void()> gone) {
  WC_CHECK(exchange_ != nullptr);
  exchange_->on_gone(std::move(gone));
}
bool HttpResponder::gone() const { return exchange_ == nullptr || exchange_->gone(); }

}  // namespace weightcast
