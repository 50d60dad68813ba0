"""Live: figures of ``/metrics``, over all workers."""

import re
from collections import Counter

import httpx
import pytest

from listwright.ranking.experiments import arm_of
from listwright.service.bundles.folder import point
from support.experiments import experiment, written
from support.http.rerank_requests import BODY, BROKEN
from support.http.worker_processes import both_ready
from support.pages.page_actions import text_of
from support.service.bundles import make_bundle
from support.waiting import NEVER_S, PATIENCE_S, until

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return make_bundle(
        tmp_path_factory.mktemp("models") / "shop" / "7", graph="nan", specialists=2, margin=0.0, cutoff=5
    )


def tile(page, name):
    """The figure of this name."""
    found = page.locator(".tiles div").filter(has=page.get_by_text(name, exact=True)).locator("dd")
    return found.inner_text()


def test_requests_refusals_and_degradations_of_two_workers(serve, shop, open_page):
    service = both_ready(serve(bundle=shop, ui="true", workers=2, queue_ms=1000 * NEVER_S))
    for body, wanted in [(BODY, 200)] * 30 + [(BROKEN, 200)] * 2 + [({"features": [[1.0]]}, 409)]:
        assert httpx.post(service.url + "/rerank", json=body, timeout=PATIENCE_S).status_code == wanted
    page = open_page(service, "#tab=live")
    until(lambda: "/rerank 200 33" in " ".join(text_of(page).split()))  # the page asks once itself
    assert tile(page, "degraded") == "2"
    assert tile(page, "workers ready") == "2 of 2"
    said = " ".join(text_of(page).split())
    assert "2 by first stage, as a stage failed" in said
    assert "Experiments on traffic None" in said
    ran = sum(
        float(line.rpartition(" ")[2])
        for line in httpx.get(service.url + "/metrics").text.splitlines()
        if line.startswith("listwright_stage_seconds_count") and 'stage="second_stage"' in line
    )
    assert ran >= 30
    assert re.search(rf"second stage [\d.]+ ms [\d.]+ ms {ran:g}\b", said), "of both workers"
    assert tile(page, "requests a second") != ""


def drifted(service):
    """What the table of drift has to show; the page's own list is looked at, too, now or later."""
    scrape = httpx.get(service.url + "/metrics").text
    looked = float(re.search(r"listwright_drift_candidates_total\{.*\} (\S+)", scrape)[1])
    seen = re.findall(r'listwright_drift_values_total\{feature="(\w+)",kind="(\w+)".*\} (\S+)', scrape)
    words = {"missing": "missing", "unknown": "unknown category"}
    return {(name, words[kind], f"{100 * float(n) / looked:.0f} %") for name, kind, n in seen if float(n)}


def test_drift_stands_worst_first_and_anomalies_are_drawn(serve, shop, open_page):
    service = serve(bundle=shop, ui="true", queue_ms=1000 * NEVER_S)
    strange = {"features": [[1.0, 2.0, None, "never seen"], [2.0, 1.0, 0.5, "A5"]]}

    def looked_at():
        assert httpx.post(service.url + "/rerank", json=strange).status_code == 200
        return "listwright_drift_candidates_total" in httpx.get(service.url + "/metrics").text

    until(looked_at, pause_s=0.2)
    page = open_page(service, "#tab=live")
    page.get_by_role("img", name=re.compile("Histogram of the anomaly scores")).wait_for()
    until(lambda: page.locator(".plot canvas").count() == 1)
    table = page.get_by_role("region", name="Drift by feature: table")
    until(
        lambda: {tuple(row.split("\t")) for row in table.get_by_role("row").all_inner_texts()[1:]} == drifted(service)
    )
    said = page.get_by_role("region", name="Anomaly scores").inner_text()
    (median,) = re.findall(r"50 % of training lie below (\S+),", said)
    assert float(median) > 0
    for span in ("opened", "last"):
        page.get_by_label("Counted").select_option(span)
        for _ in range(3):
            httpx.post(service.url + "/rerank", json=strange)
            page.wait_for_timeout(300)
        page.get_by_text(f"50 % of training lie below {median},").wait_for()


def test_the_span_can_be_the_time_that_the_view_is_open(serve, shop, open_page):
    service = serve(bundle=shop, ui="true", queue_ms=1000 * NEVER_S)
    for _ in range(50):
        httpx.post(service.url + "/rerank", json=BODY)
    page = open_page(service, "#tab=live")
    until(lambda: "/rerank 200 5" in " ".join(text_of(page).split()))
    page.get_by_label("Counted").select_option("opened")
    until(lambda: "/rerank 200 5" not in " ".join(text_of(page).split()))
    httpx.post(service.url + "/rerank", json={"features": [[1.0]]})
    until(lambda: "/rerank 409 1" in " ".join(text_of(page).split()))


@pytest.fixture(scope="module")
def rivals(tmp_path_factory):
    """Two bundles to serve."""
    root = tmp_path_factory.mktemp("rivals")
    for seed, name in enumerate(("shop", "next")):
        make_bundle(root / name / "1", seed=seed)
        point(root, name, "1")
    (root / "default").mkdir()
    (root / "default" / "ALIAS").write_text("shop\n")
    return root


