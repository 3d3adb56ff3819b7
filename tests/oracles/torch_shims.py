"""What newer libraries ask of torch, and Debian's torch 1.13 does not have. Import it before them. Without torch the
program ends as tests that skip themselves do."""

import importlib.metadata
import importlib.util
import sys
import types

try:
    import torch
except ImportError:
    print("skipped: torch is not installed (python3-torch)")
    sys.exit(77)


class AnyNames(types.ModuleType):
    """A module in which every name is an empty class, for imports that nothing calls."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


if not hasattr(torch, "compiler"):
    torch.compiler = types.ModuleType("torch.compiler")
    torch.compiler.is_compiling = lambda: False
    torch.compiler.disable = lambda function=None, recursive=True: function or (lambda f: f)
    sys.modules["torch.compiler"] = torch.compiler
if importlib.util.find_spec("torch.distributed.tensor") is None:
    sys.modules["torch.distributed.tensor"] = AnyNames("torch.distributed.tensor")
for name in "float8_e4m3fn", "float8_e5m2":
    if not hasattr(torch, name):
        setattr(torch, name, torch.uint8)  # keys of tables of dtypes

# transformers refuses other versions of tokenizers than its own, which models do not use.
checks = types.ModuleType("transformers.dependency_versions_check")
checks.dep_version_check = lambda package, hint=None: importlib.metadata.version(package)
sys.modules["transformers.dependency_versions_check"] = checks
