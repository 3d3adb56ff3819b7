#!/bin/bash
# use.sh, in a root that has nothing but Debian's smallest system and python3: the packages in /try are installed, used,
# upgraded below running daemons, and removed.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
cd /try
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
install() {  # install RELEASE NAME...: what apt would do for a user, with all that the packages depend on
  local release=$1 name files=()
  shift
  for name; do files+=(/try/"${name}"_*-"${release}"_*.deb); done
  apt-get install -y -q --no-install-recommends "${files[@]}" >log 2>&1 || fail "apt: $(tail -n 5 log)"
}

apt-get update -q >log 2>&1 || { echo "skipped: no package lists: $(tail -n 2 log)"; exit 77; }
install 1 weightcast libweightcast0 python3-weightcast
getent passwd weightcast >/dev/null || fail "the units' user is missing"
weightcast --version
weightcast-engine --version
# Its former name.
weightcast-worker --version
for file in lib/systemd/system/weightcast-worker.service share/man/man1/weightcast.1.gz share/weightcast/origin.toml \
  share/bash-completion/completions/weightcast share/doc/weightcast/copyright share/doc/weightcast/changelog.Debian.gz \
  share/doc/libweightcast0/changelog.Debian.gz share/doc/weightcast/docs/START.md share/doc/weightcast/examples/publish.py; do
  [[ -e /usr/$file ]] || fail "/usr/$file is missing"
done
ldconfig -p | grep -q libweightcast.so.0 || fail "the loader does not know the library"
! grep -l /usr/local /usr/lib/systemd/system/weightcast*.service || fail "a unit names programs that are elsewhere"

python3 - <<'P'
import json, pathlib, struct
data = bytes(range(256)) * 4096
header = json.dumps({"w": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode()
pathlib.Path("/try/one.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
pathlib.Path("/try/two.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data[1:] + b"x")
P
daemon() {  # daemon STATE FLAG...: as its user, in the background
  local state=$1
  shift
  mkdir -p "/var/lib/weightcast/$state"
  chown weightcast: /var/lib/weightcast "/var/lib/weightcast/$state"
  setpriv --reuid weightcast --regid weightcast --init-groups \
    weightcast daemon --state "/var/lib/weightcast/$state" --insecure "$@" >"/try/$state.log" 2>&1 &
  echo $! >"/try/$state.pid"
}
as_user() { setpriv --reuid weightcast --regid weightcast --init-groups "$@"; }
chmod a+rx /try && chmod a+r /try/*.safetensors
daemon origin --role origin --listen 127.0.0.1:7400
as_user weightcast ready --state /var/lib/weightcast/origin --timeout 20
daemon worker --role worker --origin 127.0.0.1:7400 --listen 127.0.0.1:0
as_user weightcast ready --state /var/lib/weightcast/worker --timeout 20
as_user weightcast publish /try/one.safetensors --version 1 --state /var/lib/weightcast/origin --wait 1 --timeout 60
as_user python3 -c '
import importlib.metadata, pathlib, weightcast
with weightcast.Subscription("/var/lib/weightcast/worker") as subscription, subscription.acquire(1) as pin:
    assert (pathlib.Path(pin.directory) / "model.safetensors").read_bytes() == pathlib.Path("/try/one.safetensors").read_bytes()
assert {one.name for one in importlib.metadata.entry_points(group="vllm.general_plugins")} == {"weightcast"}
assert importlib.metadata.version("weightcast") == weightcast.library_version()'

# The daemons run on while their program is replaced, and answer the new one.
install 2 weightcast libweightcast0 python3-weightcast
[[ $(dpkg-query -W -f '${Version}' weightcast) == *-2 ]] || fail "it was not upgraded"
for state in origin worker; do kill -0 "$(cat /try/$state.pid)" || fail "the upgrade has ended the $state's daemon"; done
as_user weightcast publish /try/two.safetensors --version 2 --state /var/lib/weightcast/origin --wait 1 --timeout 60
kill "$(cat /try/worker.pid)"
wait "$(cat /try/worker.pid)" || true
daemon worker --role worker --origin 127.0.0.1:7400 --listen 127.0.0.1:0
as_user weightcast ready --state /var/lib/weightcast/worker --timeout 20
cmp "$(as_user weightcast path --state /var/lib/weightcast/worker)/model.safetensors" /try/two.safetensors

# What a program is built with.
install 2 libweightcast-dev
[[ -e /usr/include/weightcast/weightcast.h && -e /usr/lib/libweightcast.so ]] || fail "libweightcast-dev lacks files"
# The learner, with the LibTorch that it depends on.
install 2 weightcast-train
weightcast-train --version

kill "$(cat /try/worker.pid)" "$(cat /try/origin.pid)"
wait || true
apt-get remove -y -q weightcast weightcast-train libweightcast0 libweightcast-dev python3-weightcast >log 2>&1 || fail "apt: $(tail -n 5 log)"
for left in /usr/bin/weightcast* /usr/lib/libweightcast* /usr/lib/python3/dist-packages/weightcast* /usr/lib/systemd/system/weightcast*; do
  [[ ! -e $left ]] || fail "$left is still there"
done
[[ -e /var/lib/weightcast/worker/current ]] || fail "the versions are gone with the program"

# A purge leaves nothing but what an operator has made: keys, and above all the authority.
memory=$(readlink /var/lib/weightcast/worker/memory) || fail "the worker has no versions in memory"
[[ -d $memory ]] || fail "$memory is gone with the program"
mkdir -p /etc/weightcast /var/lib/weightcast/keys
touch /etc/weightcast/keys.pem /var/lib/weightcast/keys/authority.pem
apt-get purge -y -q weightcast >log 2>&1 || fail "apt: $(tail -n 5 log)"
[[ -e /var/lib/weightcast/keys/authority.pem ]] || fail "the authority is gone with the package"
grep -q "authority.pem" log || fail "nothing tells of the authority"
[[ ! -e $memory ]] || fail "$memory outlives the package"
rm /var/lib/weightcast/keys/authority.pem
install 2 weightcast
apt-get purge -y -q weightcast weightcast-train >log 2>&1 || fail "apt: $(tail -n 5 log)"
for left in /var/lib/weightcast* /dev/shm/weightcast-*; do [[ ! -e $left ]] || fail "$left outlives the package"; done
[[ -e /etc/weightcast/keys.pem ]] || fail "the operator's keys are gone with the package"
! getent passwd weightcast >/dev/null || fail "the user outlives the package"
