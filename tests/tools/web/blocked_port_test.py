"""The page names a worker whose port the others cannot reach: behind a firewall, in a network of this process's own."""

import ctypes
import shutil
import subprocess
import unittest

import browser
from daemon_test import PageOfDaemons

CLONE_NEWNET = 0x40000000


class BlockedPortTest(PageOfDaemons):
    def setUp(self):
        if not browser.chromium():
            self.skipTest("chromium is not installed")
        if not shutil.which("iptables") or not shutil.which("ip"):
            self.skipTest("iptables or ip is not installed")
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
            self.skipTest("only root may make network namespaces")
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        super().setUp()

    def test_is_named_with_its_address_and_the_reason(self):
        url = self.serve("--topology", "chain", "--uplink", "20mbit")
        workers = [
            self.start_worker(f"gpu-{number}", "--uplink", "20mbit", "--downlink", "20mbit") for number in (1, 2, 3)
        ]
        # Nobody reaches the ports of two, so whoever is planned behind one of them says so.
        blocked = {worker.name: worker.node()["address"] for worker in workers[:2]}
        for address in blocked.values():
            port = address.rsplit(":", 1)[1]
            rule = f"iptables -A INPUT -p tcp --dport {port} -j REJECT --reject-with tcp-reset"
            subprocess.run(rule.split(), check=True)
        page = self.open(url)
        self.publish(1)
        said = page.see("#attention", "cannot reach")
        name = next(name for name in blocked if f"cannot reach {name} at {blocked[name]}: connection refused" in said)
        # In the table, too, where a search finds it.
        page.run("document.querySelector('#query').focus()")
        page.call("Input.insertText", text=f"cannot reach {name}")
        page.see("#worker-table tbody", f"cannot reach {name} at")


if __name__ == "__main__":
    unittest.main()
