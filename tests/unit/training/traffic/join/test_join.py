"""The join: each shown candidate is one row, each event counts once, and the file is the same however it was made."""

from datetime import UTC, timedelta

import numpy as np
import polars as pl
import pytest

from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.served_log.files import write
from listwright.ranking.served_log.record import Intervention, RuleEffect
from listwright.training.data.tables.judged import read_judged_metadata, scan_judged
from listwright.training.traffic.join import job as join_job
from listwright.training.traffic.join import pieces
from listwright.training.traffic.join.events import COUNTED, NO_NUMBER, OTHER_PLACE, Cause, Labels
from support.events import event, write_events
from support.served import NOON, served_record
from support.training.progress import RecordedProgress

RECORDS = [served_record(number) for number in range(5)]
SHOWN_TWO = served_record(7, order=np.array([3, 1]), top_n=2)


def test_a_row_is_a_shown_candidate(joined):
    found, out = joined([*RECORDS, SHOWN_TWO], [event(7, 1, action="click"), event(7, 1, action="purchase")])
    rows = pl.read_parquet(out)
    assert rows["query_id"].to_list() == [f"query-{n}" for n in range(5) for _ in range(4)] + ["query-7"] * 2
    assert (found.rows, found.queries, found.served) == (22, 6, 6)
    two = rows[-2:]
    assert two["candidate_id"].to_list() == ["sku-7-3", "sku-7-1"]
    assert two["position"].to_list() == [1, 2]
    assert two["label"].to_list() == [0, 3]
    assert two["n_click"].to_list() == [0, 1]
    assert two["n_purchase"].to_list() == [0, 1]
    assert two["score"].to_list() == SHOWN_TWO.scores[[3, 1]].tolist()
    assert two["first_stage_score"].to_list() == SHOWN_TWO.first_stage_scores[[3, 1]].tolist()
    for d, name in enumerate(SHOWN_TWO.feature_names):
        assert two[name].to_list() == SHOWN_TWO.features[[3, 1], d].tolist()
        assert rows[name].dtype == pl.Float32
    assert two["served_at"].to_list() == [SHOWN_TWO.served_at] * 2
    assert two["served_at"][0].astimezone(UTC) == NOON + timedelta(seconds=7)
    assert two["unit"].to_list() == ["unit-1"] * 2
    assert two["intervention"].to_list() == [None, None]
    assert found.labelled == {0: 21, 3: 1}


@pytest.mark.parametrize(
    ("served_s", "event_s", "owner_s"),
    [
        ((5.0, 20.0), 19.4, 5.0),
        ((5.0, 20.0), 20.0, 20.0),
        ((5.0, 20.0), 4.4, 5.0),
        ((20.0,), 19.4, 20.0),
        ((20.0,), 19.0, 20.0),
        ((20.0,), 18.9, None),
        ((20.0, 20.5), 19.8, 20.0),
    ],
)
def test_an_event_belongs_to_a_list_that_was_there(joined, served_s, event_s, owner_s):
    """And to one that was served up to a second later only where none was there."""
    records = [served_record(0, served_at=NOON + timedelta(seconds=at)) for at in served_s]
    records.append(served_record(1))  # with an event that counts in any case
    found, out = joined(records, [event(0, 2, after_s=event_s), event(1)])
    rows = pl.read_parquet(out).filter((pl.col("label") > 0) & (pl.col("query_id") == "query-0"))
    assert rows["served_at"].to_list() == [NOON + timedelta(seconds=at) for at in (owner_s,) if at is not None]
    assert found.counts[Cause.BEFORE_SERVING] == (owner_s is None)


def test_every_event_is_counted_once(joined):
    events = [
        event(0, 2),
        event(0, 2, action="hover"),
        event(1, query_id=None),
        event(1, event_attributes=None),
        event(1, 0, event_id="e1"),
        event(1, 0, event_id="e1", after_s=5.0),
        event(2, 1),
        event(2, 1),
        event(3, query_id="nobody's"),
        event(3, after_s=-1.5),
        event(3, after_s=-0.5),
        event(3, after_s=30 * 60 + 0.5),
        event(3, after_s=30 * 60),
        event(4, 9),
        event(7, 0),
        event(7, 3, event_attributes={"object": {"object_id": "sku-7-3"}, "position": {"ordinal": 2}}),
        {"action_name": "click"},
    ]
    found, out = joined([*RECORDS, SHOWN_TWO], events)
    assert found.counts == {
        COUNTED: 6,
        OTHER_PLACE: 1,
        Cause.UNREADABLE: 1,
        Cause.NO_LABEL: 1,
        Cause.NO_QUERY: 1,
        Cause.NO_CANDIDATE: 1,
        Cause.DUPLICATE: 2,
        Cause.UNKNOWN_QUERY: 1,
        Cause.BEFORE_SERVING: 1,
        Cause.OUTSIDE_WINDOW: 1,
        Cause.NOT_IN_LIST: 1,
        Cause.NOT_SHOWN: 1,
    }
    assert sum(found.counts[cause] for cause in (COUNTED, *Cause)) == len(events)
    assert found.first_fault.startswith(str(out.parent / "events.jsonl") + ", line 17")
    assert pl.read_parquet(out)["label"].sum() == 5


