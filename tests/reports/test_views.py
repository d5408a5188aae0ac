"""Single views: memory by kind, graphs, the contract, the heat map."""

from __future__ import annotations

from dataclasses import replace

import pytest

from isorun.bench.records import Run
from isorun.reports.build import document

from ..fakes import fake_run
from .reading import charts, dots, records, said, tables

MEMORY = {"weights": 3 * 2**20, "cache": 2**20, "arena": 0, "activations": 5 * 2**20, "predicted_bytes": 8 * 2**20}
GRAPH = {
    "model": "gpt2",
    "size": "small",
    "phase": "forward",
    "dtype": "fp32",
    "opset": 23,
    "ops": {"MatMul": 17, "Attention": 4, "Add": 30},
    "sizes": {"source_bytes": 2**22, "file_bytes": 3 * 2**20},
    "seconds": 4.25,
    "notes": ["4 attentions fused"],
    "max_tokens": 1024,
    "in_pieces": ["Swish 2 (Sigmoid times its input)"],
}


@pytest.fixture(scope="module")
def run() -> Run:
    return fake_run()


def test_memory_is_stacked_by_kind_against_what_was_predicted(run: Run) -> None:
    known = tuple(
        replace(m, memory=MEMORY) if m.case.model == "lstm" and m.status == "ok" else m for m in run.measurements
    )
    made = document(replace(run, measurements=known))
    ((caption, spec),) = charts(made, "memory").items()
    assert caption == "lstm @ small, forward"
    pieces = [piece for piece in dots(spec, 0) if piece["bar"] == "torch, n = 1024"]
    assert [(piece["kind"], piece["size"]) for piece in pieces] == [
        ("weights", 3.0),
        ("cache", 1.0),
        ("arena", 0.0),
        ("activations", 5.0),
    ]
    assert {mark["size"] for mark in dots(spec, 1)} == {8.0}
    assert "Bars are what the model takes of that, by kind" in said(made, "memory")


def test_without_parts_the_peaks_are_told(run: Run) -> None:
    made = document(run)
    assert charts(made, "memory") == {}
    rows = list(records(tables(made, "memory")["Peak memory"]))
    (row,) = (row for row in rows if (row["model"].text, row["n"].text) == ("lstm @ small", "1024"))
    assert row["torch"].value == int(1.1e9) + 4096 * 1024
    assert row["torch"].text == "1.03 GiB"


def test_graphs_are_told_from_the_header(run: Run) -> None:
    (row,) = records(
        tables(document(replace(run, header={**run.header, "exports": [GRAPH]})), "graphs")["The exported graphs"]
    )
    assert row["nodes"].note == "Add 30; MatMul 17; Attention 4"
    assert row["in pieces"].note == "Swish 2 (Sigmoid times its input)"
    shown = {
        key: row[key].text
        for key in (
            "model",
            "phase",
            "opset",
            "nodes",
            "fused",
            "in pieces",
            "passes",
            "weights",
            "file",
            "export took",
        )
    }
    assert shown == {
        "model": "gpt2 @ small",
        "phase": "forward",
        "opset": "23",
        "nodes": "51",
        "fused": "Attention 4",
        "in pieces": "Swish 2",
        "passes": "4 attentions fused",
        "weights": "4.00 MiB",
        "file": "3.00 MiB",
        "export took": "4.2 s",
    }


@pytest.mark.parametrize("key", ["opset", "ops", "sizes", "seconds", "notes", "max_tokens", "in_pieces", "sparse"])
@pytest.mark.parametrize("value", [None, "text", -1, True, [1], {"a": "b"}])
def test_odd_facts_of_a_graph_are_left_out(run: Run, key: str, value: object) -> None:
    made = document(replace(run, header={**run.header, "exports": [{**GRAPH, key: value}]}))
    assert len(tables(made, "graphs")["The exported graphs"].rows) == 1


def test_the_contract_tells_what_an_empty_call_costs(run: Run) -> None:
    environment = {**run.header["environment"], "overhead_ns": {"torch": 12_000.0, "ort-cpu": None}}
    made = document(replace(run, header={**run.header, "environment": environment}))
    held = {row["rule"].text: row["in this run"].text for row in records(tables(made, "contract")["What was held to"])}
    shortest = min(m.median_ns for m in run.measurements if m.case.runtime == "torch" and m.median_ns)
    assert (
        held["only the call is timed"]
        == f"a call of nothing: torch 12.0 µs, {100 * 12_000 / shortest:.2f} % of its shortest time"
    )
    assert held["the same threads"] == "1"
    assert held["blocks alternate"] == "7 blocks a case"


def test_the_contract_tells_the_ceiling_of_each_precision_or_that_there_is_none(run: Run) -> None:
    environment = {
        **run.header["environment"],
        "precisions": {"fp16": {"matmul_gflops": {"torch": 512.0, "ort-cpu": None}}},
    }
    halves = [replace(m, case=replace(m.case, dtype=dtype)) for m in run.measurements[:1] for dtype in ("fp16", "int8")]
    header = {**run.header, "environment": environment}
    made = document(replace(run, header=header, measurements=(*run.measurements, *halves)))
    held = {row["rule"].text: row["in this run"].text for row in records(tables(made, "contract")["What was held to"])}
    said = held["times that cannot be are refused"]
    assert said == "fp32 222 GFLOP/s; fp16 512 GFLOP/s; int8: no rate, so only growth was judged"
    machines = {row["runtime"].text: row for row in records(tables(made, "environment")["The runtimes"])}
    assert machines["torch"]["matmul, fp16 (GFLOP/s)"].value == 512
    assert machines["ort-cpu"]["matmul, fp16 (GFLOP/s)"].text == "not measured"


def test_the_heat_map_is_full_where_outputs_are_wrong(run: Run) -> None:
    table = tables(document(run), "parity")["Error in units of the ruler, by n"]
    rows = {(row["model"].text, row["phase"].text, row["runtime"].text): row for row in records(table)}
    wrong = rows["gpt2 @ small", "decode step", "ort-cpu"]["n = 1024"]
    assert (wrong.text, wrong.tone, wrong.shade) == ("3,100", "bad", 1.0)
    right = rows["gpt2 @ small", "decode step", "torch"]["n = 1024"]
    assert (right.text, right.tone, right.shade) == ("1.00", "plain", 0.0)
    assert rows["gpt2 @ small", "decode step", "torch"]["n = 64"].text == "–"  # never a past of 64
