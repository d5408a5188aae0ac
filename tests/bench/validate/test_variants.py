"""The kinds of faults that public trackers report, in other clothes: other operators, types, sizes, opsets."""

from __future__ import annotations

import pytest

from . import variants_attention, variants_files, variants_numbers, variants_use
from .conftest import Judge

FILES = (variants_attention, variants_files, variants_numbers, variants_use)
VARIANTS = {name: variant for file in FILES for name, variant in file.VARIANTS.items()}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_judged_as_its_kind(judge: Judge, name: str) -> None:
    proto, inputs, expected, verdict = VARIANTS[name]()
    found = judge(proto, inputs, expected, runtimes=None)
    assert found.verdict == verdict, "\n".join(found.lines())
