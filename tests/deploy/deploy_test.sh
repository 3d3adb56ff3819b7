#!/usr/bin/env bash
# deploy_test.sh PART SOURCE_DIR: builds the image (build), and runs what deploy/ has. Exit status 77, with the reason, where
# something that the part needs is missing.
set -euo pipefail
part=$1 source=$2
here=$source/tests/deploy
export WEIGHTCAST_IMAGE=$source/build/image/weightcast.tar PYTHONDONTWRITEBYTECODE=1

skip() {
  echo "skipped: $*"
  exit 77
}

need() {  # need COMMAND...
  local command
  ((EUID == 0)) || skip "namespaces and containers take root"
  for command; do [[ -n $(type -P "$command") ]] || skip "$command is not installed"; done
}

# What a test starts, mounts and connects ends with the namespaces that it is in. The shell stays, to reap orphans.
apart() { unshare --mount --net --pid --fork --mount-proc sh -c 'mount -t tmpfs tmpfs /run && "$@"' sh "$@"; }

case $part in
  build)
    need buildah debootstrap
    "$source/run" image
    ;;
  containers)
    need runc umoci ip unshare
    [[ -e $WEIGHTCAST_IMAGE ]] || skip "there is no image: see the test deploy.build"
    apart /usr/bin/python3 "$here/image_test.py"
    ;;
  kubernetes)
    need runc umoci ip unshare
    [[ -e $WEIGHTCAST_IMAGE ]] || skip "there is no image: see the test deploy.build"
    "$here/run.sh" -c ''  # the environment, while the registry can be reached
    apart "$here/run.sh" "$here/kubernetes_test.py"
    ;;
  skypilot)
    need ip nsenter unshare
    "$here/run.sh" -c ''
    apart "$here/run.sh" "$here/skypilot_test.py"
    ;;
  slurm)
    need slurmctld slurmd sbatch setpriv ip unshare
    apart /usr/bin/python3 "$here/slurm_test.py"
    ;;
esac
