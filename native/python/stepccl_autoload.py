# SPDX-License-Identifier: Apache-2.0
"""What torch calls on `import torch` (entry point torch.backends, from torch 2.5 on)."""
from __future__ import annotations

import warnings


def autoload() -> None:
    """Registers the backend. Where the library is missing it warns only: `import torch` must go on for those who do not use it."""
    try:
        import stepccl  # noqa: F401
    except ImportError as problem:
        warnings.warn(f"the backend stepccl is not available: {problem}", RuntimeWarning, stacklevel=2)
