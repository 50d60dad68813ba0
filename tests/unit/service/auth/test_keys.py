"""Keys: what a file may say, how they are compared, how the file changes, and that no key is ever shown."""

import asyncio
import hmac
import logging
import math
import os

import pytest

from listwright.service.auth import keys
from listwright.service.auth.keys import KeysError, bearer, digest_of, holder
from listwright.service.auth.middleware import Bucket, Keyring
from listwright.service.errors import RateLimitedError, UnauthorizedError
from listwright.service.settings import Settings
from support.stand_ins import Clock

WEB, BATCH, THIRD = "w" * 20, "B4tch._~+/-0123456789==", "t" * 256


def settings(**changes):
    return Settings(bundle="models/demo/1", **changes)


def read(text, **changes):
    return keys.read(settings(keys=text, **changes))


def test_nothing_set_is_nobody_asked():
    assert keys.read(settings()) == ()
    assert not Keyring(settings())


def test_lines_of_a_file(tmp_path):
    file = tmp_path / "keys"
    file.write_text(f"\ufeff# who may ask\n\nweb:{WEB}\n  batch:{BATCH}  rate=0.5 burst=3\r\nweb:{THIRD}\n")
    found = keys.read(settings(keys_file=file, keys=f"env:{'e' * 16}", key_rate=10, key_burst=7))
    assert [(key.name, key.rate, key.burst) for key in found] == [
        ("env", 10.0, 7.0),
        ("web", 10.0, 7.0),
        ("batch", 0.5, 3.0),
        ("web", 10.0, 7.0),
    ]
    for name, key in [("web", WEB), ("batch", BATCH), ("web", THIRD), ("env", "e" * 16)]:
        assert holder(found, key.encode()).name == name
    for wrong in (b"", b"w", WEB[:-1].encode(), (WEB + "w").encode(), digest_of(WEB.encode()), b"\xff" * 20):
        assert holder(found, wrong) is None


@pytest.mark.parametrize(
    "line",
    [
        "SECRETSECRETSECRET",
        ":SECRETSECRETSECRET",
        "web:SECRET",
        "web: SECRETSECRETSECRET",
        "two words:SECRETSECRETSECRET",
        "web:SECRETSECRETSECRETü",
        "web:" + "SECRET" * 50,
        "n" * 65 + ":SECRETSECRETSECRET",
        "web:SECRETSECRETSECRET rate",
        "web:SECRETSECRETSECRET rate=0",
        "web:SECRETSECRETSECRET rate=-1",
        "web:SECRETSECRETSECRET rate=nan",
        "web:SECRETSECRETSECRET burst=0.5",
        "web:SECRETSECRETSECRET limit=9",
    ],
)
def test_a_wrong_line_is_named_and_not_shown(line):
    with pytest.raises(KeysError, match=r"^LISTWRIGHT_KEYS: line 2") as raised:
        read(f"fine:{WEB},{line}")
    assert "SECRET" not in str(raised.value)
    assert WEB not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("#", "holds no key"),
        (f"a:{WEB},b:{WEB}", "a and b have the same key"),
        (f"a:{WEB},b:{'admin' * 4}", "LISTWRIGHT_ADMIN_KEY and b have the same key"),
        (f"a:{WEB} rate=1,a:{BATCH} rate=2", "the keys of a share one limit"),
        (",".join(f"n{n}:{n:020d}" for n in range(keys.MAX_KEYS + 1)), "there are 257 keys; the limit is 256"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(text, says):
    with pytest.raises(KeysError, match=says) as raised:
        read(text, admin_key="admin" * 4)
    assert WEB not in str(raised.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(KeysError, match="none cannot be read: No such file or directory"):
        keys.read(settings(keys_file=tmp_path / "none"))
    (tmp_path / "large").write_bytes(b"#" * (keys.MAX_FILE_BYTES + 1))
    with pytest.raises(KeysError, match="has 262145 bytes; the limit is 262144"):
        keys.read(settings(keys_file=tmp_path / "large"))
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(KeysError, match="is not a plain file"):
        keys.read(settings(keys_file=tmp_path / "fifo"))
    (tmp_path / "binary").write_bytes(b"web:\xff\xfe" + WEB.encode())
    with pytest.raises(KeysError, match=r"binary: it is no UTF-8 \(byte 4\)"):
        keys.read(settings(keys_file=tmp_path / "binary"))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_file_in_utf_16_is_refused_by_that_name(tmp_path, encoding):
    (tmp_path / "keys").write_bytes(f"web:{WEB}\n".encode(encoding))
    with pytest.raises(KeysError, match="keys: it is UTF-16, or no text: save it as UTF-8"):
        keys.read(settings(keys_file=tmp_path / "keys"))


@pytest.mark.parametrize("sent", [WEB, BATCH, THIRD, "nobody's key"])
def test_every_key_is_compared_whichever_was_sent(monkeypatch, sent):
    """And always digests, equally long: neither the place nor the length of a key shows in the time."""
    compared = []

    def compare_digest(one, other):
        compared.append((len(one), len(other)))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare_digest)
    holder(read(f"a:{WEB},b:{BATCH},c:{THIRD}"), sent.encode())
    assert compared == [(32, 32)] * 3


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ([b"Bearer abc"], b"abc"),
        ([b"bEARER  abc "], b"abc"),
        ([b"Bearer "], b""),
        ([], None),
        ([b"Basic abc"], None),
        ([b"Bearer"], None),
        ([b"abc"], None),
        ([b"Bearer abc", b"Bearer abc"], None),
    ],
)
def test_how_a_key_is_sent(values, key):
    assert bearer([(b"host", b"x"), *((b"authorization", value) for value in values)]) == key


