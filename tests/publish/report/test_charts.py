"""What is drawn lies within the picture."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from curate.publish.analysis.counts import distribution
from curate.publish.analysis.sections import Spreads
from curate.publish.report.charts import WIDE, _histograms, _style

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
