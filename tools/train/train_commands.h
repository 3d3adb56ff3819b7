#pragma once

#include "tools/shell/run_commands.h"

namespace weightcast {

// What weightcast-train can be told to do.

void add_train_run_command(const Commands& commands);
void add_train_plan_command(const Commands& commands);
void add_train_plot_command(const Commands& commands);
/// "check reward|tokenize|advantages", and "check logits|loss" where the build has LibTorch: what a user compares with
/// another framework, JSON in and out.
void add_check_commands(const Commands& commands);
/// "model DIR": what a model is made of, as JSON, after its weights have been checked against config.json.
void add_model_command(const Commands& commands);
#if defined(WEIGHTCAST_TORCH)
void add_train_calibrate_command(const Commands& commands);
/// "merge DIR ADAPTER OUT": a model with a low-rank adapter added to its matrices, as a model of its own.
void add_merge_command(const Commands& commands);
/// "logits DIR --ids 1,2,3", below `check`: the logits after the last of these tokens, as JSON.
void add_check_logits(const Commands& check);
#endif

}  // namespace weightcast
