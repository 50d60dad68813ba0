"""What is read of ``.npy``, and what is refused: files by NumPy itself, and headers that it would never write."""

import io
import tracemalloc

import numpy as np
import pytest

from listwright.ranking.errors import CandidateError, EmptyListError, SchemaMismatchError
from listwright.service.errors import TooLargeError, UndecodableBodyError
from listwright.service.wire import npy
from support.service.bundles import schema

SCHEMA = schema()
MATRIX = np.arange(12, dtype=np.float32).reshape(3, 4)


def saved(array, version=None):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version)
    return file.getvalue()


def written(header, data=b"", *, version=1, length=None):
    text = header.encode("latin-1")
    size = 2 if version == 1 else 4
    announced = (len(text) if length is None else length).to_bytes(size, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + announced + text + data


def decode(body, limit=100):
    return npy.decode(body, SCHEMA, limit)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("dtype", ["<f4", "<f8", "<f2"])
def test_matrices_as_numpy_writes_them(version, dtype):
    found = decode(saved(MATRIX.astype(dtype), version))
    assert found.dtype == dtype
    assert np.array_equal(found, MATRIX)


@pytest.mark.parametrize(
    "header",
    [
        "{'shape': (3, 4), 'fortran_order': False, 'descr': '<f4'}\n",
        '{"descr":"<f4","shape":(3,4),"fortran_order":False}',
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4,), }          \n",
    ],
)
def test_the_order_of_a_header_and_its_blanks_are_free(header):
    assert np.array_equal(decode(written(header, MATRIX.tobytes())), MATRIX)


@pytest.mark.parametrize(
    "shape", ["'<f4'", '""', "True", "False", "'(3, 4)'", f"({'0' * 18}3, 4)", "(True, 4)", f"(3, {10**18})", "(3, -4)"]
)
def test_a_shape_is_numbers(shape):
    """Found by benchmarks/fuzz.py: any literal was taken for one."""
    with pytest.raises(UndecodableBodyError, match=r"^the \.npy header"):
        decode(written(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n", MATRIX.tobytes()))


def test_the_numbers_stay_where_they_arrived():
    body = saved(np.zeros((1000, 4), dtype=np.float32))
    decode(body, limit=1000)  # the header is kept read
    tracemalloc.start()
    found = decode(body, limit=1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not found.flags.owndata
    assert peak < 8_000  # half of the matrix


HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }\n"
DATA = MATRIX.tobytes()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x93NUMP",
        b"\x93NUMPY",
        b"\x93NUMPY\x01",
        b"\x93NUMPY\x01\x00",
        b"\x93NUMPY\x01\x00\x76",
        written(HEADER, DATA, version=0),
        written(HEADER, DATA, version=4),
        written(HEADER, DATA)[:40],
        written(HEADER, DATA[:-1]),
        written(HEADER, DATA + b"\0"),
        written(HEADER, DATA, length=65_535),
        written(HEADER, DATA, version=2, length=2**32 - 1),
        written("{}", DATA),
        written("", DATA),
        written("'descr': '<f4'", DATA),
        written(HEADER.replace("}", ""), DATA),
        written(HEADER.replace("False", "__import__('os')"), DATA),
        written(HEADER.replace("False", "0"), DATA),
        written(HEADER.replace("(3, 4)", "(3, -4)"), DATA),
        written(HEADER.replace("(3, 4)", "(3, 4.0)"), DATA),
        written(HEADER.replace("(3, 4)", "(3 4)"), DATA),
        written(HEADER.replace("(3, 4)", "(3,, 4)"), DATA),
        written(HEADER.replace("(3, 4)", "[3, 4]"), DATA),
        written(HEADER.replace("(3, 4)", "(3, \xb2)"), DATA),
        written(HEADER.replace(", }", ", 'more': 'x'}"), DATA),
        written(HEADER + " " * npy.MAX_HEADER, DATA),
        written("{" * 1000, DATA),
        written("{'descr': " + "(" * 900, DATA),
        written("-" * 1000, DATA),
        written("[" * 1000, DATA),
        written("{1:" * 300, DATA),
        written("\0", DATA),
        b"PK\x03\x04" + saved(MATRIX),
    ],
)
def test_what_is_no_array(body):
    with pytest.raises(UndecodableBodyError):
        decode(body)


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (MATRIX.astype("<i4"), "'<i4'"),
        (MATRIX.astype(">f2"), "'>f2'"),
        (MATRIX.astype(">f4"), "'>f4'"),
        (MATRIX.astype("<c8"), "'<c8'"),
        (MATRIX > 0, r"'\|b1'"),
        (np.array([["a", "b", "c", "d"]]), "'<U1'"),
        (MATRIX.astype(object), r"'\|O'"),
        (np.array([(1.0, 2.0)], dtype=[("a", "<f4"), ("b", "<f4")]), r"'\|V8'"),
        (np.asfortranarray(MATRIX), "Fortran order"),
        (MATRIX.ravel(), r"\(12,\)"),
        (MATRIX[None], r"\(1, 3, 4\)"),
        (np.float32(1), r"\(\)"),
    ],
)
def test_arrays_that_are_no_float_matrix(array, says):
    with pytest.raises(CandidateError, match=says):
        decode(saved(np.asanyarray(array)))


def test_a_shape_that_does_not_fit_is_refused_before_its_size_counts():
    for shape, error in (
        ("(0, 4)", EmptyListError),
        ("(101, 4)", TooLargeError),
        (f"({10**17}, {10**17})", TooLargeError),
        ("(3, 5)", SchemaMismatchError),
        (f"(3, {10**17})", SchemaMismatchError),
        ("(3, 0)", SchemaMismatchError),
    ):
        with pytest.raises(error):
            decode(written(HEADER.replace("(3, 4)", shape), DATA))


@pytest.mark.parametrize("length", [0, 1, 9, 10, 99, 100, 10_000, 10**6])
def test_numpy_reads_what_is_written(length):
    values = np.linspace(-1.0, 1.0, length)
    body = npy.encode(values)
    found = np.load(io.BytesIO(body), allow_pickle=False)
    assert found.dtype == "<f4"
    assert np.array_equal(found, values.astype(np.float32))
    assert (len(body) - 4 * length) % 64 == 0
