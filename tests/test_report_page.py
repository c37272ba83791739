"""The report as a page: complete, inert whatever others wrote, within its size, and read in a real browser without a network."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from loop_parts import OTHER, WRONG, Scripted, make_request, making, variant
from test_report import told

from tilecast.agent.engine import Engine, open_record
from tilecast.agent.report.build import CandidateReport, RunReport, build_report
from tilecast.agent.report.honesty import honesty, panel_rows, panel_summary
from tilecast.agent.report.markdown import markdown
from tilecast.agent.report.page import html, visible
from tilecast.agent.report.plots.position import position_of, roofline
from tilecast.agent.report.plots.svg import linear_ticks, log_ticks
from tilecast.agent.report.texts import CandidateText, texts_of
from tilecast.sandbox.base import Incident
from tilecast.sandbox.problem import ProblemFacts, TensorFacts, WorkloadFacts
from tilecast.sandbox.schema import Cost

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
HOSTILE = "</pre></td><script>alert(1)</script>\"'><img src=http://evil/x onerror=alert(2)>\u202e\x1b[31m {{7*7}}"


def made(script: Sequence[object]) -> tuple[RunReport, dict[int, CandidateText]]:
    result = Engine(make_request(), make=making(Scripted(script))).run()  # type: ignore[arg-type]
    log = open_record(None, make_request().home).open(result.run, lambda: 0.0)
    report = build_report(log)
    return report, texts_of(log, report)


def with_forecasts(report: RunReport) -> RunReport:
    """The same run with a forecast for every candidate."""
    forecast = told(0, 4, 1.2).forecast
    states = [told(i, 4, 1.2) for i in range(len(report.candidates))]
    return report.model_copy(
        update={
            "candidates": [c.model_copy(update={"forecast": forecast}) for c in report.candidates],
            "honesty": honesty(states),
        }
    )


class Reader(HTMLParser):
    """Elements and attributes of a page, and the text of its table's rows."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_a_page_has_no_script_and_names_no_other_place() -> None:
    page = html(*made([variant(64, 1), OTHER, WRONG]))
    found = Reader(page)
    assert not {tag for tag, _ in found.tags} & {"script", "iframe", "object", "embed", "form", "base", "img"}
    targets = [a[k] or "" for _, a in found.tags for k in ("href", "src", "srcset", "action") if k in a]
    assert targets and all(t.startswith("#") or t == "data:," for t in targets)
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", page)
    policy = next(a["content"] for t, a in found.tags if t == "meta" and a.get("http-equiv"))
    assert policy and "default-src 'none'" in policy and "script" not in policy


def test_what_went_wrong_on_the_way_is_told_and_only_ever_text() -> None:
    report, texts = made([variant(64, 1), OTHER])
    assert "What went wrong" not in html(report, texts) and "What went wrong" not in markdown(report)
    lost = Incident(text=f"lost: {HOSTILE}", worker=HOSTILE, candidate="7", log=[f"line {i}" for i in range(9)])
    refused = Incident(text="refused bundle x: altered", warning=False)
    page = html(report.model_copy(update={"incidents": [lost, *[refused] * 30]}), texts)
    assert "What went wrong on the way" in page and "line 8" in page and "line 3" not in page
    assert page.count("refused bundle x: altered") == 19 and "11 more:" in page
    assert "<script" not in page and "\u202e" not in page
    assert not {tag for tag, _ in Reader(page).tags} & {"script", "img"}
    text = markdown(report.model_copy(update={"incidents": [lost, *[refused] * 30]}))
    assert "## What went wrong on the way" in text and "- and 11 more" in text and "<script" not in text