AGAIN = served_record(1, served_at=NOON + timedelta(hours=2), order=np.array([0]))


def test_of_a_query_that_was_served_again_the_last_list_with_an_event_stands(joined):
    found, out = joined([*RECORDS, AGAIN], [event(1, 0, after_s=3600 * 2), event(1, 1)])
    rows = pl.read_parquet(out).filter(pl.col("query_id") == "query-1")
    assert rows["candidate_id"].to_list() == ["sku-1-0"]
    assert rows["label"].to_list() == [1]
    assert found.again == 1
    assert found.counts[Cause.REPLACED] == 1


@pytest.mark.parametrize(("events", "length"), [([event(1, 1)], 4), ([event(0)], 1)])
def test_a_list_that_people_left_for_one_that_they_used_does_not_stand(joined, events, length):
    found, out = joined([*RECORDS, AGAIN], events)
    rows = pl.read_parquet(out).filter(pl.col("query_id") == "query-1")
    assert rows.height == length
    assert (found.again, found.counts[COUNTED]) == (1, 1)


def test_only_what_was_seen_counts_where_the_stream_says_what_was(joined):
    labels = Labels(labels={"click": 1}, seen=["impression"])
    events = [event(0, 0, action="impression"), event(0, 1, action="impression"), event(0, 1), event(1, 2)]
    found, out = joined(RECORDS, events, labels=labels)
    rows = pl.read_parquet(out)
    assert sorted(rows["candidate_id"].to_list()) == ["sku-0-0", "sku-0-1", "sku-1-2"]
    assert dict(rows.select("candidate_id", "label").iter_rows()) == {"sku-0-0": 0, "sku-0-1": 1, "sku-1-2": 1}
    assert dict(rows.select("candidate_id", "n_impression").iter_rows()) == {"sku-0-0": 1, "sku-0-1": 1, "sku-1-2": 0}
    assert found.counts[COUNTED] == 4


def bought(number, place, price):
    """A purchase that says what was paid."""
    attributes = {"object": {"object_id": f"sku-{number}-{place}", "price": price}}
    return event(number, place, action="purchase", event_id=f"{number} {place} {price}", event_attributes=attributes)


def test_numbers_of_events_are_summed(joined):
    revenue = {"action": "purchase", "field": "event_attributes.object.price"}
    labels = Labels(labels={"purchase": 3, "click": 1}, sums={"revenue": revenue})
    events = [bought(0, 2, 10.5), bought(0, 2, 2), bought(1, 0, "free"), event(2, 0)]
    found, out = joined(RECORDS, events, labels=labels, bucket_rows=2)
    rows = pl.read_parquet(out)
    assert dict(rows.filter(pl.col("revenue") > 0).select("candidate_id", "revenue").iter_rows()) == {"sku-0-2": 12.5}
    assert rows["revenue"].null_count() == 0
    assert (found.counts[COUNTED], found.counts[NO_NUMBER]) == (4, 1)
    _, out = joined(RECORDS, events, labels=labels, out="others.parquet", prefix="judged_")
    assert pl.read_parquet(out)["judged_revenue"].sum() == 12.5


@pytest.mark.parametrize("name", ["score", "n_purchase"])
def test_a_sum_has_a_name_of_its_own(joined, name):
    labels = Labels(labels={"purchase": 3}, sums={name: {"action": "purchase", "field": "price"}})
    with pytest.raises(RecipeError, match=f"sums.{name}: .* choose another name"):
        joined(RECORDS, [event(0)], labels=labels)


def test_what_an_experiment_did_stands_in_its_rows(joined):
    swapped = served_record(0, intervention=Intervention("swap", (1, 2), 0.25), experiment="fair", arm="explore")
    teams = served_record(1, teams=("control", "challenger", "challenger", "control"))
    _, out = joined([swapped, teams], [event(0)])
    rows = pl.read_parquet(out)
    assert rows["swapped"].to_list() == [False, True, True, False] + [False] * 4
    assert rows["propensity"].to_list() == [0.25] * 4 + [None] * 4
    assert rows["intervention"].to_list() == ["swap"] * 4 + [None] * 4
    assert rows["experiment"].to_list() == ["fair"] * 4 + [None] * 4
    assert rows["team"].to_list() == [None] * 4 + list(teams.teams)


