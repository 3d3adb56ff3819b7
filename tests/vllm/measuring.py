"""What the measure_*.py share: a model that is not tiny, a case of the tests that serves it, and how figures are printed."""

import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "python"), str(HERE.parent / "python"), str(HERE)]

import transformers  # noqa: E402


def model_config(vocab_size, hidden_size, layers, heads):
    return transformers.Qwen3Config(
        vocab_size=vocab_size, hidden_size=hidden_size, intermediate_size=3 * hidden_size, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=4, head_dim=64, max_position_embeddings=1024, tie_word_embeddings=False)


def milliseconds(seconds):
    values = sorted(1e3 * value for value in seconds)
    return f"median {statistics.median(values):.1f} ms, {values[0]:.1f} to {values[-1]:.1f}"


def run(case):
    """Runs one test case without a test runner, so that what it prints is all that there is."""
    case.setUp()
    try:
        case.runTest()
    finally:
        case.doCleanups()
