"""What is known of the processor."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from isorun.export.machine import saturates


@pytest.mark.parametrize(
    ("processor", "flags", "expected"),
    [
        ("x86_64", "flags\t\t: fpu avx2 avx512_vnni", False),
        ("x86_64", "flags\t\t: fpu avx2 avx_vnni", False),
        ("AMD64", "flags\t\t: fpu avx2", True),
        ("x86_64", "model name : unknown", True),
        ("aarch64", "Features : asimddp", False),
    ],
)
def test_products_of_bytes_saturate_on_x86_without_vnni(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, processor: str, flags: str, expected: bool
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: processor)
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{flags}\nbugs\t\t: none\n")
    assert saturates(tmp_path / "cpuinfo") == expected


def test_a_processor_that_is_not_told_is_taken_to_saturate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert saturates(tmp_path / "none")
