"""``python -m edgewise`` is ``edgewise``."""

from __future__ import annotations

from edgewise.cli import main

if __name__ == "__main__":
    main()
