"""S3 as others have it: moto's server, which checks each signature as Amazon does, and boto3 beside our commands."""

import json
import os
import pathlib
import subprocess
import unittest
import unittest.mock
import urllib.request

import boto3
import weightcast
from botocore.exceptions import ClientError
from daemons import PROGRAM, DaemonTest, eventually

BUCKET = "archive-bucket"
PREFIX = "runs/first run+~$ü"
PLACE = f"s3://{BUCKET}/{PREFIX}"


class S3Archive(DaemonTest):
    def setUp(self):
        super().setUp()
        server = self.start_python(
            "moto", "-c", "import sys; from moto.server import main; sys.exit(main())", "-H", "127.0.0.1", "-p", "0")

        def url():
            said = self.log_of("moto")
            self.assertIsNone(server.poll(), said)
            return next((word for word in said.split() if word.startswith("http://127.0.0.1:")), None)

        self.url = eventually(url, 60)
        anybody = dict(endpoint_url=self.url, region_name="eu-central-1", aws_access_key_id="a", aws_secret_access_key="a")
        iam = boto3.client("iam", **anybody)
        iam.create_user(UserName="archivist")
        allowed = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
        iam.put_user_policy(UserName="archivist", PolicyName="s3", PolicyDocument=json.dumps(allowed))
        key = iam.create_access_key(UserName="archivist")["AccessKey"]
        self.keys = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
        self.s3 = boto3.client("s3", **anybody | dict(aws_access_key_id=key["AccessKeyId"],
                                                      aws_secret_access_key=key["SecretAccessKey"]))
        self.s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        # From now on each request has to be signed by that user.
        reset = urllib.request.Request(self.url + "/moto-api/reset-auth", data=b"0", headers={"Content-Type": "text/plain"})
        urllib.request.urlopen(reset, timeout=60).close()

    def run_program(self, *arguments, **environment):
        mine = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        mine |= {"AWS_ENDPOINT_URL": self.url, "AWS_REGION": "eu-central-1", "HOME": str(self.directory)}
        return subprocess.run([PROGRAM, *map(str, arguments)], env=mine | self.keys | environment, capture_output=True,
                              text=True, timeout=120)

    def archive(self, **environment):
        return self.run_program("archive", "--state", self.origin.state, "--to", PLACE, **environment)

    def fetch(self, version):
        output = self.directory / f"fetched-{version}"
        return self.run_program("fetch", "--from", PLACE, "--version", version, "-o", output), output

    def objects(self):
        listed = self.s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])
        return {entry["Key"].removeprefix(PREFIX + "/"): entry["Size"] for entry in listed}

    def publish(self, publisher, start):
        """Returns the file that holds the version."""
        version = publisher.publish({"weight": memoryview(bytearray(range(start, start + 100)) * 20000)})
        words = [PROGRAM, "path", "--state", self.origin.state, "--version", str(version)]
        path = eventually(lambda: subprocess.run(words, capture_output=True, text=True).stdout.strip())
        return version, (pathlib.Path(path) / "model.safetensors").read_bytes()

    def test_what_is_archived_comes_back_and_boto3_reads_the_same(self):
        with weightcast.Publisher(self.origin.state) as publisher:
            first, first_bytes = self.publish(publisher, 0)
            ran = self.archive()
            self.assertEqual(ran.returncode, 0, ran.stderr)
            second, second_bytes = self.publish(publisher, 100)
            ran = self.archive()
            self.assertEqual(ran.returncode, 0, ran.stderr)
        objects = self.objects()
        index = json.loads(self.s3.get_object(Bucket=BUCKET, Key=f"{PREFIX}/index.json")["Body"].read())
        self.assertEqual(index["payloads"][0]["version"], first)
        run = index["run"]
        stream = self.s3.get_object(Bucket=BUCKET, Key=f"{PREFIX}/{run}-{first:012}.00000")["Body"].read()
        self.assertEqual(stream, first_bytes)
        for version, content in ((first, first_bytes), (second, second_bytes)):
            ran, output = self.fetch(version)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertEqual((output / "model.safetensors").read_bytes(), content)
        # What is there is not sent again.
        ran = self.archive()
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual(self.objects(), objects)

    def test_a_worker_reads_its_first_version_beside_a_slow_origin(self):
        slow = self.start("slow", "--role", "origin", "--listen", "127.0.0.1:0", "--uplink", "4mbit", "--pack", "never")
        self.origin.close()
        self.origin = slow
        with weightcast.Publisher(slow.state) as publisher:
            version, content = self.publish(publisher, 0)
            ran = self.archive()
            self.assertEqual(ran.returncode, 0, ran.stderr)
            aws = self.keys | {"AWS_ENDPOINT_URL": self.url, "AWS_REGION": "eu-central-1", "HOME": str(self.directory)}
            with unittest.mock.patch.dict(os.environ, aws):
                worker = self.start_worker("joiner", "--archive", PLACE)
            eventually(lambda: worker.node()["version"] == version, 120)
            with weightcast.load(worker.state) as weights:
                self.assertEqual(bytes(weights["weight"].data), content[-len(bytes(weights["weight"].data)):])
            node = worker.node()
            self.assertGreater(node["archive_bytes"], 0)
            self.assertEqual(node["archive_trouble"], "")
            self.assertNotIn(self.keys["AWS_SECRET_ACCESS_KEY"], (self.directory / "joiner.log").read_text())

    def test_wrong_keys_and_changed_objects_are_refused(self):
        with weightcast.Publisher(self.origin.state) as publisher:
            version, content = self.publish(publisher, 0)
        secret = "0123456789abcdef0123456789abcdef01234567"
        ran = self.archive(AWS_SECRET_ACCESS_KEY=secret)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("403", ran.stderr)
        self.assertNotIn(secret, ran.stderr)
        self.assertEqual(self.objects(), {})

        ran = self.archive()
        self.assertEqual(ran.returncode, 0, ran.stderr)
        name = next(name for name in self.objects() if name.endswith(".00000"))
        changed = bytearray(content)
        changed[len(changed) // 2] ^= 1
        self.s3.put_object(Bucket=BUCKET, Key=f"{PREFIX}/{name}", Body=bytes(changed))
        ran, output = self.fetch(version)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("not what was published", ran.stderr)
        self.assertFalse(output.exists())
        self.s3.delete_object(Bucket=BUCKET, Key=f"{PREFIX}/{name}")
        with self.assertRaises(ClientError):
            self.s3.get_object(Bucket=BUCKET, Key=f"{PREFIX}/{name}")
        ran, _ = self.fetch(version)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("no such object", ran.stderr)
        # Right again, and what had arrived is kept.
        self.s3.put_object(Bucket=BUCKET, Key=f"{PREFIX}/{name}", Body=content)
        ran, output = self.fetch(version)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual((output / "model.safetensors").read_bytes(), content)


if __name__ == "__main__":
    unittest.main()