def test_hostile_text_is_only_ever_text() -> None:
    report, texts = made([variant(64, 1), OTHER, WRONG])

    def poisoned(candidate: CandidateReport) -> CandidateReport:
        result = candidate.result
        changes: dict[str, Any] = dict.fromkeys(("name", "note", "origin", "why", "action_why", "language"), HOSTILE)
        if result is not None:
            changes["result"] = result.model_copy(update={"reason": HOSTILE, "baseline": HOSTILE})
        return candidate.model_copy(update=changes)

    report = with_forecasts(report)
    clean = Reader(html(report, texts)).tags
    report = report.model_copy(
        update={
            "problem": HOSTILE,
            "problem_path": HOSTILE,
            "why": HOSTILE,
            "candidates": [poisoned(c) for c in report.candidates],
            "device": report.device.model_copy(update={"versions": {"torch": HOSTILE}}),
        }
    )
    texts = {i: CandidateText(HOSTILE, [("same", HOSTILE), ("add", HOSTILE)]) for i in texts}
    page = html(report, texts)
    tags = Reader(page).tags
    kinds = {tag for tag, _ in clean}
    assert {tag for tag, _ in tags} == kinds, "hostile text made an element of its own"
    assert not [a for _, a in tags for k in a if k.startswith("on")]
    assert "&lt;script&gt;" in page and "\u202e" not in page and "\x1b" not in page and "{{7*7}}" in page


def test_characters_that_hide_are_spelled_out() -> None:
    assert visible("a\u202eb\x00\u200b\ud800\tc\n") == "a\\u202eb\\u0000\\u200b\\ud800\tc\n"


def test_every_measured_time_of_a_recorded_run_is_called_recorded() -> None:
    page = html(*made([variant(64, 1), OTHER, WRONG]))
    cells = re.findall(r'data-label="measurement">(.*?)</td>', page, re.S)
    timed = [cell for cell in cells if " ms" in cell or "µs" in cell]
    assert len(timed) == 2 and all("recorded" in cell for cell in timed)
    titles = [t for t in re.findall(r"<title>(.*?)</title>", page) if re.search(r"\d (ms|µs)", t)]
    assert titles and all("(recorded)" in t for t in titles)


def test_a_forecast_never_looks_like_a_measurement() -> None:
    report, texts = made([variant(64, 1), OTHER, WRONG])
    page = html(with_forecasts(report), texts)
    cells = re.findall(r'<td role="cell" class="([^"]*)" data-label="forecast">(.*?)</td>', page, re.S)
    assert len(cells) == 4 and all("forecast" in cls for cls, _ in cells)
    assert all("recorded" not in text for _, text in cells)
    marks = re.findall(r'<circle [^>]*class="([^"]*)"', page)
    told_marks = [m.split() for m in marks if "forecast" in m]
    assert told_marks and not [m for m in told_marks if "dot" in m]


def test_differences_are_from_the_parent() -> None:
    _, texts = made([variant(64, 1), variant(128, 1)])
    later = texts[1]
    assert later.title == "difference from candidate 0"
    assert any("128" in line for kind, line in later.lines if kind == "add")
    assert any("64" in line for kind, line in later.lines if kind == "del")


