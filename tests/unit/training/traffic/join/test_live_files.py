"""A join beside a service, which finishes and removes files."""

import polars as pl

from listwright.training.traffic.join import job as join_job
from listwright.training.traffic.join.events import COUNTED
from support.events import event
from support.served import served_record


def test_files_that_the_service_finishes_or_removes_meanwhile_stop_nothing(joined, tmp_path, monkeypatch):
    whole, out = joined(None, [event(1)], several=[[served_record(0)], [served_record(1)], [served_record(2)]])
    served, listed = tmp_path / "served", join_job.log_files

    def live(folder, report):
        """As they were listed: the first goes, the others are finished."""
        return [path.rename(path.with_name(path.name + ".part")) for path in listed(folder)]

    def read(path, *words, **options):
        if path.name.startswith("0.avro"):
            path.unlink(missing_ok=True)
        elif path.name.endswith(".part"):
            path.rename(path.with_name(path.name.removesuffix(".part")))
        return write_pieces(path, *words, **options)

    write_pieces = join_job.write_pieces
    monkeypatch.setattr(join_job, "log_files", live)
    monkeypatch.setattr(join_job, "write_pieces", read)
    found, _ = joined(None, None, out="again.parquet")
    assert (whole.served, whole.gone) == (3, 0)
    assert (found.served, found.gone, found.counts[COUNTED]) == (2, 1, 1)
    assert sorted(path.name for path in served.iterdir()) == ["1.avro", "2.avro"]
    assert pl.read_parquet(tmp_path / "again.parquet").equals(pl.read_parquet(out)[4:])