def test_categories_of_all_files_have_their_names(joined):
    codes = np.array([[1.0, 0.5, 2.0], [2.0, np.nan, 0.0]], dtype=np.float32)
    fields = {"length": 2, "features": codes, "order": np.array([0, 1])}
    first = served_record(0, **fields, categories={"carrier": ("A5", "B2")})
    second = served_record(1, **fields, categories={"carrier": ("C7", "A5")})
    _, out = joined(None, [event(0)], several=[[first], [second]])
    rows = pl.read_parquet(out)
    assert rows["carrier"].to_list() == ["B2", None, "A5", None]
    assert np.isnan(rows["stars"][1])


def test_other_columns_are_named(joined, tmp_path):
    other = served_record(1, names=("price", "rating", "carrier"))
    with pytest.raises(DataError, match=r"0\.avro: lacks rating and has stars more than 1\.avro"):
        joined(None, [event(0)], several=[[RECORDS[0]], [other]])
    assert not list(tmp_path.glob(".rows*"))


def test_the_order_of_columns_does_not_matter(joined):
    turned = served_record(1, names=("carrier", "price", "stars"))
    _, out = joined(None, [event(0)], several=[[RECORDS[0]], [turned]])
    rows = pl.read_parquet(out)
    assert rows.columns[4:7] == ["carrier", "price", "stars"]
    assert rows["price"][:4].to_list() == RECORDS[0].features[RECORDS[0].order, 0].tolist()
    assert rows["price"][4:].to_list() == turned.features[turned.order, 1].tolist()


def test_a_feature_with_the_name_of_another_column_needs_a_prefix(joined):
    named = [served_record(0, names=("position", "stars", "carrier"))]
    with pytest.raises(DataError, match="'position'"):
        joined(named, [event(0)])
    _, out = joined(named, [event(0)], prefix="judged_")
    rows = pl.read_parquet(out)
    assert rows["judged_position"].to_list() == [1, 2, 3, 4]
    assert rows["position"].to_list() == named[0].features[named[0].order, 0].tolist()


def many():
    """Three hours of records, some served again, with events."""
    records = [served_record(n, served_at=NOON + timedelta(seconds=37 * n)) for n in range(300)]
    records += [served_record(n, served_at=NOON + timedelta(hours=3, seconds=n)) for n in range(0, 300, 50)]
    return records, [event(n, n % 4, after_s=36 * n + 60 + k) for n in range(300) for k in range(2)]


def test_small_parts_give_the_same_file(joined, monkeypatch):
    records, events = many()
    whole, out = joined(records, events)
    monkeypatch.setattr(pieces, "PIECE_RECORDS", 7)
    parted, out_parted = joined(records, events, out="parted.parquet", bucket_rows=50, slice_bytes=2000)
    assert parted == whole
    assert whole.counts[COUNTED] > 500
    assert whole.again == 6
    assert pl.read_parquet(out).equals(pl.read_parquet(out_parted))