def test_five_hundred_candidates_stay_below_five_megabytes() -> None:
    report, _ = made([variant(64, 1), OTHER, WRONG])
    report = with_forecasts(report)
    many = [
        report.candidates[i % 3].model_copy(
            update={"index": i, "evaluation": i + 1, "why": "slower " * 40, "cost": Cost()}
        )
        for i in range(500)
    ]
    source = [("add", f"    line {i} of a long kernel, as long as such lines are") for i in range(2000)]
    from tilecast.agent.report.texts import _cut

    texts = {i: _cut("difference from candidate 0", source, 2_400_000 // 500) for i in range(500)}
    page = html(report.model_copy(update={"candidates": many}), texts)
    assert len(page.encode()) < 5_000_000
    assert page.count("more lines: ") == 500


@pytest.mark.parametrize("script", [[WRONG], ["nothing"], []])
def test_a_run_without_a_result_has_a_page_that_says_why(script: list[object]) -> None:
    page = html(*made(script))
    assert "No result" in page and "nothing could be measured" in page
    assert "There were no forecasts in this run." in page


def test_forecasts_that_all_abstained_are_told_in_a_sentence() -> None:
    states = [told(i, 4, None) for i in range(7)]
    for state in states:
        assert state.forecast is not None
        state.forecast = state.forecast.model_copy(update={"abstain": True, "speedup": None})
    found = honesty(states)
    assert found is not None and panel_rows(found) == []
    assert panel_summary(found) == "All 7 forecasts abstained: nothing was skipped, and nothing was decided by them."


def test_a_panel_leaves_out_what_is_not_known() -> None:
    found = honesty([told(0, 4, 1.2), told(1, 4, 0.8)])
    assert found is not None
    rows = dict(panel_rows(found))
    assert "not known" not in rows.values() and "false skips, by that check" not in rows
    assert rows["likeliest speedup bin was right"] == "50%"


def test_the_roofline_of_a_matrix_product_by_hand() -> None:
    report, _ = made([variant(64, 1)])
    matrix = TensorFacts(name="a", shape=[4096, 4096], dtype="float16")
    facts = ProblemFacts(
        workloads=[
            WorkloadFacts(name="full", inputs=[matrix], outputs=[matrix], min_bytes=100_663_296, flops=2 * 4096**3)
        ],
        tolerance=None,
        domain="open",
    )
    report = report.model_copy(
        update={"facts": facts, "device": report.device.model_copy(update={"name": "NVIDIA H200"})}
    )
    place = position_of(report)
    assert not isinstance(place, str)
    # 2 * 4096^3 flop over 989 TFLOP/s is 0.139 ms, over 100.7 MB at 4.8 TB/s 0.021 ms.
    assert place.floor.bound == "compute" and place.floor.ms == pytest.approx(0.13897, rel=1e-3)
    drawn = roofline(place, 400.0)
    assert "989 TFLOP/s (data sheet)" in drawn and "4,800 GB/s" in drawn
    unknown = report.model_copy(update={"device": report.device.model_copy(update={"name": "Some CPU"})})
    assert position_of(unknown) == "there is no data sheet for Some CPU"


def test_ticks_are_round_and_inside() -> None:
    assert linear_ticks(0, 25.5, 6) == [0, 5, 10, 15, 20, 25]
    assert log_ticks(0.14, 2.2, 6) == pytest.approx([0.2, 0.3, 0.5, 1, 2])
    assert all(0.97 <= t <= 1.04 for t in log_ticks(0.97, 1.04, 6)) and len(log_ticks(0.97, 1.04, 6)) >= 2


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here; CI has one")
@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_a_real_browser_reads_it_without_a_network(tmp_path: Path, width: int, scheme: str) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    report, texts = made([variant(64, 1), OTHER, WRONG])
    report = with_forecasts(report)
    hostile = report.candidates[1].model_copy(update={"name": HOSTILE})
    report = report.model_copy(update={"candidates": [report.candidates[0], hostile, *report.candidates[2:]]})
    file = tmp_path / "report.html"
    file.write_text(html(report, texts), encoding="utf-8")
    said: list[str] = []
    asked: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        # The table: a row a candidate, and its figures as text.
        assert page.locator("tbody[id]").count() == len(report.candidates)
        assert (
            "0.889x [0.873, 0.905]" in page.locator("#c0").inner_text()
            and "recorded" in page.locator("#c0").inner_text()
        )
        assert "<script>alert(1)</script>" in page.locator("#c1 .name").inner_text()
        # The plot: one of the two drawings is visible, and a mark lies inside it.
        shown = page.locator("section[aria-labelledby=search-title] svg.plot:visible")
        assert shown.count() == 1
        assert "2 of them timed" in (shown.get_attribute("aria-label") or "")
        mark, frame = shown.locator(".dot.best").bounding_box(), shown.bounding_box()
        assert mark and frame and frame["x"] < mark["x"] < frame["x"] + frame["width"]
        # A mark leads to its row; details open; the filter works without a script.
        shown.locator("a[href='#c1']").first.click()
        assert page.url.endswith("#c1")
        page.locator("#c1 summary").click()
        assert page.locator("#c1 pre.code").is_visible()
        page.locator("#show-rejected").check()
        assert page.locator("tbody[id]:visible").count() == 1
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        browser.close()
    assert said == []
    assert asked == [file.as_uri()]
