"""deploy/slurm/weightcast.sbatch, by Slurm's own daemons: a controller and three nodes, all on this host."""

import os
import pathlib
import pwd
import subprocess
import unittest

from containers import eventually, run
from scratch import ScratchTest
from weights import write_weights

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "deploy" / "slurm" / "weightcast.sbatch"
NODES = 3
USER = "nobody"
MIB = 2**20


class Slurm(ScratchTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.directory.chmod(0o755)
        cls.shared = cls.directory / "shared"
        cls.shared.mkdir()
        os.chown(cls.shared, pwd.getpwnam(USER).pw_uid, -1)
        host = os.uname().nodename
        hosts = cls.directory / "hosts"
        hosts.write_text(f"127.0.0.1 localhost {host} {' '.join(f'n{i + 1}' for i in range(NODES))}\n")
        run("ip", "link", "set", "lo", "up")
        # Slurm looks its own addresses up by what is no loopback.
        run("ip", "link", "add", "other", "type", "bridge")
        run("ip", "address", "add", "10.75.0.1/24", "dev", "other")
        run("ip", "link", "set", "other", "up")
        run("mount", "--bind", hosts, "/etc/hosts")
        # Of this test alone, so that it sees what a job leaves.
        for place in ("/tmp", "/dev/shm"):
            run("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", place)
        config = cls.directory / "slurm.conf"
        config.write_text(f"""
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
KillWait=20
StateSaveLocation={cls.directory}/ctld
SlurmdSpoolDir={cls.directory}/spool-%n
SlurmctldPidFile={cls.directory}/ctld.pid
SlurmdPidFile={cls.directory}/%n.pid
SlurmctldPort=17000
""" + "".join(f"NodeName=n{i + 1} NodeHostname={host} NodeAddr=127.0.0.1 Port={17001 + i} CPUs=2 State=UNKNOWN\n" for i in range(NODES))
            + f"PartitionName=all Nodes=n[1-{NODES}] Default=YES MaxTime=10 State=UP\n")
        os.environ["SLURM_CONF"] = str(config)
        os.environ["PATH"] = f"{pathlib.Path(os.environ['WEIGHTCAST_PROGRAM']).parent}:{os.environ['PATH']}"
        cls.daemons = []
        for command in (["slurmctld", "-D"], *(["slurmd", "-D", "-N", f"n{i + 1}"] for i in range(NODES))):
            with (cls.directory / f"{'-'.join(command)}.log").open("w") as log:
                cls.daemons.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
            cls.addClassCleanup(cls.daemons[-1].wait, 30)
            cls.addClassCleanup(cls.daemons[-1].terminate)
        try:
            eventually(cls.idle, 60)
        except AssertionError as error:
            raise AssertionError("\n".join(one.read_text()[-2000:] for one in cls.directory.glob("*.log"))) from error

    @classmethod
    def idle(cls):
        asked = subprocess.run(["sinfo", "-h", "-t", "idle", "-o", "%D"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return asked.stdout.strip() == str(NODES)

    def submit(self, train, engine):
        """The job's number, and the file of what it prints."""
        output = self.shared / f"{self.id()}.log"
        printed = run("setpriv", "--reuid", USER, "--regid", "nogroup", "--clear-groups", "sbatch", "--parsable", f"--nodes={NODES}",
                      f"--output={output}", SCRIPT, train, engine, cwd=self.shared, env={**os.environ, "SHARED": str(self.shared)})
        return printed.strip(), output

    def ended(self, job):
        """Waits until the job has ended, and returns its state and exit status."""
        def asked():
            shown = dict(word.split("=", 1) for word in run("scontrol", "show", "job", job).split() if "=" in word)
            return shown["JobState"] not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING") and (shown["JobState"], shown["ExitCode"])

        return eventually(asked, 180)

    def nothing_left(self):
        eventually(self.idle, 120)
        left = subprocess.run(["pgrep", "-a", "weightcast"], stdout=subprocess.PIPE, text=True)
        self.assertEqual(left.stdout, "")
        self.assertEqual([one.name for place in ("/tmp", "/dev/shm") for one in pathlib.Path(place).iterdir()], [])

    def test_a_job_runs_to_its_end_and_leaves_nothing(self):
        write_weights(self.shared / "model.safetensors", 8 * MIB, 1)
        train = ('weightcast publish "$SHARED/model.safetensors" --version 1 --wait 1 --timeout 120; '
                 'until [ "$(ls "$SHARED" | grep -c "^have-")" = 2 ]; do sleep 0.2; done')
        engine = ('weightcast ready --with-version --timeout 120 && cmp "$(weightcast path)/model.safetensors" "$SHARED/model.safetensors" '
                  '&& touch "$SHARED/have-$SLURMD_NODENAME" && exec sleep 600')
        job, output = self.submit(train, engine)
        self.assertEqual(self.ended(job), ("COMPLETED", "0:0"), output.read_text())
        self.assertEqual({one.name for one in self.shared.glob("have-*")}, {"have-n2", "have-n3"})
        self.nothing_left()

    def test_a_job_that_is_cancelled_leaves_nothing(self):
        job, output = self.submit("sleep 600", 'touch "$SHARED/runs-$SLURMD_NODENAME"; exec sleep 600')
        eventually(lambda: len(list(self.shared.glob("runs-*"))) == 2, 120)
        run("scancel", job)
        self.assertEqual(self.ended(job)[0], "CANCELLED", output.read_text())
        self.nothing_left()

    def test_an_engine_that_fails_ends_the_job(self):
        job, output = self.submit("sleep 600", 'test "$SLURMD_NODENAME" != n3 || exit 3; exec sleep 600')
        state, status = self.ended(job)
        self.assertEqual(state, "FAILED", output.read_text())
        self.assertNotEqual(status, "0:0")
        self.nothing_left()


if __name__ == "__main__":
    unittest.main(verbosity=2)
