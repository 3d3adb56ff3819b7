// Publishes two tensors, filled in place. Usage: publish STATE_DIR
#include <cstring>
#include <iostream>
#include <vector>
#include <weightcast/weightcast.hpp>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: publish STATE_DIR\n";
    return 2;
  }
  using namespace std::chrono_literals;
  try {
    wc::Client client(argv[1]);
    std::vector<wc::Tensor> tensors(2);
    tensors[0].name = "layer.weight";
    tensors[0].dtype = "F32";
    tensors[0].shape = {2, 3};
    tensors[1].name = "layer.bias";
    tensors[1].dtype = "F32";
    tensors[1].shape = {2};
    const float values[] = {1, 2, 3, 4, 5, 6};
    const std::vector<void*> places = client.begin(tensors, {}, 5s);
    std::memcpy(places[0], values, sizeof values);  // or from a device, straight to here
    std::memcpy(places[1], values, 2 * sizeof *values);
    const std::uint64_t version = client.commit(5s);
    client.wait(version, {}, 60s);
    std::cout << "published version " << version << '\n';

    // The next one: only the cells that changed.
    const std::uint32_t cells[] = {1, 4};
    const float changed[] = {2.5, 5.5};
    wc::Change change;
    change.name = "layer.weight";
    change.dtype = "F32";
    change.indices = cells;
    change.values = changed;
    change.count = 2;
    const std::uint64_t next = client.publish_sparse(version, {change}, {}, 5s);
    client.wait(next, {}, 60s);
    std::cout << "published version " << next << '\n';
  } catch (const wc::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
