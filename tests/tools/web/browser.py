"""A headless Chromium, spoken to by its DevTools protocol over pipes. Python's standard library alone.

The protocol: https://chromedevtools.github.io/devtools-protocol. Messages are JSON, each ended by a zero byte, on the
browser's descriptors 3 (to it) and 4 (from it).
"""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time


def chromium():
    """The program's path, or None where it is not installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Failed(Exception):
    pass


class Browser:
    """Owns a browser's process and its profile, which end with it. One page."""

    def __init__(self, width=1440, height=1000, dark=False):
        self._profile = tempfile.TemporaryDirectory(
            prefix="weightcast-web-", dir=os.environ.get("TMPDIR", "/var/tmp"), ignore_cleanup_errors=True
        )
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()

        def give_pipes():
            # First out of the way of each other.
            a, b = os.dup(to_browser), os.dup(from_browser)
            high = os.dup2(a, 100), os.dup2(b, 101)
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [
                chromium(),
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--remote-debugging-pipe",
                "--no-first-run",
                "--disable-extensions",
                "--disable-background-networking",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                f"--user-data-dir={self._profile.name}",
                f"--window-size={width},{height}",
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=give_pipes,
            env={**os.environ, "HOME": self._profile.name},
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self._session = None
        self.problems = []  # what the page's console and its exceptions said
        self.requested = []  # addresses that the page asked for
        target = next(one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Runtime", "Page", "Log", "Network", "Performance"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        if dark:
            self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.process.poll() is None:
            try:
                self._session = None
                self.call("Browser.close", limit_s=10)
                self.process.wait(10)
            except (Failed, OSError, subprocess.TimeoutExpired):
                self.process.kill()
                self.process.wait()
        os.close(self._out)
        os.close(self._in)
        self._profile.cleanup()

    # ---- the protocol

    def call(self, method, limit_s=60, **parameters):
        """What the browser answers."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + limit_s
        while True:
            answer = self._next(deadline, method)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise Failed(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def _next(self, deadline, waiting_for):
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._in], [], [], left)[0]:
                raise Failed(f"the browser did not answer {waiting_for} in time")
            part = os.read(self._in, 1 << 20)
            if not part:
                raise Failed(f"the browser ended with status {self.process.wait()}")
            self._buffer += part
        one, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(one)
        self._note(message)
        return message

    def _note(self, message):
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.problems.append(" ".join(str(one.get("value", one.get("description"))) for one in parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.problems.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requested.append(parameters["request"]["url"])

    # ---- the page

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def run(self, script, as_page=False):
        """The value of an expression, or of a promise. `as_page`: the page's policy counts for eval(), too."""
        answer = self.call(
            "Runtime.evaluate",
            expression=script,
            returnByValue=True,
            awaitPromise=True,
            allowUnsafeEvalBlockedByCSP=not as_page,
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise Failed(f"{script}: {details.get('exception', {}).get('description', details['text'])}")
        return answer["result"].get("value")

    def text(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def wait(self, script, limit_s=60):
        """What the expression gives, once that is true."""
        deadline = time.monotonic() + limit_s
        while True:
            value = self.run(script)
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"not within {limit_s} s: {script}; the page says {self.text('main')[:600]!r}; "
                    f"problems: {self.problems}"
                )
            time.sleep(0.05)

    def see(self, selector, *texts):
        """Waits until the element's text has all of these, and returns it."""
        element = f"document.querySelector({json.dumps(selector)}).innerText"
        return self.wait(f"{json.dumps(texts)}.every((text) => {element}.includes(text)) && {element}")

    def press(self, key, code=None, text=None):
        parameters = {
            "key": key,
            "code": code or key,
            "windowsVirtualKeyCode": {
                "Enter": 13,
                "Tab": 9,
                "ArrowRight": 39,
                "ArrowDown": 40,
                "ArrowLeft": 37,
                "ArrowUp": 38,
            }.get(key, 0),
        }
        if text:
            parameters["text"] = text
        self.call("Input.dispatchKeyEvent", type="keyDown", **parameters)
        self.call("Input.dispatchKeyEvent", type="keyUp", **parameters)

    def screenshot(self, path, whole=False):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def cpu_s(self):
        """Processor time of the browser and of what it started, so far."""
        total = 0.0
        waiting = [self.process.pid]
        while waiting:
            pid = waiting.pop()
            try:
                fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                    waiting += map(int, (task / "children").read_text().split())
            except OSError:
                continue
        return total
