"""verl's scorers of GSM8K and MATH, on responses that are put together from pieces at random."""

import contextlib
import io
import random

from golden import installed, load

PIECES = [
    "#### ", "####", "##### ", "#### -", "####  ", "#### $", "18", "-3", "1,234", "1,2,3", "3.50", ".5", "5.", ".", ",", "-", "--",
    "$", "$18", "%", "\\%", "25%", " ", "  ", "\n", "The answer is ", "so ", "x=", "x = ", "xyz=", "=", "{", "}", "\\", "\\\\", "\\!",
    "\\boxed{", "\\boxed ", "\\boxed", "\\fbox{", "\\frac", "\\frac12", "\\frac{1}{2}", "\\frac1{2}", "\\dfrac{3}{4}", "\\tfrac34",
    "1/2", "01/2", "-1/2", "1/-2", "1/2/3", "a/b", "0.5", "\\sqrt", "\\sqrt2", "\\sqrt{3}", "\\text{ km}", "\\text{km}", "\\text{ ",
    "^\\circ", "^{\\circ}", "\\left(", "\\right)", "(", ")", "\\pi", "é", "日本", "½", "٣", "²", "x", "y", "7", "0", "12",
]
TRUTHS = ["18", "-3", "1234", "1/2", "\\frac{1}{2}", "0.5", "3\\sqrt{2}", "25", "x", "\\frac12", "7", ".5", "5 \\text{ km}", "2\\pi"]


def response(source):
    parts = [source.choice(PIECES) for _ in range(source.randint(0, 14))]
    kind = source.random()
    truth = source.choice(TRUTHS)
    if kind < 0.3:
        parts.append("\\boxed{" + (truth if source.random() < 0.6 else "".join(source.choices(PIECES, k=3))) + "}")
    elif kind < 0.4:
        parts.append("\\boxed " + truth + "$ and")
    elif kind < 0.55:
        parts.append("#### " + truth)
    if source.random() < 0.1:
        parts.insert(source.randint(0, len(parts)), source.choice(["word ", "é", "12 "]) * source.randint(50, 120))
    return "".join(parts), truth


def lines(count):
    scores = installed("verl") / "utils" / "reward_score"
    gsm8k = load(scores / "gsm8k.py", "verl_gsm8k")
    math_reward = load(scores / "math_reward.py", "verl_math_reward")
    source = random.Random(8)
    for _ in range(count):
        text, truth = response(source)
        with contextlib.redirect_stdout(io.StringIO()):  # it prints what it catches
            equal = math_reward.compute_score(text, truth) == 1.0
        yield {
            "response": text,
            "truth": truth,
            "strict": gsm8k.extract_solution(text, "strict"),
            "flexible": gsm8k.extract_solution(text, "flexible"),
            "boxed_equal": equal,
        }