def test_no_key_is_kept_or_shown():
    chosen = settings(keys=f"web:{WEB}", admin_key="admin" * 4)
    (key,) = keys.read(chosen)
    for text in (repr(chosen), chosen.model_dump_json(), repr(key), repr(vars(Keyring(chosen)))):
        assert WEB not in text
        assert "admin" * 4 not in text


def looked(ring):
    asyncio.run(ring.look())


def test_a_file_that_changes_is_read_again(tmp_path, caplog):
    caplog.set_level(logging.INFO, "listwright.keys")
    file = tmp_path / "keys"
    file.write_text(f"web:{WEB}\n")
    ring = Keyring(settings(keys_file=file))
    assert ring.admit(WEB.encode()).name == "web"
    file.write_text(f"web:{WEB}\nweb:{BATCH}\n")
    looked(ring)
    assert ring.admit(WEB.encode()).name == ring.admit(BATCH.encode()).name == "web", "old and new, for a while"
    file.write_text(f"web:{BATCH}\n")
    looked(ring)
    looked(ring)
    with pytest.raises(UnauthorizedError):
        ring.admit(WEB.encode())
    assert [record.getMessage() for record in caplog.records] == ["keys of web", "keys of web"]


@pytest.mark.parametrize("spoilt", ["", "web:short", f"web:{BATCH}\nhalf", None])
def test_a_file_that_is_spoilt_changes_nothing_and_is_said_once(tmp_path, caplog, spoilt):
    """Never open because of it: an empty file is no permission."""
    file = tmp_path / "keys"
    file.write_text(f"web:{WEB}\n")
    ring = Keyring(settings(keys_file=file))
    file.unlink()
    if spoilt is not None:
        file.write_text(spoilt)
    for _ in range(3):
        looked(ring)
    assert ring.admit(WEB.encode()).name == "web"
    for sent in (None, b"", BATCH.encode()):
        with pytest.raises(UnauthorizedError):
            ring.admit(sent)
    (record,) = caplog.records
    assert record.getMessage().startswith("the keys stay as they are: ")
    assert BATCH not in record.getMessage()
    file.write_text(f"web:{BATCH}\n")
    looked(ring)
    assert ring.admit(BATCH.encode()).name == "web"


@pytest.mark.parametrize(("rate", "burst"), [(0.25, 1.0), (3.0, 2.0), (1000.0, 50.0)])
def test_a_bucket_gives_its_burst_and_then_its_rate(rate, burst):
    now = 5.0
    bucket = Bucket(rate, burst, now)
    assert [bucket.take(now) for _ in range(int(burst))] == [0.0] * int(burst)
    for _ in range(10):
        wait = bucket.take(now)
        assert wait == pytest.approx(1.0 / rate, rel=1e-4)
        assert bucket.take(now + wait * 0.99) > 0.0
        now += wait * 1.000001
        assert bucket.take(now) == 0.0
    now += 1e6
    assert [bucket.take(now) for _ in range(int(burst))] == [0.0] * int(burst)
    assert bucket.take(now) > 0.0, "it holds no more than its burst, however long nobody came"


def test_retry_after_is_true():
    """Refused before it, admitted after it."""
    clock = Clock(1000.0)
    ring = Keyring(settings(keys=f"web:{WEB} rate=0.3 burst=2,other:{BATCH}"), clock)
    web, other = ring.admit(WEB.encode()), ring.admit(BATCH.encode())
    ring.take(web)
    ring.take(web)
    with pytest.raises(RateLimitedError, match=r"^web may send 0.3 requests per second: ask again in 4 s$") as raised:
        ring.take(web)
    assert raised.value.retry_after_s == math.ceil(1 / 0.3)
    for _ in range(100):
        ring.take(other)
    clock.now += 3.0
    with pytest.raises(RateLimitedError, match="in 1 s"):
        ring.take(web)
    clock.now += 1.0
    ring.take(web)


def test_a_new_key_is_no_new_allowance_and_what_is_gone_leaves_nothing(tmp_path):
    file = tmp_path / "keys"
    file.write_text(f"web:{WEB}\n")
    ring = Keyring(settings(keys_file=file, key_rate=1, key_burst=1), Clock(1000.0))
    ring.take(ring.admit(WEB.encode()))
    file.write_text(f"web:{BATCH}\n")
    looked(ring)
    with pytest.raises(RateLimitedError):
        ring.take(ring.admit(BATCH.encode()))
    for n in range(50):
        file.write_text(f"name{n}:{n:020d}\n")
        looked(ring)
    assert len(ring._buckets) == 1


def test_a_limit_that_is_changed_counts_from_then_on(tmp_path):
    file = tmp_path / "keys"
    file.write_text(f"web:{WEB} rate=1 burst=1\n")
    ring = Keyring(settings(keys_file=file), Clock(1000.0))
    ring.take(ring.admit(WEB.encode()))
    file.write_text(f"web:{WEB} rate=1 burst=3\n")
    looked(ring)
    for _ in range(3):
        ring.take(ring.admit(WEB.encode()))
    with pytest.raises(RateLimitedError):
        ring.take(ring.admit(WEB.encode()))


def test_a_scope_is_that_of_its_line():
    found = read(f"log:{WEB} scope=events\nweb:{BATCH}\nboth:{'c' * 20} scope=rank+events")
    assert [key.scopes for key in found] == [{"events"}, {"rank"}, {"rank", "events"}]