def test_experiments_of_two_workers_are_listed_with_their_outcomes(serve, rivals, open_page, tmp_path):
    lost = experiment("split", name="lost", control="next", challenger="nowhere")
    file = written(tmp_path / "experiments.toml", experiment("split"), lost)
    service = both_ready(serve(models=rivals, ui="true", workers=2, experiments=file, queue_ms=1000 * NEVER_S))
    for number in range(40):
        body = BODY | {"query_id": f"query-{number}"}
        assert httpx.post(service.url + "/rerank", json=body, timeout=PATIENCE_S).status_code == 200
    arms = Counter(arm_of(f"query-{number}", "first", 0.5) for number in range(40))
    page = open_page(service, "#tab=live")
    until(lambda: f"challenger: {arms['challenger']}" in text_of(page))
    said = " ".join(text_of(page).split())
    assert "first: split, 100 % of traffic next against shop. Runs." in said
    assert f"control: {arms['control']}" in said
    assert "lost: split, 100 % of traffic nowhere against next. Does not run:" in said


def test_experiments_that_are_switched_off_stop_running_here_too(serve, rivals, open_page, tmp_path):
    file, off = written(tmp_path / "experiments.toml", experiment("split")), tmp_path / "off"
    service = serve(models=rivals, ui="true", experiments=file, experiments_off_file=off)
    page = open_page(service, "#tab=live")
    page.get_by_text("next against shop. Runs.").wait_for()
    off.write_text("")
    page.get_by_text("All are off:").wait_for()
    page.get_by_text("next against shop. Does not run:").wait_for()
    off.unlink()
    page.get_by_text("next against shop. Runs.").wait_for()


def test_a_file_of_experiments_that_is_not_used_says_why(serve, shop, open_page, tmp_path):
    file = tmp_path / "experiments.toml"
    file.write_text("")
    service = serve(bundle=shop, ui="true", experiments=file)
    page = open_page(service, "#tab=live")
    page.get_by_text("The file names none.").wait_for()
    file.write_text("[[experiment]]\nname = '<img src=x onerror=alert(1)>'\n")
    page.get_by_text("The file is not used:").wait_for()
    assert page.locator("img[src=x]").count() == 0


def test_a_service_that_goes_is_said_to_be_gone_and_the_figures_stay(serve, shop, open_page):
    service = serve(bundle=shop, ui="true")
    page = open_page(service, "#tab=live")
    page.get_by_role("heading", name="Time by stage").wait_for()
    service.stop()
    page.get_by_text("No metrics now: below are those of the last look").wait_for()
    assert "Nothing answers at" in page.get_by_role("alert").inner_text()
    assert page.get_by_role("heading", name="Time by stage").is_visible()


SAMPLES = r"""# HELP a_total text
# TYPE a_total counter
a_total{path="/x{name}",reason="a \"b\", c=\\d\ne"} 3.0
a_total{path="/y",reason=""} 4
h_bucket{le="1.0",stage="x"} 2.0
h_bucket{le="2.0",stage="x"} 6.0
h_bucket{le="+Inf",stage="x"} 8.0
g 1e+06
"""


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("found.get('a_total')[0].labels", {"path": "/x{name}", "reason": 'a "b", c=\\d\ne'}),
        ("found.get('a_total').map(one => one.value)", [3, 4]),
        ("found.get('g')[0].value", 1e6),
        ("sumOf(found, 'a_total')", 7),
        ("sumOf(found, 'a_total', labels => labels.path === '/y')", 4),
        ("Number.isNaN(sumOf(found, 'none'))", True),
        ("bucketsOf(found, 'h').counts", [2, 4, 2]),
        ("quantile(bucketsOf(found, 'h'), 0.25)", 1),
        ("quantile(bucketsOf(found, 'h'), 0.5)", 1.5),
        ("quantile(bucketsOf(found, 'h'), 0.99)", 2),
        ("Number.isNaN(quantile({bounds: [1], counts: [0]}, 0.5))", True),
        ("since(found, found).get('a_total').map(one => one.value)", [0, 0]),
        ("since(found, found).get('h_bucket').map(one => one.value)", [0, 0, 0]),
        ("since(found, found).get('g')[0].value", 1e6),
        ("since(found, parseExposition('a_total{path=\"/y\",reason=\"\"} 1\\n')).get('a_total')[1].value", 3),
        ("since(found, parseExposition('a_total{path=\"/y\",reason=\"\"} 9\\n')).get('a_total')[1].value", 4),
    ],
)
def test_samples_are_read_and_counted(demo, open_page, expression, value):
    page = open_page(demo, "#tab=models")
    found = page.evaluate(
        f"""async text => {{
            const {{ parseExposition, since, sumOf }} = await import("./live/exposition.js");
            const {{ bucketsOf, quantile }} = await import("./live/figures.js");
            const found = parseExposition(text);
            return {expression};
        }}""",
        SAMPLES,
    )
    assert found == value