@pytest.mark.parametrize("step", ["write_pieces", "event_batches", "_match", "_judged_rows"])
def test_an_interrupted_join_goes_on(joined, tmp_path, monkeypatch, step):
    records, events = many()
    several = [records[:100], records[100:]]
    whole, out = joined(None, events, several=several, slice_bytes=4000)
    done = getattr(join_job, step)
    calls = []

    def interrupted(*args, **words):
        calls.append(args)
        if len(calls) == (1 if step == "_match" else 2):
            raise KeyboardInterrupt
        return done(*args, **words)

    monkeypatch.setattr(join_job, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        joined(records, events, out="again.parquet", slice_bytes=4000)
    assert not (tmp_path / "again.parquet").exists()
    with pytest.raises(RecipeError, match="--resume"):
        joined(records, events, out="again.parquet", slice_bytes=4000)
    with pytest.raises(RecipeError, match="window was '0:30:00'"):
        joined(records, events, out="again.parquet", slice_bytes=4000, resume=True, window=timedelta(minutes=31))
    before = len(calls)
    found, again = joined(records, events, out="again.parquet", slice_bytes=4000, resume=True)
    assert found == whole
    assert pl.read_parquet(again).equals(pl.read_parquet(out))
    if step == "write_pieces":
        assert len(calls) - before == 1  # the first file is not read again
    assert not list(tmp_path.glob(".again*"))


def test_a_file_that_is_still_written_is_read_to_its_last_whole_block(joined, tmp_path):
    served = tmp_path / "served"
    served.mkdir()
    write(served / "1.avro", RECORDS, block_records=2)
    whole = (served / "1.avro").read_bytes()
    (served / "1.avro.part").write_bytes(whole[:-5])
    (served / "1.avro").unlink()
    (tmp_path / "events.jsonl").write_text('{"action_name": "cl')
    found, _ = joined(None, None)
    assert (found.served, found.rows) == (4, 16)
    assert found.counts[Cause.CUT_OFF] == 1


@pytest.mark.parametrize("resumed", [False, True])
def test_a_finished_file_that_is_cut_off_is_an_error(joined, tmp_path, monkeypatch, resumed):
    """And no rows of the others are written; without its torn end, the join goes on."""
    several = [RECORDS, [served_record(n) for n in range(5, 9)]]
    joined(None, [event(0)], several=several)
    path = tmp_path / "served" / "1.avro"
    if resumed:

        def interrupted(*words, **options):
            if words[0] == path:
                raise KeyboardInterrupt
            return write_pieces(*words, **options)

        write_pieces = join_job.write_pieces
        with monkeypatch.context() as patch:
            patch.setattr(join_job, "write_pieces", interrupted)
            with pytest.raises(KeyboardInterrupt):
                joined(None, None, out="again.parquet")
    write(path, several[1], block_records=1)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"1\.avro: .* 3 records"):
        joined(None, None, out="again.parquet", resume=resumed)
    assert not (tmp_path / "again.parquet").exists()
    path.rename(path.with_name("1.avro.part"))
    found, _ = joined(None, None, out="more.parquet")
    assert found.served == 8


def test_folders_are_read_and_what_is_left_out_is_noted(joined, tmp_path):
    inside = tmp_path / "served" / "2026" / "11"
    inside.mkdir(parents=True)
    write(tmp_path / "served" / "0.avro", RECORDS)
    write(inside / "1.avro", [SHOWN_TWO])
    (tmp_path / "served" / "1.avro.gz").touch()
    (tmp_path / "events" / "2026").mkdir(parents=True)
    write_events(tmp_path / "events" / "2026" / "1.jsonl", [event(7, 1)])
    (tmp_path / "events" / "1.jsonl.zst").touch()
    notes = RecordedProgress()
    found, _ = joined(None, None, source="events", progress=notes)
    assert (found.served, found.counts[COUNTED]) == (6, 1)
    assert [note.rpartition(": ")[2] for note in notes.said] == ["1.avro.gz", "1.jsonl.zst"]


@pytest.mark.parametrize(
    ("sent", "cause"),
    [
        (event(0, event_attributes={"object": {"object_id": "b'sku-0-0'"}}), "1 candidate not in the list"),
        (event(0, query_id="nobody's"), "1 unknown query"),
        (event(0, after_s=-7200.0), "1 before serving"),
        (event(0, event_attributes={"object_id": "sku-0-0"}), "1 names no candidate"),
    ],
)
def test_events_of_which_none_counts_are_an_error(joined, tmp_path, sent, cause):
    with pytest.raises(DataError, match=rf"events\.jsonl: no event counts, .*; {cause}"):
        joined(RECORDS, [sent, event(0, action="hover")])
    assert not list(tmp_path.glob("*.parquet"))
    assert not list(tmp_path.glob(".rows*")), "there is nothing to resume"
    write_events(tmp_path / "events.jsonl", [event(0)])
    assert joined(None, None)[0].counts[COUNTED] == 1


@pytest.mark.parametrize("wrong", ["other.parquet", "other.csv", "other.jsonl"])
def test_a_wrong_file_of_events_leaves_nothing_to_resume(joined, tmp_path, wrong):
    (tmp_path / "both").mkdir()
    write_events(tmp_path / "both" / "first.jsonl", [event(0)])
    if wrong == "other.parquet":
        pl.DataFrame({"a": [1, 2]}).write_parquet(tmp_path / "both" / wrong)
    else:
        (tmp_path / "both" / wrong).write_text("{}\n{}\n")
    with pytest.raises(DataError, match=wrong):
        joined(RECORDS, [event(0)], source="both")
    assert joined(None, None)[0].counts[COUNTED] == 1


