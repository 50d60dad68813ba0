"""What the report says of the epochs, and which one its figure marks."""

import pytest

from listwright.training.reporting import fit_figures, sentences


@pytest.mark.parametrize(
    ("best", "says"),
    [
        (0, "None of 2 epochs ranked the validation queries better than the first stage does"),
        (1, "Validation NDCG@10 was best after epoch 1 of 2, at 0.3000"),
        (2, "Validation NDCG@10 was best after epoch 2 of 2, at 0.3000: it was still rising when training ended"),
    ],
)
def test_the_epoch_that_was_kept(best, says):
    assert sentences.learning_sentence({"best_epoch": best, "epochs": 2, "valid_ndcg": 0.3}, 10) == says
    drawn = fit_figures.learning({"epochs": [[1, 2.0, 0.0, 0.25], [2, 1.5, 0.0, 0.2]]}, best, 10)
    assert f"epoch {best} was kept" in drawn
