"""``docs/when-a-second-stage-pays.md`` says what the code does and what the committed run found."""

import json
import re
import shlex
from pathlib import Path

from benchmarks.science import diagnose as benchmark
from listwright.ranking.relative import KINDS, RelativeColumn
from listwright.training import diagnose
from listwright.training.data.load import load
from listwright.training.diagnosis import diagnosis
from listwright.training.diagnosis import text as diagnosis_text
from listwright.training.diagnosis.diagnosis import quick
from listwright.training.recipe import config

PAGE = benchmark.PAGE.read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split())
RUN = json.loads((benchmark.machine.RESULTS / "diagnose.json").read_text(encoding="utf-8"))


def test_the_table_is_the_committed_run():
    block = PAGE.split(benchmark.BEGIN)[1].split(benchmark.END)[0].strip()
    assert block == benchmark.figures(RUN["sets"])
    assert list(RUN["sets"]) == [*benchmark.PLANTED, *benchmark.REAL]
    assert benchmark.written(PAGE, block) == PAGE


def test_another_run_would_be_another_table():
    other = json.loads(json.dumps(RUN["sets"]))
    other["shifted"]["relative_columns"]["mean"] += 0.001
    assert benchmark.figures(other) != benchmark.figures(RUN["sets"])


def test_planted_sets_gain_by_what_was_planted():
    shifted, context = RUN["sets"]["shifted"], RUN["sets"]["context"]
    assert shifted["relative_columns"]["verdict"] == "gain"
    assert min(spread["between"] for spread in shifted["features"]) >= 0.5
    assert max(spread["between"] for spread in context["features"]) < 0.1
    assert context["second_stage"]["verdict"] == "gain"
    assert context["second_stage"]["mean"] > context["relative_columns"]["mean"]


def test_its_commands_parse():
    (command,) = re.findall(r"^listwright diagnose (.*)$", PAGE, flags=re.MULTILINE)
    assert diagnose._parser().parse_args(shlex.split(command)).qid == "search_id"


def test_the_columns_have_their_names():
    assert [f"`{RelativeColumn(feature='price', kind=kind).name}`" in TEXT for kind in KINDS] == [True, True]


def test_the_budget_is_the_codes():
    recipe = config.load("demo")
    small = quick(recipe, load(recipe, []).train)
    settings = small.first_stage.settings
    assert f"up to {diagnosis.MOST_ROWS:,} rows, and {diagnosis.MOST_VALUES:,} values" in TEXT
    assert f"at most {settings.num_leaves} leaves, learning rate {settings.learning_rate}" in TEXT
    assert f"at most {diagnosis.MOST_COLUMNS} features for each tree" in TEXT
    assert f"at most {small.first_stage.max_trees} trees" in TEXT
    few, many = diagnosis.EPOCHS
    assert f"QILCM2 with its own defaults, {small.model.encoder_width} wide, {few} to {many} epochs" in TEXT
    assert f"| folds | {diagnosis.FOLDS} |" in TEXT
    assert diagnosis_text.WORTHWHILE == 0.01
    assert f" {diagnosis_text.WORTHWHILE} NDCG" in TEXT
    assert f"| from {diagnosis_text.MOSTLY} |" in TEXT
    assert f"| below {diagnosis_text.PARTLY} |" in TEXT


def test_other_pages_lead_here():
    folder = Path(benchmark.PAGE).parent
    for name in ("data", "rivals", "tuning"):
        assert f"({benchmark.PAGE.name})" in (folder / f"{name}.md").read_text(encoding="utf-8")
