"""How figures come to a page."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from bs4 import BeautifulSoup

from mptlml_book.report import figures


@pytest.mark.parametrize(
    ("panels", "change", "drawings"),
    [
        ((1, 1), None, 1),
        ((2, 2), None, 4),
        ((1, 2), lambda figure: figure.axes[1].imshow([[0, 1]]), 1),
        ((1, 2), lambda figure: figure.suptitle("both"), 1),
    ],
)
def test_each_panel_is_a_drawing_of_its_own_unless_they_share_something(panels, change, drawings):
    with plt.rc_context():
        figures.use_style()
        figure, axes = plt.subplots(*panels)
        names = [f"panel {count}" for count in range(np.size(axes))]
        for panel, name in zip(figure.axes, names, strict=True):
            panel.set_title(name)
        if change:
            change(figure)
        soup = BeautifulSoup(figures.picture(figure, "key"), "html.parser")
    drawn = [[name for name in names if name in svg.get_text()] for svg in soup.select("svg")]
    assert drawn == ([names] if drawings == 1 else [[name] for name in names])
    ids = [tag["id"] for tag in soup.select("[id]")]
    assert len(ids) == len(set(ids)) and plt.get_fignums() == []
