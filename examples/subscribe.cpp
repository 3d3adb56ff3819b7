// Prints each version that comes into use. Usage: subscribe STATE_DIR COUNT
#include <iostream>
#include <string>
#include <weightcast/weightcast.hpp>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: subscribe STATE_DIR COUNT\n";
    return 2;
  }
  using namespace std::chrono_literals;
  try {
    wc::Subscription subscription(argv[1]);
    for (int left = std::stoi(argv[2]); left > 0;) {
      const std::optional<wc::Event> event = subscription.next(60s);
      if (!event) break;
      if (event->kind != WC_EVENT_INSTALLED) continue;
      std::cout << "version " << event->version << " is in " << event->directory << std::endl;
      --left;
    }
  } catch (const wc::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
