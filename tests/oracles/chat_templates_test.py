"""Conversations at `weightcast-engine serve` under each chat template that TRL ships: it renders as the template does, or
it refuses them."""

import json
import unittest
import urllib.error
import urllib.request

import jinja2
from golden import installed
from served_model import Served

RENDERED = {"qwen2_5", "qwen3", "qwen3_instruct_2507"}
CONVERSATIONS = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}],
    [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "It is 4."}, {"role": "user", "content": "Sure?"}]]


def tokens(served, messages):
    """What /tokenize makes of them; None if it refuses them."""
    request = urllib.request.Request(served.url + "/tokenize", json.dumps({"messages": messages}).encode())
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)["tokens"]
    except urllib.error.HTTPError as error:
        if error.code != 400 or b"chat template" not in error.read():
            raise
        return None


def spelled(ids):
    return b"".join({256: b"<|endoftext|>", 257: b"<|im_start|>", 258: b"<|im_end|>"}.get(i) or bytes([i]) for i in ids).decode()


class ChatTemplates(unittest.TestCase):
    def test_each_is_rendered_as_it_says_or_refused(self):
        environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        rendered = set()
        for file in sorted((installed("trl") / "chat_templates").glob("*.jinja")):
            if file.stem.endswith("_training"):
                continue  # TRL's own, which no model comes with
            served = Served(chat_template=file.read_text())
            try:
                answers = [tokens(served, messages) for messages in CONVERSATIONS]
            finally:
                served.stop()
            if answers == [None] * len(CONVERSATIONS):
                continue
            rendered.add(file.stem)
            template = environment.from_string(file.read_text())
            for messages, ids in zip(CONVERSATIONS, answers):
                expected = template.render(messages=messages, tools=None, add_generation_prompt=True)
                self.assertEqual(spelled(ids), expected, file.stem)
        self.assertEqual(rendered, RENDERED)


if __name__ == "__main__":
    unittest.main()
