"""Settings that keep to a memory limit: exact ones first, nothing that was asked for is undone, advice that is true."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gfgnn.checks import InputError
from gfgnn.config import ModelConfig
from gfgnn.model.build import Model, make_model
from gfgnn.plan.limit import KEPT, LIBRARIES, MOST_PARTS, Needs, Settings, choose
from gfgnn.plan.memory import BASE, rank_memory
from gfgnn.plan.work import Sizes

PLAIN = Settings()


def network(hidden: int) -> Model:
    return make_model(ModelConfig(family="gcn", layers=16, hidden=hidden), 64, 8, "multiclass")


@pytest.fixture
def needs() -> Needs:
    """GCN-16 on a graph of 200,000 nodes."""
    model = network(128)
    sizes = Sizes(num_nodes=200_000, nnz=2_600_000, num_train=120_000, head_nnz=1_500_000)
    return Needs(model=model, sizes=sizes, symmetric=True, feature_bytes=51_200_000, held=300_000_000)


def test_the_whole_is_what_the_memory_model_says(needs: Needs) -> None:
    memory = rank_memory(needs.model, (0, 16), 0, needs.part(1), staleness=0, itemsize=4)
    lean = needs.peak(Settings(lean=True))
    assert lean == needs.held + memory.peak - BASE + LIBRARIES
    step = max(value for name, value in memory.moments.items() if name != "evaluation")
    both = int((1 + KEPT) * step) + memory.moments["evaluation"]
    assert needs.peak(PLAIN) == lean + both - max(memory.moments.values())


def test_order_of_choices(needs: Needs) -> None:
    """With less and less room: as asked, lean, computed again, 16 bits, both."""
    ways = [
        PLAIN,
        Settings(lean=True),
        Settings(lean=True, recompute=True),
        Settings(lean=True, recompute=True, storage="bf16"),
    ]
    peaks = [needs.peak(way) for way in ways]
    assert peaks == sorted(peaks, reverse=True)
    for way, peak in zip(ways, peaks, strict=True):
        found = choose(peak, needs, PLAIN)
        assert (found.settings, found.peak) == (way, peak)


def test_what_was_asked_for_is_kept(needs: Needs) -> None:
    asked = Settings(storage="fp16")
    found = choose(needs.peak(replace(asked, lean=True, recompute=True)), needs, asked)
    assert found.settings == Settings(lean=True, recompute=True, storage="fp16")
    asked = Settings(recompute=True)
    assert choose(10**12, needs, asked).settings == asked


def test_parts_as_few_as_fit(needs: Needs) -> None:
    four = needs.peak(Settings(lean=True, parts=4))
    found = choose(four, needs, PLAIN, out_of_core=True, can_change=False)
    assert found.settings.parts == 4
    assert needs.peak(Settings(lean=True, parts=2)) > four
    asked = choose(10**12, needs, Settings(parts=5), out_of_core=True)
    assert asked.settings.parts == 5, "the number asked for"


def test_a_number_of_parts_that_was_asked_for_is_looked_at_whatever_it_is(needs: Needs) -> None:
    many = Settings(parts=MOST_PARTS + 1)
    assert choose(10**12, needs, many, out_of_core=True).settings.parts == MOST_PARTS + 1
    one = replace(needs, sizes=replace(needs.sizes, num_nodes=1, num_train=1, nnz=1, head_nnz=1))
    with pytest.raises(InputError, match="memory_limit is"):
        choose(1, one, PLAIN, out_of_core=True)


def test_advice_is_true(needs: Needs) -> None:
    limit = needs.peak(Settings(lean=True, parts=8))
    with pytest.raises(InputError, match=r"memory_limit is .*--out-of-core --parts 8 would need") as raised:
        choose(limit, needs, PLAIN)
    said = re.search(r"--parts 8 would need ([\d,]+) MB", str(raised.value))
    assert said is not None
    assert int(said[1].replace(",", "")) == round(limit / 1e6)
    with pytest.raises(InputError, match=r"Raise the limit, or take a network of fewer layers or columns\.$"):
        choose(needs.held, needs, PLAIN)
    narrow = replace(needs, model=network(64))
    wide, limit = (min(way.peak(s) for s in every_way()) for way in (needs, narrow))
    assert limit < wide
    with pytest.raises(InputError, match=r"Raise the limit.*: 64 hidden columns would need ([\d,]+) MB"):
        choose(limit, needs, PLAIN, out_of_core=True)


def every_way() -> list[Settings]:
    return [
        Settings(lean=True, parts=2**power, recompute=recompute, storage=storage)
        for power in range(1, 9)
        for recompute in (False, True)
        for storage in (None, "bf16")
    ]


def test_parts_by_hand(needs: Needs) -> None:
    """What waits for its turn, and what the graph takes while it is cut, count beside the part at work."""
    four = Settings(lean=True, parts=4)
    memory = rank_memory(needs.model, (0, 16), 0, needs.part(4), staleness=0, itemsize=4)
    weights = 64 * 128 + 14 * 128 * 128 + 128 * 8
    others = 200_000 * (4 * 16 + 64) + 3 * (64 * 64 * 4 + 8 * 8 * weights)
    assert needs.peak(four) == needs.held + memory.peak - BASE + LIBRARIES + others
    cut = replace(needs, mapped=10**10)
    assert cut.peak(four) == needs.held + cut.cutting(4) > needs.peak(four)
    assert cut.cutting(4) == 200_000 * 64 + 4 * needs.part(4).matrices + 10**10
    assert cut.peak(Settings(lean=True)) > 10**10, "edges are looked through in memory, too"


def test_directed_graphs_and_double_precision_need_more(needs: Needs) -> None:
    for more in (
        replace(needs, symmetric=False),
        replace(needs, sizes=replace(needs.sizes, itemsize=8)),
        replace(needs, held=needs.held + 1),
    ):
        for settings in (PLAIN, Settings(lean=True, parts=4)):
            assert more.peak(settings) > needs.peak(settings)


def test_words() -> None:
    assert PLAIN.words() == "settings as they are"
    assert Settings(lean=True, storage="bf16").words() == "--lean --storage bf16"
    assert Settings(lean=True, parts=3, recompute=True).words() == "--recompute --out-of-core --parts 3"
