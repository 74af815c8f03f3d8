"""Every Python snippet in README and docs runs; every local link leads somewhere; the data beside it is consistent."""

import csv
import re
from pathlib import Path

import pytest

from tremble.presets import PRESETS
from tremble.studies.nchain.settings import PAIRS, PAPER_COUNTS

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "benchmarks" / "README.md",
]
SNIPPETS = [
    pytest.param(code, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))
]


@pytest.mark.slow
@pytest.mark.parametrize("code", SNIPPETS)
def test_snippets_run(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "snippet", "exec"), {"__name__": "snippet"})
    assert not list(tmp_path.iterdir()), "snippets leave no files"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_local_links_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text())
    assert all((page.parent / link).exists() for link in links), [x for x in links if not (page.parent / x).exists()]


def test_published_counts_match_the_reference_file():
    with (ROOT / "references" / "nchain_counts.csv").open() as file:
        rows = {row.pop("agent"): tuple(int(v) for v in row.values()) for row in csv.DictReader(file)}
    assert rows == PAPER_COUNTS and len(PAIRS) == 8


def test_every_preset_has_a_page_that_names_it():
    index = (ROOT / "docs" / "agents" / "README.md").read_text()
    rows = re.findall(r"^\| \[`(\w+)`\]\((\w+\.md)\) \| (.*) \|$", index, re.M)
    assert [(name, about) for name, _, about in rows] == [(name, preset.about) for name, preset in PRESETS.items()]
    for name, page, _ in rows:
        assert re.search(rf"[`\"]{name}[`\"]", (ROOT / "docs" / "agents" / page).read_text()), (name, page)
