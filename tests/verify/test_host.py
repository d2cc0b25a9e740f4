"""What a host loads before its first fork."""

import subprocess
import sys

WARM = """
import sys
from curate.devices import ON_CPU
from curate.verify.host import warm

for purpose in ("reference", "host_half", "executor", "compiler"):
    warm(purpose, ON_CPU, has_device=False, traces=False)
    assert "torch._dynamo" not in sys.modules, purpose
warm("compiler", ON_CPU, has_device=False, traces=True)
assert "torch._dynamo" in sys.modules
"""


def test_pytorchs_compiler_is_loaded_by_those_hosts_only_that_use_it(tmp_path):
    subprocess.run([sys.executable, "-c", WARM], env={"TMPDIR": str(tmp_path)}, check=True)
