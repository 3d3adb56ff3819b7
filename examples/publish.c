/* Publishes two tensors, filled in place. Usage: publish STATE_DIR */
#include <stdio.h>
#include <string.h>
#include <weightcast/weightcast.h>

static int fail(const wc_error* error) {
  fprintf(stderr, "%s\n", error->message);
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: publish STATE_DIR\n");
    return 2;
  }
  wc_error error = WC_INIT(error);
  wc_client* client = NULL;
  if (wc_open(argv[1], 5000, &client, &error) != WC_OK) return fail(&error);

  const uint64_t shape[] = {2, 3};
  const wc_tensor tensors[] = {{.name = "layer.weight", .dtype = "F32", .shape = shape, .rank = 2},
                               {.name = "layer.bias", .dtype = "F32", .shape = shape, .rank = 1}};
  const float values[] = {1, 2, 3, 4, 5, 6};
  void* places[2];
  if (wc_begin(client, NULL, tensors, 2, places, 5000, &error) != WC_OK) return fail(&error);
  memcpy(places[0], values, sizeof values); /* or from a device, straight to here */
  memcpy(places[1], values, 2 * sizeof *values);
  uint64_t version = 0;
  if (wc_commit(client, NULL, 5000, &version, &error) != WC_OK) return fail(&error);
  if (wc_wait(client, version, NULL, 60000, NULL, &error) != WC_OK) return fail(&error);
  printf("published version %llu\n", (unsigned long long)version);
  wc_close(client);
  return 0;
}
