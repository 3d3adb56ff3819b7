#include "base/process.h"
#include "tools/worker/worker_commands.h"

int main(int argc, char** argv) {
  weightcast::set_up_process();
