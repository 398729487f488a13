"""The README's lines about data of one's own make the pictures that it shows."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from torchs4.estimators import S4Classifier, S4Forecaster

ROOT = Path(__file__).parents[2]
LINES = re.findall(
    r"^```py\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
)
SERIES = Path(os.environ.get("TORCHS4_DATA", "/nowhere"), "ETT-small", "ETTh1.csv")


@pytest.mark.parametrize("lines", LINES, ids=["classes", "series"])
def test_three_lines_make_their_picture(lines: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if "ETTh1.csv" in lines:
        if not SERIES.is_file():
            pytest.skip("needs ETT-small in the folder that TORCHS4_DATA names")
        Path("ETTh1.csv").symlink_to(SERIES.resolve())
    # For haste; what is tested is that the lines run.
    for kind, hasty in ((S4Classifier, {"epochs": 1}), (S4Forecaster, {"steps": 5})):
        usual = kind.__init__.__kwdefaults__
        monkeypatch.setattr(kind.__init__, "__kwdefaults__", {**usual, **hasty, "verbose": 0})
    exec(lines, {})
    (picture,) = tmp_path.glob("*.png")
    assert picture.stat().st_size > 5000
    assert (ROOT / "benchmarks" / "results" / picture.name).is_file()
    # Imports apart, there are three.
    assert len([line for line in lines.splitlines() if line and not re.match("import|from", line)]) == 3
