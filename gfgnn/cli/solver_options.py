"""Options on the command line that the solver would pass over."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gfgnn.checks import InputError

#: Which settings each solver reads.
READS = {
    "target": "target", "admm": "admm", "pdadmm-g": "pdadmm", "community-admm": "community", "adam": "adam",
}  # fmt: skip


def check_options(solver: str, given: Mapping[str, Collection[str]], *, compare_adam: bool) -> None:
    """Raises :class:`InputError` for an option that nothing in this run reads.

    Args:
        given: the options given, by table of settings; one option may be in several.
        compare_adam: whether Adam is trained too.
    """
    tables = {READS[solver], *(["adam"] if compare_adam else [])}
    read = {name for table in tables for name in given[table]}
    for name in (name for table in READS.values() for name in given[table]):
        if name not in read:
            suits = ", ".join(other for other, table in READS.items() if name in given[table])
            raise InputError(
                f"--{name.replace('_', '-')} is an option of solver {suits}; solver {solver} does not read it."
            )
