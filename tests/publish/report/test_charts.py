"""What is drawn lies within the picture."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from xml.etree import ElementTree

from curate.publish.analysis.counts import distribution
from curate.publish.analysis.sections import Spreads
from curate.publish.report.charts import (
    HEIGHT,
    WIDE,
    WIDTH,
    _histograms,
    _style,
    histogram,
    round_numbers,
)

FAR = Counter({0.000203: 7, 0.118: 300, 0.297: 200, 0.0: 60, 4.99e291: 1, 1.25e-200: 3})


def test_captions_stay_within_the_picture_and_apart() -> None:
    items = [(f"Error {n}", distribution(FAR, "largest absolute error of an output")) for n in "ab"]
    for shown in (items, items[:1]):
        with _style():
            figure = _histograms(Spreads("error", "Errors", shown))
            figure.draw_without_rendering()
            labels = [ax.xaxis.label.get_window_extent() for ax in figure.axes if ax.axison]
            labels.sort(key=lambda box: box.x0)
            assert labels[0].x0 >= 0 and labels[-1].x1 <= WIDE * figure.dpi
            assert all(left.x1 < right.x0 for left, right in pairwise(labels))
            texts = [text.get_text() for ax in figure.axes for text in ax.get_xticklabels()]
            assert not any("e+2" in text for text in texts), texts
            assert all("from" in ax.get_xlabel() for ax in figure.axes if ax.axison)


def test_a_histogram_of_the_page_has_a_bar_for_each_range_within_its_frame() -> None:
    spread = distribution(FAR, "largest absolute error of an output")
    chart = ElementTree.fromstring(str(histogram(spread, "Error <1>")))
    assert chart.attrib["aria-label"].startswith("Error <1>. n = ")
    bars = [path for path in chart.iter("path") if path.find("title") is not None]
    tips = [bar.findtext("title") or "" for bar in bars]
    assert [int(re.findall(r": ([\d,]+) rows", tip)[0].replace(",", "")) for tip in tips] == [
        b.n for b in spread.bins
    ]
    for bar, b in zip(bars, spread.bins, strict=True):
        left, low, top, right = map(float, re.findall(r"[\d.]+", bar.attrib["d"])[:4])
        assert 0 <= left < right <= WIDTH and 0 <= top <= low <= HEIGHT
        assert (top < low) == (b.n > 0), "a bar of few rows can be seen"
    texts = [(text.text, float(text.attrib["x"])) for text in chart.iter("text")]
    assert "more" in [words for words, _ in texts] and all(0 < x < WIDTH for _, x in texts)


def test_lines_stand_at_round_numbers() -> None:
    assert {most: [*round_numbers(most)] for most in (1, 4, 7, 71, 230)} == {
        1: [0, 1],
        4: [0, 1, 2, 3, 4],
        7: [0, 2, 4, 6],
        71: [0, 20, 40, 60],
        230: [0, 50, 100, 150, 200],
    }