def test_events_of_an_interrupted_join_are_named_by_their_paths(joined, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(join_job, "_match", interrupt)
    with pytest.raises(KeyboardInterrupt):
        joined(RECORDS, [event(0)])
    with pytest.raises(RecipeError, match=rf"events was '{tmp_path}/events\.jsonl' when .* is '{tmp_path}/others'"):
        joined(None, None, resume=True, source="others")


@pytest.mark.parametrize("sent", [[], [event(0, action="hover")]])
def test_without_an_event_that_has_a_label_a_note_says_so(joined, sent):
    notes = RecordedProgress()
    found, _ = joined(RECORDS, sent, progress=notes)
    assert found.labelled == {0: 20}
    assert len(notes.said) == 1


def test_an_empty_log_is_an_error(joined, tmp_path):
    (tmp_path / "served").mkdir()
    (tmp_path / "events.jsonl").write_text("")
    with pytest.raises(DataError, match="no served record yet"):
        joined(None, None)


@pytest.mark.parametrize("name", ["record", "object_id", "at"])
def test_a_feature_is_not_taken_for_a_column_of_the_join(joined, name):
    records = [served_record(0, names=(name, "stars", "carrier"))]
    _, out = joined(records, [event(0)])
    rows = pl.read_parquet(out)
    assert rows[name].to_list() == records[0].features[records[0].order, 0].tolist()
    assert rows["label"].sum() == 1


@pytest.mark.parametrize("name", ["record", "object_id", "at"])
def test_a_sum_is_not_taken_for_a_column_of_the_join(joined, name):
    labels = Labels(labels={"click": 1}, sums={name: {"action": "click", "field": "price"}})
    _, out = joined(RECORDS, [event(0, price=2.5)], labels=labels)
    assert pl.read_parquet(out)[name].sum() == 2.5


def test_rules_are_named_by_their_actions(joined):
    effects = (RuleEffect("no stock", "exclude", (0,)), RuleEffect("a", "pin", (2,)), RuleEffect("b", "boost", (2, 3)))
    _, out = joined([RECORDS[0], served_record(7, order=np.array([2, 1, 3]), rules=effects)], [event(7, 1)])
    rows = pl.read_parquet(out)
    assert rows["rules"].to_list() == [None] * 4 + ["boost exclude pin"] * 3
    assert rows["rule"].to_list() == [None] * 4 + ["boost pin", None, "boost"]


def test_weights_of_goals_are_json(joined):
    records = [RECORDS[0], served_record(7, length=3, weights={"booked": 1.0, "margin": 0.25})]
    _, out = joined(records, [event(7, 1)])
    rows = pl.read_parquet(out)
    assert rows["weights"].to_list() == [None] * 4 + ['{"booked": 1.0, "margin": 0.25}'] * 3


def test_a_swap_with_a_candidate_that_was_not_shown_has_one_row(joined):
    """The place below the last shown one belongs to no row: the order of the others is not known."""
    swap = served_record(
        9, order=np.array([3, 1]), top_n=2, intervention=Intervention("swap", (1, 2), 0.25), experiment="fair"
    )
    _, out = joined([swap], [event(9, 1)], unshown=True)
    assert pl.read_parquet(out)["swapped"].to_list() == [False, True, False, False]


def test_candidates_that_were_not_shown_have_no_place_and_no_label(joined):
    excluded = served_record(8, order=np.array([2]), top_n=1, rules=(RuleEffect("no", "exclude", (0,)),))
    records, events = [RECORDS[0], SHOWN_TWO, excluded], [event(7, 1), event(7, 0, after_s=2.0), event(0)]
    found, out = joined(records, events, unshown=True)
    rows = pl.read_parquet(out)
    two = rows.filter(pl.col("query_id") == "query-7")
    assert two["candidate_id"].to_list() == ["sku-7-3", "sku-7-1", "sku-7-0", "sku-7-2"]
    assert two["position"].to_list() == [1, 2, None, None]
    assert two["label"].to_list() == [0, 1, None, None]
    for d, name in enumerate(SHOWN_TWO.feature_names):
        assert two[name].to_list() == SHOWN_TWO.features[[3, 1, 0, 2], d].tolist()
    assert rows.filter(pl.col("query_id") == "query-8")["candidate_id"].to_list() == ["sku-8-2", "sku-8-1", "sku-8-3"]
    assert (found.rows, found.queries, found.labelled) == (11, 3, {0: 5, 1: 2, None: 4})
    assert found.counts[Cause.NOT_SHOWN] == 1
    assert scan_judged(out, ["position"]).collect().height == 7
    assert rows.height == 11
    assert read_judged_metadata(out)["unshown"]
    _, short = joined(records, events, out="short.parquet")
    assert not read_judged_metadata(short, labelled=True)["unshown"]
    assert pl.read_parquet(short).height == 7
