"""Qwen's own chat templates, as TRL ships them, on random conversations."""

import random

import jinja2
from golden import installed

TEXTS = ["Hi", "", "2+2?\n", "\n\nline\n", "It is 4.", "<think>\nhm\n</think>\n\nIt is 4.", "<think>a</think>b", "<think>\n\n</think>\n\nx",
         "x</think>y</think>\n\nz", "<tool_response>7</tool_response>", "日本語 😀", "<think>open", "a <think>b</think> <think>c</think>\nd"]


def conversation(source):
    messages = [{"role": "system", "content": source.choice(TEXTS)}] if source.random() < 0.4 else []
    for _ in range(source.randint(1, 6)):
        messages.append({"role": source.choice(["user", "assistant", "user", "assistant", "system"]), "content": source.choice(TEXTS)})
    return messages


def lines(count):
    # As transformers renders them.
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    folder = installed("trl") / "chat_templates"
    templates = {name: environment.from_string((folder / f"{name}.jinja").read_text()) for name in ("qwen2_5", "qwen3")}
    source = random.Random(3)
    for _ in range(count):
        line = {
            "style": source.choice(sorted(templates)),
            "messages": conversation(source),
            "add_generation_prompt": source.random() < 0.5,
            "enable_thinking": source.random() < 0.5,
        }
        line["text"] = templates[line["style"]].render(
            messages=line["messages"],
            tools=None,
            add_generation_prompt=line["add_generation_prompt"],
            enable_thinking=line["enable_thinking"],
        )
        yield line
