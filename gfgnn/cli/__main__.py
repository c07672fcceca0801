"""``python -m gfgnn.cli``."""

from gfgnn.cli import main

main()
