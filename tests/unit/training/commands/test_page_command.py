"""The command that makes a page of a report: what it says where it cannot."""

import pytest

from listwright.training.commands import page


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "[Errno 2] No such file or directory: '"),
        ("{", "report.json is no report.json of a fit: "),
        ("[]", "report.json is no report.json of a fit: "),
        ("{}", "report.json is no report.json of a fit: it has no "),
        ("[" * 100_000, "report.json is no report.json of a fit: it is nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "report.json is no report.json of a fit: a number has too many digits"),
        ('{"repeat": 1, "recipe": 2, "rankers": 3}', "report.json is no report.json of a fit: "),
    ],
)
def test_what_is_no_report_is_an_error_without_a_traceback(tmp_path, capsys, content, says):
    if content is not None:
        (tmp_path / "report.json").write_text(content)
    assert page.main([str(tmp_path / "report.json"), str(tmp_path / "page.html")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert says in said
    assert said.count("\n") == 1
    assert not (tmp_path / "page.html").exists()


def test_a_page_that_cannot_be_written_is_an_error(tmp_path, capsys, monkeypatch):
    (tmp_path / "report.json").write_text("{}")
    (tmp_path / "gone").mkdir()
    monkeypatch.setattr(page, "fit_page", lambda report: (tmp_path / "gone").rmdir() or "")
    assert page.main([str(tmp_path / "report.json"), str(tmp_path / "gone" / "page.html")]) == 1
    assert "No such file or directory: '" + str(tmp_path / "gone" / "page.html") in capsys.readouterr().err


@pytest.mark.parametrize(
    ("out", "says"),
    [("gone/page.html", "there is no folder"), ("report.json", "report.json and PAGE name the same file")],
)
def test_a_page_that_cannot_be_written_is_refused_before_it_is_made(tmp_path, capsys, out, says):
    (tmp_path / "report.json").write_text("{}")
    assert page.main([str(tmp_path / "report.json"), str(tmp_path / out)]) == 1
    assert says in capsys.readouterr().err
    assert (tmp_path / "report.json").read_text() == "{}"
