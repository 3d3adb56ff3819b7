#!/usr/bin/env python3
"""What the page for operators costs a headless Chromium, which draws without a GPU.

Usage: page_cost.py PAGE [--workers 1000] [--every 0.25] [--seconds 20] [--json FILE]. PAGE is the build's
web/page.html. A version arrives at all workers all the time. --every: seconds between changes that the page is told of.
"""

import argparse
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "tools" / "web"))
import browser  # noqa: E402
import simulated  # noqa: E402

FRAMES = """new Promise((done) => {
  const begin = performance.now(), late = [];
  let frames = 0, last = begin, down = 1;
  const step = () => {
    const now = performance.now();
    late.push(now - last);
    last = now;
    ++frames;
    if (scrollY <= 0) down = 1;
    if (scrollY + innerHeight >= document.body.scrollHeight - 10) down = -1;
    scrollBy(0, 12 * down);
    if (now - begin < 5000) requestAnimationFrame(step);
    else done([1000 * frames / (now - begin), late.sort((a, b) => a - b)[Math.floor(0.99 * late.length)]]);
  };
  requestAnimationFrame(step);
})"""


def cores(seen, seconds):
    """What all of the browser's processes take."""
    before, began = seen.cpu_s(), time.monotonic()
    time.sleep(seconds)
    return (seen.cpu_s() - before) / (time.monotonic() - began)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("page")
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--every", type=float, default=0.25)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--json")
    options = parser.parse_args()
    if not browser.chromium():
        sys.exit("page_cost: chromium is not installed")
    page = pathlib.Path(options.page).read_bytes()
    server = simulated.Server(page, simulated.Fleet(options.workers, publications=1000), every_s=options.every)
    result = {"workers": options.workers, "every_s": options.every, "page_bytes": len(page)}
    with browser.Browser() as seen:
        result["cores_blank"] = cores(seen, options.seconds)
        seen.open(server.url)
        seen.wait(f"document.querySelectorAll('.cell, .node').length >= {options.workers}")
        paints = dict(seen.run("performance.getEntriesByType('paint').map((one) => [one.name, one.startTime])"))
        result["first_paint_s"] = paints["first-contentful-paint"] / 1000
        time.sleep(3)
        for place in ("top", "table"):
            seen.run("scrollTo(0, 0)" if place == "top" else "document.querySelector('#workers').scrollIntoView()")
            time.sleep(2)
            result[f"cores_{place}"] = cores(seen, options.seconds)
        result["frames_per_s"], result["frame_p99_ms"] = seen.run(FRAMES)
    server.close()
    print(json.dumps(result))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
