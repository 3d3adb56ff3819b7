"""A task in twenty lines: answer with one letter, again and again. See docs/TASKS.md."""

from weightcast.tasks import Task, serve


class Letters(Task):
    name = "letters"
    metadata = ["letter", "solution"]

    def prompt(self, index):
        letter = "abcdefgh"[index % 8]
        return f"{letter}:", {"letter": letter, "solution": letter * 3}

    def score(self, metadata, response):
        share = response.count(metadata["letter"]) / max(3, len(response))
        return share, share == 1


serve(Letters())
