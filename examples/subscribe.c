/* Prints each version that comes into use. Usage: subscribe STATE_DIR COUNT */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <weightcast/weightcast.h>

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: subscribe STATE_DIR COUNT\n");
    return 2;
  }
  wc_error error = WC_INIT(error);
  wc_subscription* subscription = NULL;
  wc_code code = wc_subscribe(argv[1], 5000, &subscription, &error);
  for (int left = atoi(argv[2]); code == WC_OK && left > 0;) {
    /* An engine adds this descriptor to the loop that it has. */
    struct pollfd watched = {wc_subscription_fd(subscription), POLLIN, 0};
    if (poll(&watched, 1, 60000) == 0) break;
    wc_event event = WC_INIT(event);
    while ((code = wc_next(subscription, 0, &event, &error)) == WC_OK) {
      if (event.kind != WC_EVENT_INSTALLED) continue;
      printf("version %llu is in %s\n", (unsigned long long)event.version, event.directory);
      --left;
    }
    if (code == WC_TIMED_OUT) code = WC_OK; /* nothing more for now */
  }
  if (code != WC_OK) fprintf(stderr, "%s\n", error.message);
  wc_subscription_close(subscription);
  return code == WC_OK ? 0 : 1;
}
