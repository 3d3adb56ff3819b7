"""Ray on this host, for tests. To be imported before Ray: its times are bounds of Ray's that a busy host goes beyond."""

import os
import secrets

os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_worker_register_timeout_seconds": "300", "RAY_agent_register_timeout_ms": "300000",
    "RAY_health_check_timeout_ms": "60000"}

import ray  # noqa: E402


def start(python_path, num_cpus, **env):
    """Ray gives its own processes half a minute to start, which is too little beside much other work."""
    for tries_left in reversed(range(4)):
        try:
            ray.init(num_cpus=num_cpus, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20,
                     runtime_env={"env_vars": {"PYTHONPATH": python_path, **env}})
            return
        except Exception as error:
            if not tries_left or "timed out during startup" not in str(error):
                raise
            ray.shutdown()
