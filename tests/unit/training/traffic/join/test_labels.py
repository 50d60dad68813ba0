"""Files of labels: what they say, and what is wrong with them."""

import pytest

from listwright.ranking.errors import RecipeError
from listwright.training.traffic.join.events import read_labels


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("click = 1", "labels: Field required"),
        ("[labels]", "labels: "),
        ("[labels]\nclick = -1", "labels.click: "),
        ("[labels]\nclick = 1.5", "labels.click: "),
        ("[labels]\nclick = 99", "labels.click: "),
        ("seen = ['click']\n[labels]\nclick = 1", "'click' has a label"),
        ("[labels", "not TOML"),
        ("a = " + "[" * 100_000, "not TOML"),
        ("[labels]\nclick = " + "9" * 5000, "not TOML"),
        ("[labels]\nclick = " + "9" * 4000, "labels.click: "),
        ("[labels]\nclick = 0x" + "f" * 5000, "labels.click: "),
        ("[labels]\nclick = 1\n[sums]\nspent = 'price'", "sums.spent: "),
        ("[labels]\nclick = 1\n[sums]\nspent = {action = 'buy', field = 'price'}", "'buy' is neither in labels"),
        ("[labels]\nclick = 1\n[sums]\nspent = {action = 'click', field = 'a..b'}", "sums.spent.field: "),
        ("[labels]\nclick = 1\n[sums]\n'a b' = {action = 'click', field = 'price'}", "sums.a b"),
    ],
)
def test_labels_that_say_something_else(tmp_path, text, said):
    path = tmp_path / "labels.toml"
    path.write_text(text)
    with pytest.raises(RecipeError) as caught:
        read_labels(path)
    assert said in str(caught.value)
    assert "click = 1" in str(caught.value)


def test_labels_of_a_file(tmp_path):
    path = tmp_path / "labels.toml"
    path.write_text('seen = ["impression"]\n[labels]\npurchase = 3\nclick = 1\n')
    assert read_labels(path).actions == ("purchase", "click", "impression")
